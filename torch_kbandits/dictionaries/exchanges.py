"""Exchanges of points of a dictionary for others that tell more, one by one."""

import torch
from torch import Tensor

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.dictionaries.swaps import ROUNDING
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky

#: An inverse is changed until that may have cost this much relative accuracy; then it is computed afresh.
_ACCURACY = 1e-8

#: Factors that differ by no more than this share are equal: of such points the one played first leaves.
_EQUAL = 1e-6

#: If a larger share of the points was played more often or less, an inverse is computed afresh: it takes no longer.
_MANY = 0.125


def exchanged(played: PlayedPoints, kept: Tensor, offered: Tensor, gain: float) -> Tensor:
    """Return the rows (m,) of a dictionary after others were offered in exchange, one by one.

    Each takes the place of the point with which det(I + C½ K_ZZ C½ / λ) grows most, if it grows by a factor at least; C
    are the numbers of plays. That is det W times the counts, but for a constant, with W = K_ZZ + λ C⁻¹. With A = W⁻¹,
    w = k_Z(x) and s = k(x, x) + λ / c_x − wᵀAw a point x in place of the i-th multiplies det W by A_ii s + (A w)_i².

    A is kept in the memory of the points: from one round to the next few numbers of plays are others, and it changes by
    as many ranks. What is returned does not depend on whether it was there, but for rounding, by which nothing is
    decided.

    Args:
        played: the points. Members of a batch share the rows, by the mean of their Gram matrices.
        kept: the rows of the dictionary, (m,), ascending.
        offered: those of the others, (k,).
        gain: that factor, above 1.

    Returns:
        The rows, ascending.

    Raises:
        NotPositiveDefiniteError: if K_ZZ has a clearly negative eigenvalue.

    Cost: O(m²) for each point offered and each number of plays that is another than before, and O(m² k) for an
    exchange; O(m³) where more is another than that, and for each m that are offered.
    """
    if not offered.shape[0]:
        return kept
    with torch.no_grad():
        inverse, rows = _Inverse.of(played, kept), kept
        for block in offered.split(kept.shape[0]):
            inverse, rows = _offered(inverse, played, rows, block, gain)
        if rows is not kept:
            rows, order = rows.sort()
            inverse.reorder(played.points[..., rows, :], order.cpu())
    played.memory[_Inverse] = inverse
    return rows


def factors(inverse: Tensor, across: Tensor, own: Tensor) -> Tensor:
    """Return by which factor det W grows if points give way to others, one of these for one of those, (m, r).

    Args:
        inverse: W⁻¹ (m, m).
        across: entries of W for the points against the others, (m, r).
        own: those of the others on the diagonal, (r,).
    """
    seen = inverse @ across
    left = (own - (across * seen).sum(0)).clamp_min(0.0)
    return inverse.diagonal().unsqueeze(-1) * left + seen.square()


class _Inverse:
    """W⁻¹ of some points, and what it is of; in double precision on the CPU.

    Args:
        played: the points.
        rows: of those meant, (m,).

    Attributes:
        points: Z (..., m, d).
        levels: λ / c (m,).
        diagonal: that of W, (m,).
        matrix: W⁻¹ (m, m).
    """

    def __init__(self, played: PlayedPoints, rows: Tensor) -> None:
        self.points, self.levels = played.points[..., rows, :], _levels(played, rows)
        self.diagonal, self._spent = _own_covariance(played, rows) + self.levels, 0.0
        values = _covariance(played, rows, rows)
        values.diagonal().copy_(self.diagonal)
        self.matrix = torch.cholesky_inverse(jittered_cholesky(values))

    @classmethod
    def of(cls, played: PlayedPoints, rows: Tensor) -> "_Inverse":
        """Return that of some points: of those remembered, which then are so no more, or afresh."""
        known = played.memory.pop(cls, None)
        if known is None or not torch.equal(known.points, played.points[..., rows, :]):
            return cls(played, rows)
        return known if known.count_again(_levels(played, rows)) else cls(played, rows)

    def count_again(self, levels: Tensor) -> bool:
        """Take other numbers of plays; False where computing it afresh is better."""
        places = (levels != self.levels).nonzero().squeeze(-1)
        if not len(places):
            return True
        columns, change = self.matrix[:, places], (levels - self.levels)[places]
        if len(places) > max(1.0, _MANY * len(levels)) or not self._may_change(places):
            return False
        core = columns[places] + torch.diag(1.0 / change)
        self.matrix.addmm_(columns, torch.linalg.solve(core, columns.mT), alpha=-1.0)
        self.diagonal.index_add_(0, places, change)
        self.levels = levels
        return True

    def exchange(self, place: int, across: Tensor, own: Tensor, level: Tensor) -> bool:
        """Take another point in place of one, but for ``points``; False where computing it afresh is better.

        Args:
            place: of the one that leaves.
            across: covariances of the other with all, (m,).
            own: its entry of the diagonal.
            level: its λ / c.
        """
        if not self._may_change(torch.tensor([place])):
            return False
        left = self.matrix[place].clone()
        self.matrix.addr_(left, left, alpha=-1.0 / left[place].item())
        self.matrix[place] = self.matrix[:, place] = 0.0
        known = self.matrix @ across
        entering = own - across @ known
        known[place] = -1.0
        self.matrix.addr_(known, known, alpha=1.0 / entering.item())
        self.diagonal[place], self.levels[place] = own, level
        return True

    def reorder(self, points: Tensor, order: Tensor) -> None:
        """Take the points, as they are in another order (m,)."""
        self.points, self.levels, self.diagonal = points, self.levels[order], self.diagonal[order]
        self.matrix = self.matrix.index_select(0, order).index_select(1, order)

    def _may_change(self, places: Tensor) -> bool:
        """Say whether it stays accurate if this changes: one point had 1 / amplification of its variance to itself."""
        amplification = float((self.matrix.diagonal()[places] * self.diagonal[places]).max())
        self._spent += torch.finfo(torch.float64).eps * amplification
        return self._spent <= _ACCURACY


def _offered(
    inverse: _Inverse, played: PlayedPoints, kept: Tensor, block: Tensor, gain: float
) -> tuple[_Inverse, Tensor]:
    """Return the rows after a block of others was offered, in the order of the inverse that goes with them."""
    rows, size, first = torch.cat([kept, block]), kept.shape[0], 0
    values, levels = _covariance(played, rows, block), _levels(played, rows)
    own, counts = _own_covariance(played, block) + levels[size:], played.counts[rows].double().cpu()
    places, least = torch.arange(size), ROUNDING * float(torch.maximum(inverse.diagonal.max(), own.max()))
    while first < block.shape[0]:
        grown = factors(inverse.matrix, values[places, first:], own[first:])
        grown = torch.where(grown > least * inverse.matrix.diagonal().unsqueeze(-1), grown, 0.0)
        grown *= counts[size + first :] / counts[places].unsqueeze(-1)
        taken = (grown.amax(0) >= gain).nonzero()
        if not len(taken):
            break
        number = first + int(taken[0])
        found = grown[:, number - first]
        equal = (found >= (1.0 - _EQUAL) * found.max()).nonzero().squeeze(-1)
        place = int(equal[rows.cpu()[places[equal]].argmin()])
        given = values[places, number], own[number], levels[size + number]
        places[place], first = size + number, number + 1
        if not inverse.exchange(place, *given):
            inverse = _Inverse(played, rows[places.to(rows.device)])
    return inverse, rows[places.to(rows.device)] if first else kept


def _covariance(played: PlayedPoints, rows: Tensor, others: Tensor) -> Tensor:
    """Return the covariances of the function at rows (n,) with those at others (m,), (n, m)."""
    return _of_members(gram(played.kernel, played.points[..., rows, :], played.points[..., others, :]), 2)


def _own_covariance(played: PlayedPoints, rows: Tensor) -> Tensor:
    """Return the variances of the function at rows (n,), (n,)."""
    return _of_members(prior_variance(played.kernel, played.points[..., rows, :]), 1)


def _levels(played: PlayedPoints, rows: Tensor) -> Tensor:
    """Return λ / c at rows (n,), (n,)."""
    noise = played.noise.expand(*played.noise.shape[:-1], played.size)
    return _of_members(noise[..., rows] / played.counts[rows], 1)


def _of_members(values: Tensor, dims: int) -> Tensor:
    """Return the mean over all but the last dimensions, in double precision on the CPU."""
    return values.double().reshape(-1, *values.shape[-dims:]).mean(0).cpu()
