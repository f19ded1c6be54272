"""What most benchmarks on arms take: a kernel, λ, a width, and BKB with them."""

import torch
from gpytorch.kernels import RBFKernel

from torch_kbandits.algorithms import BKB
from torch_kbandits.candidates import Arms
from torch_kbandits.dictionaries import Resampling

LENGTHSCALE = 0.5
REGULARIZATION = 0.01
BETA = 2.0
OVERSAMPLING = 3.0


def kernel(lengthscale: float = LENGTHSCALE, dtype: torch.dtype = torch.float64) -> RBFKernel:
    """Return the Gaussian kernel with a fixed length scale."""
    scale = torch.tensor(lengthscale, dtype=dtype)  # GPyTorch would round a Python float to single precision
    return RBFKernel().to(dtype).initialize(lengthscale=scale).requires_grad_(False)


def bkb(
    arms: torch.Tensor | Arms,
    seed: int,
    *,
    oversampling: float = OVERSAMPLING,
    resampling: Resampling = "fresh",
    max_dictionary: int | None = None,
) -> BKB:
    """Return BKB on arms (A, d)."""
    return BKB(
        candidates=arms,
        kernel=kernel(),
        regularization=REGULARIZATION,
        oversampling=oversampling,
        resampling=resampling,
        max_dictionary=max_dictionary,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )
