"""Exchanges of points of a dictionary for others that tell more, one by one, and the determinants that say which."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.dictionaries.greedy import host
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky

Array = NDArray[Any]

#: A conditional variance below this fraction of the largest prior variance is rounding: the determinant is 0.
_ROUNDING = 1e-12

#: An inverse is changed until that may have cost this much relative accuracy; then it is computed afresh.
_ACCURACY = 1e-8

#: Factors that differ by no more than this share are equal: of such points the one played first leaves.
_EQUAL = 1e-6


class GramInverse:
    """The inverse A of a Gram matrix K_ZZ (m, m), in double precision, which changes as points of Z give way to others.

    The matrix given is changed in place. Cost: O(m³) once, O(m²) for all factors of a point and for a swap.
    """

    def __init__(self, gram: Array) -> None:
        self.gram = gram
        self._refresh()

    def _refresh(self) -> None:
        factor = jittered_cholesky(torch.from_numpy(self.gram))
        self._inverse = np.ascontiguousarray(torch.cholesky_inverse(factor).numpy())
        self._spent = 0.0

    def factors(self, across: Array, own: float) -> Array:
        """Return by which factor det K_ZZ grows if a point x takes the place of each of Z, (m,).

        With w = k_Z(x) (m,), and s = k(x, x) − wᵀAw, k(x, x) its own variance, the i-th is A_ii s + (A w)_i².
        """
        seen, diagonal = self._inverse @ across, self._inverse.diagonal()
        grown = diagonal * max(own - across @ seen, 0.0) + np.square(seen)
        least = _ROUNDING * max(self.gram.diagonal().max(), own)
        return np.where(grown > least * diagonal, grown, 0.0)

    def swap(self, place: int, across: Array, own: float) -> None:
        """Put a point x in the place of one of Z, given k_Z(x) (m,) and k(x, x)."""
        inverse, gram = self._inverse, self.gram
        # The rounding of this step: one of the two had 1 / amplification of its variance to itself.
        amplification = inverse[place, place] * max(gram[place, place], own)
        self._spent += np.finfo(np.float64).eps * amplification
        gram[place] = gram[:, place] = across
        gram[place, place] = own
        if self._spent > _ACCURACY:
            self._refresh()
            return
        left = inverse[place].copy()
        gaussian_loops.add_outer(inverse, left, -1.0 / left[place], inverse)
        inverse[place] = inverse[:, place] = 0.0
        known = inverse @ gram[place]
        entering = own - gram[place] @ known
        known[place] = -1.0
        gaussian_loops.add_outer(inverse, known, 1.0 / entering, inverse)

    def reorder(self, order: Array) -> None:
        """Put the points into another order, (m,)."""
        self.gram, self._inverse = self.gram[np.ix_(order, order)], self._inverse[np.ix_(order, order)]


def exchanged(played: PlayedPoints, kept: Tensor, offered: Tensor, gain: float) -> Tensor:
    """Return the rows (m,) of a dictionary, ascending, after other rows (k,) were offered in exchange, one by one.

    Each takes the place of the point with which det(I + C½ K_ZZ C½ / λ) grows most, if it grows by a factor above 1 at
    least; C are the numbers of plays. That is det W times the counts, but for a constant, with W = K_ZZ + λ C⁻¹, the
    mean over a batch. W⁻¹ is kept in the memory of the points, since from one round to the next few counts are others.

    Cost: O(m²) for each point offered, for an exchange, and for each number of plays that is another than before.
    """
    if not offered.shape[0]:
        return kept
    with torch.no_grad():
        inverse, counts, rows = _inverse_at(played, kept), host(played.counts), kept.clone()
        for row in offered:
            new = row.reshape(1)
            across, own = _covariance(played, rows, new)[:, 0], _variance(played, new).item()
            grown = inverse.factors(across, own) * counts[new.cpu()] / counts[rows.cpu()]
            if grown.max() < gain:
                continue
            equal = np.flatnonzero(grown >= (1.0 - _EQUAL) * grown.max())
            place = int(equal[rows.cpu().numpy()[equal].argmin()])
            inverse.swap(place, across, own)
            rows[place] = row
        if not torch.equal(rows, kept):
            rows, order = rows.sort()
            inverse.reorder(order.cpu().numpy())
    played.memory[GramInverse] = played.points[..., rows, :], _noise(played, rows), inverse
    return rows


def _inverse_at(played: PlayedPoints, rows: Tensor) -> GramInverse:
    """Return W⁻¹ of rows (m,): that remembered, which then is so no more, or afresh."""
    points, noise, inverse = played.memory.pop(GramInverse, (None, None, None))
    if inverse is None or not torch.equal(points, played.points[..., rows, :]):
        values = _covariance(played, rows, rows)
        np.fill_diagonal(values, _variance(played, rows))
        return GramInverse(values)
    for place in np.flatnonzero(noise != _noise(played, rows)):
        inverse.swap(place, inverse.gram[place].copy(), _variance(played, rows[place, None]).item())
    return inverse


def _covariance(played: PlayedPoints, rows: Tensor, others: Tensor) -> Array:
    """Return the covariances of the function at rows (n,) with those at others (m,), (n, m), the mean over a batch."""
    values = host(gram(played.kernel, played.points[..., rows, :], played.points[..., others, :]))
    return values.reshape(-1, *values.shape[-2:]).mean(0)


def _variance(played: PlayedPoints, rows: Tensor) -> Array:
    """Return k(x, x) + λ / c at rows (n,), (n,), the mean over a batch."""
    values = host(prior_variance(played.kernel, played.points[..., rows, :]))
    return values.reshape(-1, len(rows)).mean(0) + _noise(played, rows)


def _noise(played: PlayedPoints, rows: Tensor) -> Array:
    """Return λ / c at rows (n,), (n,), the mean over a batch."""
    noise = played.noise.expand(*played.noise.shape[:-1], played.size)[..., rows] / played.counts[rows]
    return host(noise).reshape(-1, len(rows)).mean(0)
