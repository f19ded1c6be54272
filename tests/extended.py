"""Proposition 4.2 of Zenati et al. densely in extended precision, which keeps what nearly equal points take away.

Like ``oracles`` it shares no code with the package. NumPy has no linear algebra in extended precision, hence the loops.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from oracles import DenseKernel

Extended = NDArray[np.longdouble]


class Dense(NamedTuple):
    """The posterior at some points."""

    mean: Extended
    variance: Extended
    covariance: Extended


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
    whitened = solve(precision, at)
    covariance = kernel(T, T) - at.T @ at + noise * whitened.T @ whitened
    return Dense(whitened.T @ solve(precision, played @ y), np.diag(covariance), covariance)
