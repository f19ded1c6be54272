"""What bandits are made of as plain values, by which they are compared and made again: no class but those listed."""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import gpytorch
import torch
from botorch.models import kernels as botorch_kernels
from botorch.utils import constraints as botorch_constraints
from gpytorch import constraints, kernels, means, priors
from gpytorch.constraints.constraints import softplus
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

import torch_kbandits.kernels as own_kernels
from torch_kbandits import acquisition, confidence, dictionaries, memory, outcomes, spaces
from torch_kbandits import priors as own_priors
from torch_kbandits.bandit import adaptation, advice, batches
from torch_kbandits.candidates import Arms, ArmSource, Box, Configurations, ContextualActions, Timed, UnitCube
from torch_kbandits.candidates.arms import MappedFile
from torch_kbandits.errors import KernelBanditError
from torch_kbandits.observations import columns, ledger
from torch_kbandits.priors import families, runs

#: Tensors of more numbers are told apart by a fingerprint: nobody would read them.
_MOST_WRITTEN = 64
#: The setting of what is told from others by its name alone, such as a function.
_OPAQUE = ".is_opaque"


class NotRebuildableError(KernelBanditError, ValueError):
    """What a bandit is made of cannot be made again from plain values; the message says which part, as a clause."""


def _named(*words: str, **others: str) -> dict[str, str]:
    return {word: word for word in words} | others


#: Words of constructors, and of the attributes that hold them.
_ATTRIBUTES: dict[type, dict[str, str]] = {
    Arms: {"arms": "source", "names": "arm_names"},
    ArmSource: {"arms": "given", "dtype": "dtype"},
    MappedFile: _named("path", "dtype", "offset", "shape", "order"),
    Box: _named("bounds", "num_restarts", "raw_samples"),
    UnitCube: _named("dimension", "snap", "continuous", "neighbours"),
    Configurations: _named("space", "context_dim", "context_columns"),
    ContextualActions: _named("context_dim", "bounds", "action_dim", "num_restarts", "raw_samples")
    | _named("context_columns", "action_columns", actions="table", dtype="example.dtype"),
    Timed: {"candidates": "untimed"},
    priors.GammaPrior: _named("concentration", "rate"),
    priors.HalfCauchyPrior: _named("scale"),
    priors.HalfNormalPrior: _named("scale"),
    priors.LogNormalPrior: _named("loc", "scale"),
    priors.NormalPrior: _named("loc", "scale"),
    priors.UniformPrior: {"a": "low", "b": "high"},
}


def _kinds(is_one: Callable[[type], bool], *modules: ModuleType) -> dict[str, type]:
    """Return the classes in modules of which something holds, by name."""
    each = (kind for module in modules for kind in vars(module).values())
    return {kind.__name__: kind for kind in each if isinstance(kind, type) and is_one(kind)}


#: Kernels, means and constraints, each made again by its attributes: no constructor makes more numbers than were saved.
_MODULES = _kinds(
    lambda kind: issubclass(kind, torch.nn.Module),
    *(kernels, own_kernels, botorch_kernels, means, runs, constraints, botorch_constraints),
) | {"ModuleList": torch.nn.ModuleList}
#: The rest by constructors, which check their words: the dataclasses of this package by their fields.
_KINDS: dict[str, type] = (
    _kinds(dataclasses.is_dataclass, acquisition, adaptation, advice, batches, columns, confidence, dictionaries)
    | _kinds(dataclasses.is_dataclass, families, ledger, memory, outcomes, own_priors, spaces)
    | {kind.__name__: kind for kind in _ATTRIBUTES}
    | _MODULES
    | {"Parameter": torch.nn.Parameter}
)
_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple": tuple, "Size": torch.Size}
_CONSTANTS: dict[str, Any] = {str(dtype): dtype for dtype in (torch.float64, torch.float32)} | {
    function.__name__: function for function in (torch.sigmoid, torch.exp, torch.log, inv_sigmoid, inv_softplus)
}
#: What every module has for itself.
_OF_MODULES = frozenset(vars(gpytorch.Module()))


def describe(value: Any, seen: dict[int, int] | None = None) -> Any:
    """Return a value as tensors, numbers, strings, and lists and dictionaries of these, of which ``rebuild`` makes it.

    What it cannot make again is described as far as that tells it from others. Seen are modules described before.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.nn.Parameter):
        return {"is": "Parameter", "of": {"data": value.detach(), "requires_grad": value.requires_grad}}
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Path):
        return str(value)
    kind = type(value)
    if kind is torch.nn.Softplus:  # a copied kernel has a copy of GPyTorch's
        return {"is": "constant", "of": "softplus"}
    for name, known in _CONSTANTS.items():
        if value is known:
            return {"is": "constant", "of": name}
    if isinstance(value, torch.nn.Module) and kind not in _ATTRIBUTES:
        return _of_module(value, {} if seen is None else seen)
    if isinstance(value, (list, tuple)):
        name = kind.__name__ if kind.__name__ in _COLLECTIONS else "tuple"
        return {"is": name, "of": [describe(part, seen) for part in value]}
    name, is_known = getattr(value, "__qualname__", kind.__name__), _KINDS.get(kind.__name__) is kind
    words: Mapping[str, Any] = {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        name, is_known, words = "dict", True, value
    elif kind in _ATTRIBUTES:
        words = {word: attrgetter(path)(value) for word, path in _ATTRIBUTES[kind].items()}
        is_known = getattr(value, "_transform", None) is None  # that of a prior is a function
    elif dataclasses.is_dataclass(kind):
        words = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind) if field.init}
    described = {word: describe(part, seen) for word, part in words.items()}
    tensors = {"tensors": dict(value._buffers)} if isinstance(value, priors.Prior) else {}  # casts do not reach words
    return {"is" if is_known else "other": name, "of": described, **tensors}


def _of_module(module: torch.nn.Module, seen: dict[int, int]) -> dict[str, Any]:
    """Return a kernel, mean or constraint by its attributes, of which the tensors and parts are some."""
    if id(module) in seen:
        return {"is": "again", "of": seen[id(module)]}
    kind, own = type(module), {name: value for name, value in vars(module).items() if name not in _OF_MODULES}
    is_known = _KINDS.get(kind.__name__) is kind and not (module._forward_hooks or module._forward_pre_hooks)
    for name, (_, closure, _) in getattr(module, "_priors", {}).items():
        of = getattr(module, name.removesuffix("_prior"), None)
        is_known = is_known and isinstance(of, Tensor) and torch.equal(closure(module), of)
    words = own | module._parameters | module._buffers | module._modules
    described = {word: describe(part, seen) for word, part in words.items()}
    seen[id(module)] = len(seen)
    known = {"is" if is_known else "other": kind.__name__, "of": described}
    return known | {"buffers": [*module._buffers], "training": module.training}


def rebuild(
    name: str, description: Any, device: torch.device | str = "cpu", made: list[torch.nn.Module] | None = None
) -> Any:
    """Return the value that was described, its tensors on a device; its name is for the message of an error.

    Nothing is made but values of the classes listed here, and no more numbers than were saved; made are modules so far.

    Raises:
        NotRebuildableError: if it, or a part of it, is of another class.
        InputError, KeyError, TypeError, ValueError, AttributeError, RuntimeError: if it is no description.
    """
    if isinstance(description, Tensor):
        return description.to(device)
    if not isinstance(description, dict):
        return description
    if "other" in description:
        raise NotRebuildableError(f"{name}: {description['other']} is not known to it")
    word, inner = description["is"], description["of"]
    if word == "constant":
        return softplus if inner == "softplus" else _CONSTANTS[inner]
    if word == "again":
        return cast(list[Any], made)[inner]
    if word in _COLLECTIONS:
        parts = enumerate(inner)
        return _COLLECTIONS[word]([rebuild(f"{name}[{place}]", part, device, made) for place, part in parts])
    made = [] if made is None and word in _MODULES else made
    words = {key: rebuild(f"{name}.{key}", part, device, made) for key, part in inner.items()}
    if word == "dict":
        return words
    kind: Any = _KINDS[word]
    if word not in _MODULES:
        value = kind(**words)
        for key, tensor in description.get("tensors", {}).items():
            value._buffers[key] = tensor.to(device)
        return value
    module = kind.__new__(kind)
    (gpytorch.Module if issubclass(kind, gpytorch.Module) else torch.nn.Module).__init__(module)
    for key, value in words.items():
        if key in description["buffers"]:
            module.register_buffer(key, value)
        else:
            setattr(module, key, value)
        if isinstance(value, constraints.Interval):
            module._constraints[key] = value
        if isinstance(value, priors.Prior):
            of = key.removesuffix("_prior")
            module._priors[key] = value, attrgetter(of), partial(_initialize, of)
    module.training = description["training"]
    cast(list[Any], made).append(module)
    return module


def _initialize(name: str, module: gpytorch.Module, value: Tensor | float) -> None:
    module.initialize(**{name: value})


def settings_of(name: str, value: Any) -> dict[str, Any]:
    """Return what tells a value from others: the numbers and strings in it by name, large tensors by fingerprints."""
    return _settings(name, describe(value))


def _settings(name: str, described: Any) -> dict[str, Any]:
    if isinstance(described, Tensor):
        numbers = described.cpu().contiguous()
        if numbers.numel() <= _MOST_WRITTEN:
            return {name: str(numbers.tolist())}
        digest = hashlib.sha256(numbers.numpy().tobytes()).hexdigest()
        return {name: f"{tuple(numbers.shape)} numbers, {numbers.dtype}, sha256 {digest[:32]}"}
    if not isinstance(described, dict):
        is_itself = described == described and not isinstance(described, bool)  # NaN is not, and True is 1
        return {name: described if is_itself else repr(described)}
    inner, settings = described["of"], {name: described.get("is", described.get("other"))}
    if "other" in described and not inner:
        settings[f"{name}{_OPAQUE}"] = True
    parts = inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
    for key, part in parts:
        settings |= _settings(f"{name}.{key}", part)
    return settings


def are_same(left: Any, right: Any) -> bool:
    """Say whether two values are known to be the same: of the same parts, with the same numbers, and no others."""
    ours, theirs = settings_of("", left), settings_of("", right)
    return type(left) is type(right) and ours == theirs and not any(name.endswith(_OPAQUE) for name in ours)
