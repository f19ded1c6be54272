"""Dense float64 formulas in NumPy. They share no code with the package: that is their whole point."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma, lognorm

Array = NDArray[np.float64]
DenseKernel = Callable[[Array, Array], Array]


class Marginals(NamedTuple):
    """A posterior, and what rounding may take from each of its numbers."""

    mean: Array
    variance: Array
    covariance: Array
    rounding: float

    def upper_rounding(self, beta: float) -> float:
        """What rounding may take from μ + βσ: where v is off by r, √v is off by at most r / √v, and by √r."""
        least = max(float(self.variance.min()), self.rounding)
        return self.rounding * (1.0 + beta / least**0.5)


def rounding(size: int, condition: float, scale: float = 1.0) -> float:
    """Return the tolerance of a result of this scale through factors of a matrix (size, size) of this condition.

    Factorisations and triangular solves are exact for a matrix that is off by some size·eps. Another processor, number
    of threads or order of operations rounds otherwise within this, so no law may assert less. The hundred is for
    low-rank changes one after another. What is seen is a tenth to a millionth of it, and a defect far more:
    ``laws/test_oracles.py`` shows it of a noise variance that is off by 1%.
    """
    return 100.0 * (size + 10) * float(np.finfo(float).eps) * condition * scale


def _scale(prior: Array, y: Array) -> float:
    return max(float(prior.max(initial=0.0)), float(np.abs(y).max(initial=0.0)))


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


def in_time(kernel: DenseKernel, rate: float) -> DenseKernel:
    """Return k(x, x') (1 − ε)^(|t − t'| / 2) at points (t, x), whose first column is the time."""
    return lambda A, B: kernel(A[:, 1:], B[:, 1:]) * (1.0 - rate) ** (0.5 * np.abs(A[:, :1] - B[:, 0]))


def exact(kernel: DenseKernel, X: Array, y: Array, noise: Array, T: Array) -> Marginals:
    """Exact GP posterior at T with noise variances ``noise`` (n,)."""
    gram, cross, prior = kernel(X, X), kernel(X, T), kernel(T, T)
    condition = 1.0 + float((np.diag(gram) / noise).sum())  # at least that of I + Σ^-½ K Σ^-½
    gram = gram + np.diag(noise)
    covariance = prior - cross.T @ np.linalg.solve(gram, cross)
    mean = cross.T @ np.linalg.solve(gram, y)
    return Marginals(mean, np.diag(covariance), covariance, rounding(len(X), condition, _scale(prior, y)))


def dtc(
    kernel: DenseKernel, X: Array, y: Array, noise: Array, Z: Array, T: Array, *, learns_residual: bool = False
) -> Marginals:
    """DTC posterior (Zenati et al., Prop. 4.2) with noise variances of their own, as least squares.

    With K_ZZ = L Lᵀ and A = L⁻¹ K_ZX Σ^-½ it is ridge regression on A. QR factorises (Aᵀ, I), where the paper's
    K_ZX Σ⁻¹ K_XZ + K_ZZ has squared it and L too. So this oracle loses far less than it allows others.
    """
    factor, prior = np.linalg.cholesky(kernel(Z, Z)), kernel(T, T)
    known, at = np.linalg.solve(factor, kernel(Z, X)) / np.sqrt(noise), np.linalg.solve(factor, kernel(Z, T))
    orthogonal, upper = np.linalg.qr(np.concatenate([known.T, np.eye(len(Z))]))
    seen = np.linalg.solve(upper.T, at)
    mean = seen.T @ (orthogonal[: len(X)].T @ (y / np.sqrt(noise)))
    residual, left = prior - at.T @ at, seen.T @ seen
    if learns_residual:  # of what Z does not span so much is left as if rewards had told of it as of what it does
        k, q = np.diag(prior), np.diag(at.T @ at)
        precision = (q / np.maximum(np.diag(left), 1e-9 * k) - 1.0) / k
        root = 1.0 / np.sqrt(1.0 + q / (q + 0.3 * k) * np.diag(residual) * precision)
        residual = np.outer(root, root) * residual
    covariance = residual + left
    condition = float(np.linalg.cond(factor) * np.linalg.cond(upper)) if len(Z) else 1.0
    return Marginals(mean, np.diag(covariance), covariance, rounding(len(X) + len(Z), condition, _scale(prior, y)))


def with_pending(posterior: Callable[[Array], Marginals], T: Array, P: Array, noise: Array | float) -> Marginals:
    """What ``posterior`` returns, at T, once the points P are observed with this noise at their means."""
    both, n = posterior(np.concatenate([T, P])), len(T)
    cross, c = both.covariance[:n, n:], both.covariance
    covariance = c[:n, :n] - cross @ np.linalg.solve(c[n:, n:] + noise * np.eye(len(P)), cross.T)
    condition = 1.0 + float((np.diag(c)[n:] / noise).sum())
    return Marginals(both.mean[:n], np.diag(covariance), covariance, both.rounding * condition)


def evidence(kernel: DenseKernel, X: Array, y: Array, noise: Array, Z: Array | None) -> dict[str, float]:
    """What widths read of a posterior, by name: the exact one, or that of a dictionary Z.

    Of Q = K, or Q = K_XZ K_ZZ⁻¹ K_ZX: ½ log det(I + Σ^-½ Q Σ^-½); Σ_s σ²(x_s) / λ_s; Σ_s (k − q)(x_s, x_s) / λ_s; and
    the norm of μ, which is that of (Q + Σ)⁻¹ y under Q.
    """
    gram = kernel(X, X)
    spanned = gram if Z is None else kernel(X, Z) @ np.linalg.solve(kernel(Z, Z), kernel(Z, X))
    root, weights = np.sqrt(noise), np.linalg.solve(spanned + np.diag(noise), y)
    variance = np.diag(gram - spanned @ np.linalg.solve(spanned + np.diag(noise), spanned))
    return {
        "information_gain": 0.5 * float(np.linalg.slogdet(np.eye(len(X)) + spanned / root / root[:, None])[1]),
        "effective_dimension": float((variance / noise).sum()),
        "projection_error": float((np.diag(gram - spanned) / noise).sum()),
        "mean_norm": float(max(weights @ spanned @ weights, 0.0) ** 0.5),
        "kernel_bound": float(np.diag(gram).max(initial=0.0)),
    }


def chosen_by_stages(
    bounds: Callable[[int], tuple[Array, Array]], horizon: int, tie: float = 1e-7
) -> tuple[NDArray[np.int64], int, bool]:
    """The choice of SupKernelUCB (Valko et al., 2013), with the widest of the actions that may be explored.

    From means and widths (A,) of all actions by stage, counted from 1: the rows that may be played, all equal but for
    ties; the stage that learns the reward, 0 for none; and whether one is so near a threshold that rounding decides.
    """
    left, near, stage = np.arange(len(bounds(1)[0])), False, 1
    while True:
        mean, width = (part[left] for part in bounds(stage))
        upper = mean + width
        near |= bool((np.abs(width - 2.0**-stage) < tie).any() or (np.abs(width - horizon**-0.5) < tie).any())
        if (width <= 1.0 / horizon**0.5).all():
            return left[upper >= upper.max() - tie], 0, near
        if (width > 2.0**-stage).any():
            return left[width >= width.max() - tie], stage, near
        near |= bool((np.abs(upper - upper.max() + 2.0 ** (1 - stage)) < tie).any())
        left, stage = left[upper >= upper.max() - 2.0 ** (1 - stage)], stage + 1


def log_density(y: Array, covariance: Array) -> float:
    """log N(y | 0, covariance)."""
    quadratic = y @ np.linalg.solve(covariance, y)
    return -0.5 * float(quadratic + np.linalg.slogdet(covariance)[1] + len(y) * np.log(2.0 * np.pi))


def collapsed_bound(kernel: DenseKernel, X: Array, y: Array, noise: Array | float, Z: Array) -> float:
    """Titsias 2009, Eq. 9: log N(y | 0, Q + Σ) − ½ Σ_s (k − q)_ss / λ_s."""
    embedding = np.linalg.solve(np.linalg.cholesky(kernel(Z, Z)), kernel(Z, X))
    nystrom = embedding.T @ embedding
    left_out = (np.diag(kernel(X, X) - nystrom) / noise).sum()
    return log_density(y, nystrom + noise * np.eye(len(X))) - 0.5 * float(left_out)


def log_posterior(X: Array, y: Array, lengthscale: Array, variance: float, noise: float, groups=None) -> float:
    """Of a default kernel, a Matérn 5/2 one with a lengthscale for each group of columns, and of λ, given y."""
    scaled = X / (lengthscale if groups is None else lengthscale[list(groups)])
    value = log_density(y, matern52(1.0, variance)(scaled, scaled) + noise * np.eye(len(y)))
    value += lognorm(1.0, scale=0.5 * len(lengthscale) ** 0.5).logpdf(lengthscale).sum()
    return float(value + gamma(2.0, scale=1.0 / 0.15).logpdf(variance) + lognorm(1.0, scale=np.exp(-4.0)).logpdf(noise))
