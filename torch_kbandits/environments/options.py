"""Options of problems: names and the errors about them, sizes that fit into memory, kernels and norms under them."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.linalg import jittered_cholesky

#: Numbers in double precision that 2 GB hold.
_MOST_NUMBERS = 2**28
_SMOOTHNESS = {"rbf": None, "matern-0.5": 0.5, "matern-1.5": 1.5, "matern-2.5": 2.5}
#: Which norm of the means ``norm_bound`` is: see ``norm_of_values``.
NORMS = ("rkhs", "printed")


def pick(where: str, kind: str, name: Any, valid: Iterable[str], own: str = "") -> str:
    """Return a name, found at a place such as "algorithms[0]", if it is one of the valid ones of a kind.

    The error has the nearest of them, and says how something of one's own is named where ``own`` does.
    """
    known = sorted(valid)
    if isinstance(name, str) and name in known:
        return name
    near = checks.nearest_name(name, known, cutoff=0.4) if isinstance(name, str) else None
    guess = f"did you mean {near!r}? " if near else ""
    listed = f"Known: {', '.join(known)}." if known else "None may be given."
    raise InputError(f"{where}: {checks.shown(name)} is no {kind}; {guess}{listed}{own and f' Your own is {own}.'}")


def parameters(made_by: Callable[..., Any]) -> dict[str, Any]:
    """Return the words of a class or a function with their defaults, ``inspect.Parameter.empty`` without one."""
    words = inspect.signature(made_by).parameters.values()
    return {word.name: word.default for word in words if word.kind not in (word.VAR_KEYWORD, word.VAR_POSITIONAL)}


def check_options(where: str, kind: str, options: Mapping[str, Any], known: Iterable[str] | Mapping[str, Any]) -> None:
    """Refuse options of a kind ("option of bump") that are not known, and where defaults are given, missing ones."""
    for key in options:
        pick(where, kind, key, known)
    defaults = known if isinstance(known, Mapping) else {}
    if missing := [key for key, value in defaults.items() if value is inspect.Parameter.empty and key not in options]:
        raise InputError(f"{where}: {kind.removeprefix('option of ')} needs {' and '.join(missing)}.")


def check_size(what: str, *counts: int) -> None:
    """Refuse a problem with more numbers in one tensor than 2 GB hold: the product of the counts, named in words."""
    if math.prod(counts) > _MOST_NUMBERS:
        got = " × ".join(map(checks.shown, counts))
        raise InputError(f"{what} must be at most {_MOST_NUMBERS:,}, the numbers that fit into 2 GB; got {got}.")


def stationary_kernel(
    name: str, lengthscale: float | Sequence[float], outputscale: float = 1.0, where: str = ""
) -> Kernel:
    """Return a kernel in double precision.

    Args:
        name: "rbf" (squared exponential, exp(−r² / 2ℓ²)), "matern-0.5", "matern-1.5" or "matern-2.5".
        lengthscale: ℓ > 0, in units of the inputs; several, one for each input.
        outputscale: k(x, x) > 0, in reward units squared.
        where: before the names of options in messages.
    """
    smoothness = _SMOOTHNESS[pick("kernel", "kernel", name, _SMOOTHNESS)]
    several = isinstance(lengthscale, list | tuple)
    if several and not lengthscale:
        raise InputError(f"{where}lengthscale must be a number or a list with one for each input, got an empty list.")
    lengths = [checks.positive(f"{where}lengthscale", each) for each in (lengthscale if several else [lengthscale])]
    d = len(lengths) if several else None
    kernel = (RBFKernel(ard_num_dims=d) if smoothness is None else MaternKernel(smoothness, ard_num_dims=d)).double()
    # Tensors: GPyTorch rounds Python numbers to single precision.
    kernel.lengthscale = torch.tensor(lengths, dtype=torch.float64)
    if outputscale == 1.0:
        return kernel
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = torch.tensor(checks.positive("outputscale", outputscale), dtype=torch.float64)
    return scaled


def norm_of_values(covariance: Tensor, values: Tensor, norm: str) -> float:
    """Return a norm of the function with ``values`` (A,) at points of Gram matrix ``covariance`` (A, A).

    "rkhs" is √(fᵀK⁻¹f): the RKHS norm of the smoothest function through the values, a lower bound of that of f unless f
    is a combination of the kernels at these points. Where K is singular to rounding, the least jitter that lets it be
    factorised is added. "printed" is √(fᵀKf), as paper 002 §6 prints it: not a norm of f in the RKHS. Cost: O(A³).
    """
    if pick("norm", "norm", norm, NORMS) == "printed":
        return root_of(values @ covariance @ values)
    factor = jittered_cholesky(covariance)
    return float(torch.linalg.solve_triangular(factor, values.unsqueeze(-1), upper=False).norm())


def root_of(squared: Tensor) -> float:
    """Return the root of a quadratic form, which rounding may have made negative."""
    return float(squared.clamp_min(0.0).sqrt())


def noise_variance(noise_scale: float) -> float | None:
    """Return λ = R², or None without noise."""
    is_noisy = checks.non_negative("noise_scale", noise_scale) > 0.0
    return checks.scale("noise_scale", noise_scale) ** 2 if is_noisy else None
