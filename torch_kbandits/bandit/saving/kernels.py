"""Kernels as plain values, and made again from them: their classes, settings, numbers, constraints and priors."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, cast

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from gpytorch.utils.transforms import inv_softplus
from torch import Tensor

from torch_kbandits.bandit.saving.recipes import CONSTRAINTS, PRIORS, RECIPES, TRANSFORMED, TRANSFORMS
from torch_kbandits.bandit.saving.refusal import NotRebuildableError
from torch_kbandits.bandit.state import describe_kernel
from torch_kbandits.numerics.gram import gram


def describe(kernel: Kernel, points: Tensor | None = None) -> dict[str, Any]:
    """Return a kernel as plain values and tensors, its own, of which ``rebuild`` makes an equal one.

    Args:
        kernel: of GPyTorch's own classes, BoTorch's or this package's, nested in any way.
        points: (n, d), at which the values of the one made again are compared with its; None where nobody knows yet
            how many columns points have, then its parts, settings and numbers alone are.

    Raises:
        NotRebuildableError: if it has a part of another class, or the one made again is another kernel.

    Cost: that of the kernel at the points.
    """
    description = {
        "root": _part(kernel, {}),
        "tensors": {name: tensor.detach() for name, tensor in _tensors(kernel)},
        "fixed": [name for name, parameter in kernel.named_parameters() if not parameter.requires_grad],
        "training": kernel.training,
    }
    again = rebuild(description)
    here, there = describe_kernel(kernel), describe_kernel(again)
    differing = sorted(key for key in {*here, *there} if here.get(key) != there.get(key))
    if differing:
        raise NotRebuildableError(f"{differing} of the {type(kernel).__name__} are not what its constructor gives")
    if points is not None:
        with torch.no_grad():
            values = [gram(deepcopy(each).to(points), points, points) for each in (kernel, again)]
        if not torch.allclose(*values, rtol=1e-6, atol=0.0, equal_nan=True):
            raise NotRebuildableError(f"the {type(kernel).__name__} made again has other values")
    return description


def rebuild(description: dict[str, Any]) -> Kernel:
    """Return the kernel that was described.

    Raises:
        NotRebuildableError: if what it is made of does not fit together.
    """
    kernel = _made(description["root"], {})
    tensors = description["tensors"]
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


def _tensors(kernel: Kernel) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers, those of parts included, but for what constructors are given."""
    for path, module in kernel.named_modules():
        recipe = RECIPES.get(type(module).__name__)
        given = () if recipe is None else recipe.settings
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and name not in given:
                yield f"{path}.{name}" if path else name, tensor


def _number(module: torch.nn.Module, seen: dict[int, int]) -> int:
    """Return the number of a module: the same one where it is a part of several others."""
    return seen.setdefault(id(module), len(seen))


def _part(kernel: Kernel, seen: dict[int, int]) -> dict[str, Any]:
    """Return the class and the constructor's words of a kernel, without its numbers."""
    name, known = type(kernel).__name__, id(kernel) in seen
    number = _number(kernel, seen)
    if known:
        return {"number": number}
    recipe = RECIPES.get(name)
    if recipe is None or type(kernel) is not recipe.kind:
        raise NotRebuildableError(f"kernels of the class {name} are not known to it")
    words: dict[str, Any] = {word: getattr(kernel, word) for word in recipe.settings}
    if recipe.is_common:
        words |= _common(kernel)
    return {
        "number": number,
        "kernel": name,
        "words": words,
        "parts": [_children(getattr(kernel, part), seen) for part in recipe.parts],
        "constraints": {
            key.removeprefix("raw_"): _constraint(constraint, seen) for key, constraint in kernel._constraints.items()
        },
        "priors": {key: _prior(prior) for key, (prior, *_) in kernel._priors.items()},
    }


def _children(part: Any, seen: dict[int, int]) -> Any:
    return _part(part, seen) if isinstance(part, Kernel) else [_part(each, seen) for each in part]


def _common(kernel: Kernel) -> dict[str, Any]:
    """Return what every kernel may be given."""
    words: dict[str, Any] = {}
    if kernel.ard_num_dims is not None:
        words["ard_num_dims"] = kernel.ard_num_dims
    columns = cast(Tensor | None, kernel.active_dims)
    if columns is not None:
        words["active_dims"] = tuple(columns.tolist())
    own_shape = getattr(kernel, "_batch_shape", torch.Size())
    if len(own_shape):
        words["batch_shape"] = tuple(own_shape)
    return words


def _constraint(constraint: Interval, seen: dict[int, int]) -> dict[str, Any]:
    name = type(constraint).__name__
    if name not in CONSTRAINTS or type(constraint) is not CONSTRAINTS[name][0]:
        raise NotRebuildableError(f"constraints of the class {name} are not known to it")
    bounds = {word: getattr(constraint, word).clone() for word in CONSTRAINTS[name][1]}
    return {"constraint": name, "bounds": bounds, "transform": _transform(constraint, seen)}


def _transform(constraint: Interval, seen: dict[int, int]) -> str | int | None:
    """Return the name of a constraint's transform, the number of a softplus, or None where its class decides."""
    if isinstance(constraint, TRANSFORMED):
        return None
    forward, backward = constraint._transform, constraint._inv_transform
    if forward is None:
        return "none"
    if repr(forward) == repr(torch.nn.Softplus()) and backward is inv_softplus:
        return _number(forward, seen)
    for name, known in TRANSFORMS.items():
        if (forward, backward) == known:
            return name
    raise NotRebuildableError("a constraint has a transform of its own")


def _prior(prior: Prior) -> dict[str, Any]:
    name = type(prior).__name__
    if name not in PRIORS or type(prior) is not PRIORS[name][0] or getattr(prior, "_transform", None) is not None:
        raise NotRebuildableError(f"priors of the class {name}, or with a transform, are not known to it")
    return {"prior": name, "words": {word: getattr(prior, own).clone() for word, own in PRIORS[name][1].items()}}


def _made(part: dict[str, Any], made: dict[int, torch.nn.Module]) -> Kernel:
    """Return a kernel with the structure that was described; its numbers are set afterwards."""
    if "kernel" not in part:
        return cast(Kernel, made[part["number"]])
    recipe = RECIPES[part["kernel"]]
    words: dict[str, Any] = dict(part["words"])
    if "batch_shape" in words:
        words["batch_shape"] = torch.Size(words["batch_shape"])
    children = [
        _made(child, made) if isinstance(child, dict) else [_made(each, made) for each in child]
        for child in part["parts"]
    ]
    words |= dict(zip(recipe.parts, children, strict=True))
    words |= {key: _made_constraint(constraint, made) for key, constraint in part["constraints"].items()}
    words |= {key: _made_prior(prior) for key, prior in part["priors"].items()}
    try:
        kernel = recipe.kind(*words.pop("kernels", ()), **words)
    except TypeError as error:
        raise NotRebuildableError(f"the constructor of {part['kernel']} refuses it ({error})") from error
    made[part["number"]] = kernel
    return kernel


def _made_constraint(part: dict[str, Any], made: dict[int, torch.nn.Module]) -> Interval:
    kind, transform = CONSTRAINTS[part["constraint"]][0], part["transform"]
    if transform is None:
        return kind(**part["bounds"])
    if isinstance(transform, int):
        forward, backward = made.setdefault(transform, torch.nn.Softplus()), inv_softplus
    else:
        forward, backward = TRANSFORMS.get(transform, (None, None))
    return kind(**part["bounds"], transform=forward, inv_transform=backward)


def _made_prior(part: dict[str, Any]) -> Prior:
    kind, _ = PRIORS[part["prior"]]
    return kind(**part["words"])
