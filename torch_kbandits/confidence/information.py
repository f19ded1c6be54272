"""Information gain γ and effective dimension: how much a set of points can teach about the function."""

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky


@torch.no_grad()
def information_gain(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    """Return the realised information gain ½ log det(I + K/λ) of observing at X, in nats.

    Args:
        kernel: the prior covariance, in reward units squared.
        X: (n, d).
        regularization: λ > 0.

    Returns:
        0-dim.

    Cost: O(n³) time, O(n²) memory.
    """
    regularization = checks.positive("regularization", regularization)
    factor = jittered_cholesky(_regularized_gram(kernel, X, regularization) / regularization)
    return factor.diagonal().log().sum()


@torch.no_grad()
def effective_dimension(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    """Return the effective dimension Tr K(K + λI)⁻¹ of X, 0-dim, between 0 and n.

    Args:
        kernel: the prior covariance, in reward units squared.
        X: (n, d).
        regularization: λ > 0.

    Cost: O(n³) time, O(n²) memory.
    """
    regularization = checks.positive("regularization", regularization)
    factor = jittered_cholesky(_regularized_gram(kernel, X, regularization))
    return len(X) - regularization * torch.cholesky_inverse(factor).diagonal().sum()


@torch.no_grad()
def greedy_information_gain(kernel: Kernel, candidates: Tensor, n: int, regularization: float) -> Tensor:
    """Return the information gain of the n plays, with repetition, that greedily maximise it over a finite set.

    Information gain is submodular, so the maximum γ_n lies between the value returned and that value over 1 − 1/e.

    Source: Srinivas et al., ICML 2010, §4 (greedy rule and its guarantee).

    Args:
        kernel: the prior covariance, in reward units squared.
        candidates: (A, d), A >= 1.
        n: number of plays.
        regularization: λ > 0.

    Returns:
        (n,), the gain after 1, …, n plays; cumulative, non-decreasing.

    Cost: O(A n²) time, O(A n) memory.
    """
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    candidates = _listed("candidates", candidates)
    n = checks.size("n", n)
    noise = checks.positive("regularization", regularization)
    variance = prior_variance(kernel, candidates).clone()
    explained = variance.new_empty(n, len(candidates))
    gains = variance.new_empty(n)
    for k in range(n):
        best = variance.argmax()
        gains[k] = 0.5 * torch.log1p(variance[best] / noise)
        column = gram(kernel, candidates[best, None], candidates).squeeze(0) - explained[:k, best] @ explained[:k]
        explained[k] = column / (variance[best] + noise).sqrt()
        variance = (variance - explained[k].square()).clamp_min(0.0)
    return gains.cumsum(0)


def _regularized_gram(kernel: Kernel, X: Tensor, regularization: float) -> Tensor:
    checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
    X = _listed("X", X)
    return gram(kernel, X) + regularization * torch.eye(len(X), dtype=X.dtype, device=X.device)


def _listed(name: str, points: Any) -> Tensor:
    """Return points (n, d), n >= 1, as a tensor."""
    points = checks.points(name, points)
    if points.dim() != 2 or len(points) == 0:
        raise InputError(f"{name} must be (n, d) with n >= 1, got {checks.describe(points)}.")
    return points
