"""What the options of problems stand for: words, sizes that fit into memory, kernels by name and norms under them."""

import math
from collections.abc import Iterable
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


def choice(name: str, value: Any, valid: Iterable[str | bool | None]) -> Any:
    """Return ``value`` if it is one of the valid ones; the error has the nearest."""
    known = list(valid)
    if not any(value is each or (isinstance(value, str) and value == each) for each in known):
        listed, came = ", ".join(map(repr, known)), checks.shown(value)
        raise InputError(f"{name} must be one of {listed}; got {came}{nearest(value, known)}.")
    return value


def nearest(value: Any, known: Iterable[Any]) -> str:
    """Return " (did you mean …?)", or nothing if no known name is near."""
    near = checks.nearest_name(value, known) if isinstance(value, str) else None
    return f" (did you mean {near!r}?)" if near else ""


def check_size(what: str, *counts: int) -> None:
    """Refuse a problem with more numbers in one tensor than 2 GB hold: the product of the counts, named in words."""
    if math.prod(counts) > _MOST_NUMBERS:
        raise InputError(
            f"{what} must be at most {_MOST_NUMBERS:,}, the numbers that fit into 2 GB; got "
            f"{' × '.join(map(checks.shown, counts))}: give fewer."
        )


def stationary_kernel(name: str, lengthscale: float | list[float], outputscale: float = 1.0) -> Kernel:
    """Return a kernel in double precision.

    Args:
        name: "rbf" (squared exponential, exp(−r² / 2ℓ²)), "matern-0.5", "matern-1.5" or "matern-2.5".
        lengthscale: ℓ > 0, in units of the inputs; or a list with one for each input.
        outputscale: k(x, x) > 0, in reward units squared.
    """
    smoothness = _SMOOTHNESS[choice("kernel", name, _SMOOTHNESS)]
    is_list = isinstance(lengthscale, list)
    lengths = [checks.positive("lengthscale", each) for each in (lengthscale if is_list else [lengthscale])]
    d = len(lengths) if is_list else None
    base = RBFKernel(ard_num_dims=d) if smoothness is None else MaternKernel(nu=smoothness, ard_num_dims=d)
    kernel = base.double()
    # A tensor: GPyTorch rounds Python numbers to single precision.
    kernel.lengthscale = torch.tensor(lengths, dtype=torch.float64)
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
