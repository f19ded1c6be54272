"""Proposition 4.2 of Zenati et al. densely in extended precision, which keeps what nearly equal points take away.

Like ``oracles`` it shares no code with the package. NumPy has no linear algebra in extended precision, hence the loops.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from oracles import DenseKernel, rounding

Extended = NDArray[np.longdouble]


class Dense(NamedTuple):
    """The posterior at some points, and what confidence widths read of it."""

    mean: Extended
    variance: Extended
    covariance: Extended
    effective_dimension: float
    information_gain: float
    mean_norm: float
    rounding: float  # what float64 may lose


def cholesky(matrix: Extended) -> Extended:
    factor = np.zeros_like(matrix)
    for k in range(len(matrix)):
        factor[k, k] = np.sqrt(matrix[k, k] - factor[k, :k] @ factor[k, :k])
        factor[k + 1 :, k] = (matrix[k + 1 :, k] - factor[k + 1 :, :k] @ factor[k, :k]) / factor[k, k]
    return factor


def solve(factor: Extended, columns: Extended) -> Extended:
    """L⁻¹ times columns."""
    solved = np.zeros_like(columns)
    for k in range(len(factor)):
        solved[k] = (columns[k] - factor[k, :k] @ solved[:k]) / factor[k, k]
    return solved


def dtc(kernel: DenseKernel, X, y, noise: float, Z, T) -> Dense:
    """Λ = (K_ZS K_SZ + λ K_ZZ)⁻¹ = L⁻ᵀ V⁻¹ L⁻¹ with K_ZZ = L Lᵀ and V = L⁻¹ K_ZS K_SZ L⁻ᵀ + λI.

    So μ̃ = k_Zᵀ Λ K_ZS y and σ̃² = k + k_Zᵀ (λΛ − K_ZZ⁻¹) k_Z are sums of squares in L⁻¹ k_Z and V^-½ L⁻¹ k_Z.
    """
    X, y, Z, T = (part.astype(np.longdouble) for part in (X, y, Z, T))
    factor = cholesky(kernel(Z, Z))
    played, at = solve(factor, kernel(Z, X)), solve(factor, kernel(Z, T))
    precision = cholesky(played @ played.T + noise * np.eye(len(Z), dtype=np.longdouble))
    moment = solve(precision, played @ y)
    whitened, known = solve(precision, at), solve(precision, played)
    covariance = kernel(T, T) - at.T @ at + noise * whitened.T @ whitened
    prior = np.concatenate([np.diag(kernel(block, block)) for block in np.array_split(X, 1 + len(X) // 100)])
    scores = (prior - (played**2).sum(0)) / noise + (known**2).sum(0)
    gain = np.log(np.diag(precision)).sum() - 0.5 * len(Z) * np.log(noise)
    condition = float(np.linalg.cond(factor.astype(float)) * np.linalg.cond(precision.astype(float)))
    scale = max(float(np.diag(kernel(T, T)).max()), float(np.abs(y).max()))
    weights = np.zeros_like(moment)
    for k in reversed(range(len(weights))):
        weights[k] = (moment[k] - precision[k + 1 :, k] @ weights[k + 1 :]) / precision[k, k]
    return Dense(
        whitened.T @ moment, np.diag(covariance), covariance, float(scores.sum()), float(gain),
        float(np.sqrt((weights**2).sum())), rounding(len(X) + len(Z), condition, scale),
    )  # fmt: skip
