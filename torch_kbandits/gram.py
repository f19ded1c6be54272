"""The prior as plain tensors: the one place where GPyTorch's lazy kernels and mean functions are evaluated."""

from typing import cast

from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator.operators import to_dense
from torch import Tensor


def gram(kernel: Kernel, X: Tensor, other: Tensor | None = None) -> Tensor:
    """Return k(x, x') for the rows of X (..., n, d) against those of ``other`` (..., m, d), (..., n, m).

    Without ``other`` the rows of X stand against themselves. Cost: O(n m d) for most kernels.
    """
    return to_dense(cast(Tensor, kernel(X, other)))


def prior_variance(kernel: Kernel, X: Tensor) -> Tensor:
    """Return k(x, x) for the rows of X (..., n, d), (..., n)."""
    return to_dense(cast(Tensor, kernel(X, diag=True)))


def prior_mean(mean: Mean, X: Tensor) -> Tensor:
    """Return the prior mean at the rows of X (..., n, d), (..., n)."""
    return cast(Tensor, mean(X))
