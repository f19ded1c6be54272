"""The log density of rewards under a Gaussian prior and noise: exact, or bounded from below."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import jittered_cholesky


class _LogDensity(torch.autograd.Function):
    """log N(y | 0, C). With α = C⁻¹ y its gradient in C is ½ (α αᵀ − C⁻¹), for less than it costs through the factor.

    Cost: O(n³), once for value and gradient together.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, y: Tensor) -> Tensor:
        factor = jittered_cholesky(covariance)
        solved = torch.cholesky_solve(y.unsqueeze(-1), factor).squeeze(-1)
        ctx.save_for_backward(factor, solved)
        return -0.5 * (y @ solved + len(y) * math.log(2.0 * math.pi)) - factor.diagonal().log().sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        factor, solved = ctx.saved_tensors
        (gradient,) = gradients
        slope = 0.5 * (torch.outer(solved, solved) - torch.cholesky_inverse(factor))
        return gradient * slope, -gradient * solved


def log_density(covariance: Tensor, y: Tensor) -> Tensor:
    """Return log N(y | 0, C), 0-dim, for C (n, n) and y (n,), differentiable in both.

    Raises:
        NotPositiveDefiniteError: if C has a clearly negative eigenvalue.
        NumericalError: if C has NaN or infinite entries.

    Cost: O(n³).
    """
    return _LogDensity.apply(covariance, y)  # pyright: ignore[reportReturnType]


def collapsed_bound(dictionary_gram: Tensor, cross_gram: Tensor, variance: Tensor, noise: Tensor, y: Tensor) -> Tensor:
    """Return a lower bound of log N(y | 0, K + Σ), 0-dim: log N(y | 0, Q + Σ) − ½ tr Σ⁻¹(K − Q), Q = K_XZ K_ZZ⁻¹ K_ZX.

    Source: Titsias, AISTATS 2009, Eq. (9). Differs: each observation may have a noise variance of its own.

    Args:
        dictionary_gram: K_ZZ (m, m).
        cross_gram: K_ZX (m, n).
        variance: k(x, x) of the n points, (n,).
        noise: the diagonal of Σ, (n,).
        y: rewards less their mean, (n,).

    Raises:
        NotPositiveDefiniteError: if K_ZZ has a clearly negative eigenvalue.

    Cost: O(n m² + m³).
    """
    factor = jittered_cholesky(dictionary_gram)
    embedding = torch.linalg.solve_triangular(factor, cross_gram, upper=False)
    whitened = embedding / noise.sqrt()
    precision = torch.eye(len(factor), dtype=y.dtype, device=y.device) + whitened @ whitened.mT
    precision_factor = jittered_cholesky(precision)
    targets = y / noise.sqrt()
    explained = torch.linalg.solve_triangular(precision_factor, (whitened @ targets).unsqueeze(-1), upper=False)
    quadratic = targets.square().sum() - explained.square().sum()
    logarithms = noise.log().sum() + 2.0 * precision_factor.diagonal().log().sum() + len(y) * math.log(2.0 * math.pi)
    left = ((variance - embedding.square().sum(0)) / noise).sum()
    return -0.5 * (quadratic + logarithms + left)


class Merged(NamedTuple):
    """Rewards of which those at one point are one: their density is that of these, times a factor.

    Attributes:
        y: the mean reward of each point, weighed by 1 / λ_s, (u,).
        noise: its noise variance, (u,).
        constant: the logarithm of the factor, 0-dim.
    """

    y: Tensor
    noise: Tensor
    constant: Tensor


def merged(y: Tensor, noise: Tensor, places: Tensor, size: int) -> Merged:
    """Merge rewards y (n,) of noise variances (n,) at the points that ``places`` (n,) say, of which there are ``size``.

    Differentiable in the noise. Cost: O(n).
    """
    weights = 1.0 / noise
    total = weights.new_zeros(size).index_add(0, places, weights)
    mean = weights.new_zeros(size).index_add(0, places, weights * y) / total
    spread = (weights * (y - mean[places]).square()).sum() + (len(y) - size) * math.log(2.0 * math.pi)
    return Merged(mean, 1.0 / total, 0.5 * (weights.log().sum() - total.log().sum() - spread))
