"""The covariances that problems are drawn from, and norms under them."""

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.options import choice
from torch_kbandits.numerics.linalg import jittered_cholesky

_SMOOTHNESS = {"rbf": None, "matern-0.5": 0.5, "matern-1.5": 1.5, "matern-2.5": 2.5}


def stationary_kernel(name: str, lengthscale: float, outputscale: float = 1.0) -> Kernel:
    """Return a kernel in double precision.

    Args:
        name: "rbf" (squared exponential, exp(−r² / 2ℓ²)), "matern-0.5", "matern-1.5" or "matern-2.5".
        lengthscale: ℓ > 0, in units of the inputs.
        outputscale: k(x, x) > 0, in reward units squared.
    """
    length = torch.tensor(checks.positive("lengthscale", lengthscale), dtype=torch.float64)
    return anisotropic_kernel(name, length, outputscale)


def anisotropic_kernel(name: str, lengthscale: Tensor, outputscale: float = 1.0) -> Kernel:
    """Return a kernel as ``stationary_kernel`` does, of one length above 0 or of one for each input, (d,)."""
    choice("kernel", name, _SMOOTHNESS)
    smoothness, d = _SMOOTHNESS[name], lengthscale.numel() if lengthscale.dim() else None
    base = RBFKernel(ard_num_dims=d) if smoothness is None else MaternKernel(nu=smoothness, ard_num_dims=d)
    kernel = base.double()
    kernel.lengthscale = lengthscale  # a tensor: GPyTorch rounds Python numbers to single precision
    if outputscale == 1.0:
        return kernel
    scaled = ScaleKernel(kernel).double()
    scaled.outputscale = torch.tensor(checks.positive("outputscale", outputscale), dtype=torch.float64)
    return scaled


def norm_of_values(covariance: Tensor, values: Tensor, norm: str | None) -> float | None:
    """Return a norm of the function with ``values`` (A,) at points of Gram matrix ``covariance`` (A, A).

    "rkhs" is √(fᵀK⁻¹f): the RKHS norm of the smoothest function through the values, which is the norm of f itself if f
    is a combination of the kernels at these points and a lower bound otherwise. Where K is singular to rounding, the
    least jitter that lets it be factorised is added; then directions below it count as that jitter, and values that
    the kernel does not explain give norms that say more about the jitter than about the function.
    "printed" is √(fᵀKf), as paper 002 §6 prints it: not a norm of f in the RKHS. None gives None.

    Cost: O(A³).
    """
    choice("norm", norm, ("rkhs", "printed", None))
    if norm is None:
        return None
    if norm == "printed":
        return _root(values @ covariance @ values)
    factor = jittered_cholesky(covariance)
    return float(torch.linalg.solve_triangular(factor, values.unsqueeze(-1), upper=False).norm())


def norm_of_weights(covariance: Tensor, weights: Tensor, norm: str | None) -> float | None:
    """Return a norm of f = Kα from α = ``weights`` (A,): "rkhs" is √(αᵀKα), exact; the others as above."""
    if norm == "rkhs":
        return _root(weights @ covariance @ weights)
    return norm_of_values(covariance, covariance @ weights, norm)


def _root(squared: Tensor) -> float:
    return float(squared.clamp_min(0.0).sqrt())  # rounding may turn the form of a singular matrix negative
