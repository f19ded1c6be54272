"""What bandits are made of as plain values, and made again from them: no class but those listed here, and no code."""

import dataclasses
import inspect
import math
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import torch
from botorch.models.kernels import CategoricalKernel, InfiniteWidthBNNKernel
from botorch.utils.constraints import LogTransformedInterval, NonTransformedInterval
from gpytorch import constraints, kernels, priors
from gpytorch.constraints.constraints import softplus
from gpytorch.kernels import Kernel
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

import torch_kbandits.kernels as own_kernels
from torch_kbandits import acquisition, checks, confidence, dictionaries, memory, outcomes, spaces
from torch_kbandits import priors as own_priors
from torch_kbandits.bandit import adaptation, batches
from torch_kbandits.bandit.settings import describe_module
from torch_kbandits.candidates import (
    Arms,
    ArmSource,
    Box,
    Configurations,
    ContextualActions,
    Timed,
    UnitCube,
)
from torch_kbandits.candidates.arms import MappedFile
from torch_kbandits.errors import InputError, KernelBanditError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.observations import column_spec, columns, expiry
from torch_kbandits.priors import families


class NotRebuildableError(KernelBanditError, ValueError):
    """What a bandit is made of cannot be made again from plain values; the message says which part, as a clause."""


_KERNELS: tuple[type[Kernel], ...] = (
    *(kernels.AdditiveKernel, kernels.ConstantKernel, kernels.CosineKernel, kernels.HammingIMQKernel),
    *(kernels.LinearKernel, kernels.MaternKernel, kernels.PeriodicKernel, kernels.PiecewisePolynomialKernel),
    *(kernels.PolynomialKernel, kernels.ProductKernel, kernels.RBFKernel, kernels.RQKernel, kernels.ScaleKernel),
    *(kernels.SpectralMixtureKernel, CategoricalKernel, InfiniteWidthBNNKernel),
    *(own_kernels.ForgettingKernel, own_kernels.GroupedKernel, own_kernels.PerActionLinearKernel),
    *(own_kernels.PrecomputedKernel, own_kernels.SpaceTimeKernel, own_kernels.WienerKernel),
)


def _named(*words: str, **others: str) -> dict[str, str]:
    return {word: word for word in words} | others


#: Words of constructors, and of the attributes that hold them.
_ATTRIBUTES: dict[type, dict[str, str]] = {
    Arms: {"arms": "source"},
    ArmSource: {"arms": "given", "dtype": "dtype"},
    MappedFile: _named("path", "dtype", "offset", "shape", "order"),
    Box: _named("bounds", "num_restarts", "raw_samples"),
    UnitCube: _named("dimension", "snap", "continuous", "neighbours"),
    Configurations: _named("space", "context_dim", "context_columns"),
    ContextualActions: _named("context_dim", "bounds", "action_dim", "num_restarts", "raw_samples")
    | _named("context_columns", "action_columns", actions="source", dtype="example.dtype"),
    Timed: {"candidates": "untimed"},
    constraints.Positive: {},
    constraints.GreaterThan: _named("lower_bound"),
    constraints.LessThan: _named("upper_bound"),
    constraints.Interval: _named("lower_bound", "upper_bound"),
    NonTransformedInterval: _named("lower_bound", "upper_bound"),
    LogTransformedInterval: _named("lower_bound", "upper_bound"),
    priors.GammaPrior: _named("concentration", "rate"),
    priors.HalfCauchyPrior: _named("scale"),
    priors.HalfNormalPrior: _named("scale"),
    priors.LogNormalPrior: _named("loc", "scale"),
    priors.NormalPrior: _named("loc", "scale"),
    priors.UniformPrior: {"a": "low", "b": "high"},
}

_MODULES = (acquisition, adaptation, batches, column_spec, columns, confidence, dictionaries, expiry, families, memory)
#: The values of this package: dataclasses, each made again by its own constructor, which checks the fields.
_VALUES = {
    kind
    for module in (*_MODULES, outcomes, own_priors, spaces)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*_VALUES, *_ATTRIBUTES, *_KERNELS)}

#: Transforms of constraints, with their inverses. What scales its bounds itself is given none.
_TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "none": (None, None),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
    "exp": (torch.exp, torch.log),
    "softplus": (softplus, inv_softplus),
}
_TRANSFORMED = (NonTransformedInterval, LogTransformedInterval)

_DTYPES = {str(dtype): dtype for dtype in (torch.float64, torch.float32)}
#: Numbers that the constructors of kernels may make beyond those that were saved, and layers that a kernel may have.
_SPARE, _MOST_LAYERS = 10**6, 1_000


def describe(name: str, value: Any, points: Tensor | None = None) -> Any:
    """Return a value as tensors, numbers, strings, and lists and dictionaries of these, of which ``rebuild`` makes it.

    Args:
        name: what it is, for the message of the error.
        value: a piece of a bandit.
        points: (n, d), at which kernels are compared with those made again; None where nobody knows yet how many
            columns points have, then their parts, settings and numbers alone are.

    Raises:
        NotRebuildableError: if it, or a part of it, is of a class that is not listed here.

    Cost: that of kernels at the points.
    """
    if isinstance(value, Kernel):
        return {"kernel": _describe_kernel(name, value, points)}
    return _described(name, value, lambda inner, part: describe(inner, part, points))


def _described(name: str, value: Any, inside: Any) -> Any:
    """Return a value as plain values; ``inside`` does so for its parts."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, torch.dtype):
        return {"dtype": str(value)}
    if isinstance(value, (list, tuple)):
        parts = [inside(f"{name}[{number}]", part) for number, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise NotRebuildableError(f"{name}: a mapping has names that are no texts: {list(value)!r}")
        return {"dict": {key: inside(f"{name}.{key}", part) for key, part in value.items()}}
    kind = type(value)
    if _KINDS.get(kind.__name__) is not kind:
        what = "kernels" if isinstance(value, Kernel) else "objects"
        raise NotRebuildableError(f"{name}: {what} of the class {kind.__name__} are not known to it")
    words = {word: inside(f"{name}.{word}", part) for word, part in _words(name, value, kind).items()}
    return {"is": kind.__name__, "words": words}


def _words(name: str, value: Any, kind: type) -> dict[str, Any]:
    """Return the words of the constructor that makes a value of a kind."""
    if isinstance(value, Kernel):
        return _kernel_words(value)
    if kind in _VALUES:
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, priors.Prior) and getattr(value, "_transform", None) is not None:
        raise NotRebuildableError(f"{name}: a prior has a transform of its own")
    words = {word: attrgetter(path)(value) for word, path in _ATTRIBUTES[kind].items()}
    if isinstance(value, constraints.Interval) and kind not in _TRANSFORMED:
        words["transform"] = _transform_of(name, value)
    return words


def _transform_of(name: str, constraint: constraints.Interval) -> str:
    pair = constraint._transform, constraint._inv_transform
    if repr(pair[0]) == repr(softplus):  # a copied kernel has a copy of it
        pair = softplus, pair[1]
    for word, known in _TRANSFORMS.items():
        if pair == known or pair[0] is known[0] is None:
            return word
    raise NotRebuildableError(f"{name}: a constraint has a transform of its own")


@cache
def _parameters(kind: type[Kernel]) -> tuple[str, ...]:
    """Return the words that the constructor of a kernel takes, those that it hands on included."""
    own = inspect.signature(kind.__init__).parameters.values()
    hands_on = any(each.kind is each.VAR_KEYWORD for each in own)
    others = inspect.signature(Kernel.__init__).parameters.values() if hands_on else ()
    return tuple(dict.fromkeys(each.name for each in (*own, *others) if each.kind is not each.VAR_KEYWORD))


def _kernel_words(kernel: Kernel) -> dict[str, Any]:
    """Return the words of a kernel's constructor, but for those that its parameters say."""
    words: dict[str, Any] = {}
    for word in _parameters(type(kernel)):
        if word.endswith("_prior"):
            part = kernel._priors.get(word, (None,))[0]
        elif word.endswith("_constraint"):
            part = kernel._constraints.get(f"raw_{word}")
        elif word == "batch_shape":
            part = tuple(getattr(kernel, "_batch_shape", ())) or None
        else:
            part = None if word in ("self", "device") else getattr(kernel, word, None)
        if isinstance(part, torch.nn.ModuleList):
            part = list(part)
        if part is not None and not (isinstance(part, Tensor) and word not in kernel._buffers):
            words[word] = part
    return words


def _describe_kernel(name: str, kernel: Kernel, points: Tensor | None) -> dict[str, Any]:
    """Return a kernel as plain values: its structure, its own tensors, and which are fixed."""
    seen = dict[int, int]()

    def part(inner: str, value: Any) -> Any:
        if not isinstance(value, Kernel):
            return _described(inner, value, part)
        if id(value) in seen:
            return {"again": seen[id(value)]}
        described = _described(inner, value, part)
        seen[id(value)] = len(seen)
        return described

    description = {
        "root": part(name, kernel),
        "tensors": {path: tensor.detach().clone() for path, tensor in _tensors(kernel)},
        "fixed": [path for path, parameter in kernel.named_parameters() if not parameter.requires_grad],
        "training": kernel.training,
    }
    kind = type(kernel).__name__
    try:
        again = _Maker(torch.device("cpu")).kernel(description)
    except TypeError as error:
        raise NotRebuildableError(f"{name}: the constructors of a {kind} refuse it ({error})") from error
    here, there = (describe_module(each, "kernel") for each in (kernel, again))
    if differing := sorted(key for key in {*here, *there} if here.get(key) != there.get(key)):
        raise NotRebuildableError(f"{name}: {differing} of the {kind} are not what its constructor gives")
    if points is not None:
        with torch.no_grad():
            values = [gram(deepcopy(each).to(points), points, points) for each in (kernel, again)]
        if not torch.allclose(*values, rtol=1e-6, atol=0.0, equal_nan=True):
            raise NotRebuildableError(f"{name}: the {kind} made again has other values")
    return description


def _tensors(kernel: Kernel) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers, those of parts included, but for what constructors are given."""
    for path, module in kernel.named_modules():
        given = _parameters(type(module)) if isinstance(module, Kernel) else ()
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in given:
                yield f"{path}.{name}" if path else name, tensor


def rebuild(description: Any, device: torch.device | str = "cpu") -> Any:
    """Return the value that was described, its tensors on a device.

    Nothing is made but values of the classes listed here, and kernels have no more numbers than were saved, and few.

    Raises:
        InputError, KeyError, TypeError, ValueError, AttributeError, RuntimeError: if ``describe`` did not make the
            description; other errors of constructors that are given something odd.
    """
    return _Maker(torch.device(device)).value(description)


class _Maker:
    """Makes values from descriptions.

    Args:
        device: of their tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._kernels = list[Kernel]()
        self._room = _SPARE

    def value(self, description: Any) -> Any:
        """Return the value that was described."""
        if isinstance(description, Tensor):
            return description.to(self.device)
        if not isinstance(description, dict):
            return description
        if "kernel" in description:
            return self.kernel(description["kernel"]).to(self.device)
        if "again" in description:
            return self._kernels[description["again"]]
        if "dtype" in description:
            return _DTYPES[description["dtype"]]
        if "list" in description:
            return [self.value(part) for part in description["list"]]
        if "tuple" in description:
            return tuple(self.value(part) for part in description["tuple"])
        if "dict" in description:
            return {key: self.value(part) for key, part in description["dict"].items()}
        kind = _KINDS[description["is"]]
        words = {word: self.value(part) for word, part in description["words"].items()}
        if issubclass(kind, Kernel):
            return self._structure(kind, words)
        if issubclass(kind, constraints.Interval) and "transform" in words:
            words["transform"], words["inv_transform"] = _TRANSFORMS[words["transform"]]
        return kind(**words)

    def kernel(self, description: dict[str, Any]) -> Kernel:
        """Return a kernel with the numbers that were saved, on the CPU unless its tensors are elsewhere."""
        self._kernels, tensors = [], description["tensors"]
        self._room += sum(tensor.numel() for tensor in tensors.values())
        kernel = cast(Kernel, self.value(description["root"]))
        if {name for name, _ in _tensors(kernel)} != set(tensors):
            raise NotRebuildableError(f"the {type(kernel).__name__} made again has other parameters")
        for path, module in kernel.named_modules():
            prefix = f"{path}." if path else ""
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    parameter.data = tensors[prefix + name].clone()
                    parameter.requires_grad_(prefix + name not in description["fixed"])
            for name, buffer in module._buffers.items():
                if buffer is not None and prefix + name in tensors:
                    module._buffers[name] = tensors[prefix + name].clone()
        return kernel.train(description["training"])

    def _structure(self, kind: type[Kernel], words: dict[str, Any]) -> Kernel:
        """Return a kernel of parts; its numbers are set afterwards."""
        sizes = [size for size in (*words.values(), *words.get("batch_shape", ())) if isinstance(size, int)]
        self._room -= math.prod(max(1, abs(size)) for size in sizes)
        if self._room < 0 or words.get("depth", 1) > _MOST_LAYERS:
            raise InputError(f"a kernel is to have more numbers or layers than there are: {checks.shown(sizes)}.")
        if "batch_shape" in words:
            words["batch_shape"] = torch.Size(words["batch_shape"])
        self._kernels.append(kind(*words.pop("kernels", ()), **words))
        return self._kernels[-1]
