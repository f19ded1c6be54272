"""Dense float64 formulas in NumPy. They share no code with the package: that is their whole point."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DenseKernel = Callable[[Array, Array], Array]


class Marginals(NamedTuple):
    mean: Array
    variance: Array
    covariance: Array


def squared_distances(A: Array, B: Array) -> Array:
    return ((A[:, None, :] - B[None, :, :]) ** 2).sum(-1)


def rbf(lengthscale: float, outputscale: float = 1.0) -> DenseKernel:
    return lambda A, B: outputscale * np.exp(-squared_distances(A, B) / (2.0 * lengthscale**2))


def matern52(lengthscale: float, outputscale: float = 1.0) -> DenseKernel:
    def kernel(A: Array, B: Array) -> Array:
        r = np.sqrt(5.0 * squared_distances(A, B)) / lengthscale
        return outputscale * (1.0 + r + r**2 / 3.0) * np.exp(-r)

    return kernel


def linear(variance: float) -> DenseKernel:
    return lambda A, B: variance * A @ B.T


def exact(kernel: DenseKernel, X: Array, y: Array, noise: Array, T: Array) -> Marginals:
    """Exact GP posterior at T with noise variances ``noise`` (n,)."""
    gram = kernel(X, X) + np.diag(noise)
    cross = kernel(X, T)
    covariance = kernel(T, T) - cross.T @ np.linalg.solve(gram, cross)
    return Marginals(cross.T @ np.linalg.solve(gram, y), np.diag(covariance), covariance)


def dtc(kernel: DenseKernel, X: Array, y: Array, noise: Array, Z: Array, T: Array) -> Marginals:
    """DTC posterior in the Λ form of Zenati et al., Prop. 4.2, with noise variances of their own."""
    K_ZZ, K_ZX, K_ZT = kernel(Z, Z), kernel(Z, X), kernel(Z, T)
    precision = K_ZX / noise @ K_ZX.T + K_ZZ
    mean = K_ZT.T @ np.linalg.solve(precision, K_ZX @ (y / noise))
    covariance = kernel(T, T) + K_ZT.T @ (np.linalg.solve(precision, K_ZT) - np.linalg.solve(K_ZZ, K_ZT))
    return Marginals(mean, np.diag(covariance), covariance)


def dtc_information_gain(kernel: DenseKernel, X: Array, noise: Array, Z: Array) -> float:
    """½ log det(I + Σ^-½ Q Σ^-½)."""
    K_ZX = kernel(Z, X)
    nystrom = K_ZX.T @ np.linalg.solve(kernel(Z, Z), K_ZX)
    scaled = nystrom / np.sqrt(noise[:, None] * noise[None, :])
    return 0.5 * float(np.linalg.slogdet(np.eye(len(X)) + scaled)[1])


def collapsed_bound(kernel: DenseKernel, X: Array, y: Array, noise: float, Z: Array) -> float:
    """Titsias 2009, Eq. 9: log N(y | 0, Q + σ²I) − tr(K − Q) / 2σ²."""
    K_ZX = kernel(Z, X)
    nystrom = K_ZX.T @ np.linalg.solve(kernel(Z, Z), K_ZX)
    covariance = nystrom + noise * np.eye(len(X))
    quadratic = y @ np.linalg.solve(covariance, y)
    log_density = -0.5 * (quadratic + np.linalg.slogdet(covariance)[1] + len(X) * np.log(2.0 * np.pi))
    return float(log_density - np.trace(kernel(X, X) - nystrom) / (2.0 * noise))
