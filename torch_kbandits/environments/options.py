"""Options of problems: names and the errors about them, sizes that fit into memory, kernels and norms under them."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
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


def unknown(where: str, kind: str, name: Any, valid: Iterable[str], own: str = "") -> InputError:
    """Return the error for a name, at a place such as "algorithms[0]", that is none of the valid ones of a kind.

    It says how something of one's own may be named where that is given.
    """
    known = sorted(valid)
    near = checks.nearest_name(name, known, cutoff=0.4) if isinstance(name, str) else None
    guess = f"did you mean {near!r}? " if near else ""
    listed = f"Known: {', '.join(known)}." if known else "None may be given."
    own = f" Your own is {own}." if own else ""
    return InputError(f"{where}: {checks.shown(name)} is no {kind}; {guess}{listed}{own}")


def pick(where: str, kind: str, name: Any, valid: Iterable[str], own: str = "") -> str:
    """Return ``name`` if it is one of the valid ones; the words are those of ``unknown``."""
    known = list(valid)
    if not isinstance(name, str) or name not in known:
        raise unknown(where, kind, name, known, own)
    return name


def check_keys(where: str, kind: str, value: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse keys of a table that are none of the valid ones; the first is named."""
    known = set(valid)
    for key in value:
        pick(where, kind, key, known)


def parameters(made_by: Callable[..., Any]) -> dict[str, Any]:
    """Return the words of a class or a function with their defaults, ``inspect.Parameter.empty`` without one."""
    words = inspect.signature(made_by).parameters.values()
    return {word.name: word.default for word in words if word.kind not in (word.VAR_KEYWORD, word.VAR_POSITIONAL)}


def check_options(where: str, what: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse options of something that are not known, given those with their defaults, and that one is missing."""
    check_keys(where, f"option of {what}", options, known)
    if missing := [key for key, default in known.items() if default is inspect.Parameter.empty and key not in options]:
        raise InputError(f"{where}: {what} needs {' and '.join(missing)}.")


def check_size(what: str, *counts: int) -> None:
    """Refuse a problem with more numbers in one tensor than 2 GB hold: the product of the counts, named in words."""
    if math.prod(counts) > _MOST_NUMBERS:
        raise InputError(
            f"{what} must be at most {_MOST_NUMBERS:,}, the numbers that fit into 2 GB; got "
            f"{' × '.join(map(checks.shown, counts))}: give fewer."
        )


def stationary_kernel(name: str, lengthscale: float, outputscale: float = 1.0) -> Kernel:
    """Return a kernel in double precision.

    Args:
        name: "rbf" (squared exponential, exp(−r² / 2ℓ²)), "matern-0.5", "matern-1.5" or "matern-2.5".
        lengthscale: ℓ > 0, in units of the inputs.
        outputscale: k(x, x) > 0, in reward units squared.
    """
    return anisotropic_kernel(name, checks.positive("lengthscale", lengthscale), outputscale)


def anisotropic_kernel(name: str, lengthscale: float | list[float], outputscale: float = 1.0) -> Kernel:
    """Return a kernel as ``stationary_kernel`` does, of one length above 0 or of one for each input."""
    smoothness = _SMOOTHNESS[pick("kernel", "kernel", name, _SMOOTHNESS)]
    d = len(lengthscale) if isinstance(lengthscale, list) else None
    base = RBFKernel(ard_num_dims=d) if smoothness is None else MaternKernel(nu=smoothness, ard_num_dims=d)
    kernel = base.double()
    # A tensor: GPyTorch rounds Python numbers to single precision.
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    if outputscale == 1.0:
        return kernel
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = torch.tensor(checks.positive("outputscale", outputscale), dtype=torch.float64)
    return scaled


def norm_of_values(covariance: Tensor, values: Tensor, norm: str | None) -> float | None:
    """Return a norm of the function with ``values`` (A,) at points of Gram matrix ``covariance`` (A, A).

    "rkhs" is √(fᵀK⁻¹f): the RKHS norm of the smoothest function through the values, which is the norm of f itself if f
    is a combination of the kernels at these points and a lower bound otherwise. Where K is singular to rounding, the
    least jitter that lets it be factorised is added; then values that the kernel does not explain give norms that say
    more about the jitter than about the function. "printed" is √(fᵀKf), as paper 002 §6 prints it: not a norm of f in
    the RKHS. None gives None. Cost: O(A³).
    """
    if norm is None:
        return None
    if norm == "printed":
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
