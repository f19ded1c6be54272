"""A Gaussian in the coordinates of a basis, and its changes of rank one."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits.errors import NumericalError
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.linalg import jittered_cholesky

Array = NDArray[Any]

#: Matrices of up to so many rows are inverted by a loop.
_SMALL = 96


class Move(NamedTuple):
    """A change of rank one: of the covariance by scale row rowᵀ, of the means by step (k,) row (m,).

    At a point of coordinates z the variance changes by scale (rowᵀz)², means by step rowᵀz, and by span (rowᵀz)² what
    the dictionary spans of a prior variance.
    """

    row: Array
    scale: float
    step: Array
    span: float = 0.0


class Gaussian(NamedTuple):
    """Coordinates w ~ N(mean, cov) of a function, given rewards; of k numbers told of each play, which have one cov.

    Attributes:
        mean: (k, m).
        cov: (m, m).
        log_det: twice the information gain, in nats.
    """

    mean: Array
    cov: Array
    log_det: float

    @classmethod
    def given(cls, features: Array, precisions: Array, sums: Array) -> "Gaussian":
        """Return the Gaussian given observations of zᵀw, all at once, from z of each, (n, m). Cost: O(n m² + m³).

        ``precisions`` (n,) are one over noise variances, ``sums`` (k, n) that times what was observed less prior means.
        """
        precision = np.eye(features.shape[1]) + (features.T * precisions) @ features
        factor = jittered_cholesky(torch.from_numpy(precision)).numpy()
        inverse = lower_inverse(factor)
        cov = inverse.T @ inverse
        return cls((sums @ features) @ cov, cov, 2.0 * float(np.log(factor.diagonal()).sum()))

    def moved(self, move: Move, factor: float) -> "Gaussian":
        """Return the Gaussian after a change by which det V grows by a factor. Cost: O(m²).

        Raises:
            NumericalError: if that is not above 0, which no covariance makes it.
        """
        if not factor > 0.0:
            raise NumericalError(f"A determinant came out {factor:.3g} times what it was: the kernel is no covariance.")
        mean, cov = np.empty_like(self.mean), np.empty_like(self.cov)
        gaussian_loops.moved(self.mean, self.cov, move.row, move.scale, move.step, mean, cov)
        return Gaussian(mean, cov, self.log_det + math.log(factor))

    def extended(self, variance: float, mean: Array) -> "Gaussian":
        """Return it with one more coordinate, which is independent of the others."""
        m = len(self.cov)
        cov = np.zeros((m + 1, m + 1))
        cov[:m, :m], cov[m, m] = self.cov, variance
        return self._replace(mean=np.column_stack((self.mean, mean)), cov=cov)

    def observed(self, z: Array, rest: Array, noise: float) -> tuple[Move, float]:
        """Return the change by an observation of zᵀw, and by which factor det V grows: below 0 it is impossible.

        The rest (k,) is what was observed less prior means. To take it back, the noise variance is negative.
        """
        row, at = np.empty_like(z), np.empty_like(rest)
        spread = noise + gaussian_loops.observed(self.mean, self.cov, z, row, at)
        with np.errstate(over="ignore"):  # who takes it over looks whether it is finite
            return Move(row, -1.0 / spread, (rest - at) / spread), spread / noise


def lower_inverse(factor: Array) -> Array:
    """Return the inverse of a lower triangular matrix (m, m): of a small one by a loop, since LAPACK starts threads."""
    if len(factor) <= _SMALL:
        return gaussian_loops.lower_inverse(factor)
    unit = torch.eye(len(factor), dtype=torch.float64)  # by PyTorch, since SciPy lets no other thread run meanwhile
    return torch.linalg.solve_triangular(torch.from_numpy(factor), unit, upper=False).numpy()
