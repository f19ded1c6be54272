"""Exchanges of points by determinants: dictionaries drawn from a k-DPP, and those that spread one by one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Generator, Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import greedy_pivots, host
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.posteriors.prediction import in_double

Array = NDArray[Any]

#: Of the largest prior variance a conditional one below these shares adds nothing to the rank, and is rounding. Of more
#: points, the errors of an inverse would be larger than the conditional variances by which the chain decides.
_RANK_TOLERANCE, _ROUNDING = 1e-7, 1e-12

#: Proposals are drawn so many at a time, or four times the size if that is more; another number would be other draws.
_BLOCK = 256

#: An inverse is changed until that may have cost this relative accuracy, then computed afresh. Factors that differ by
#: no more than a share are equal: of such points the one played first leaves.
_ACCURACY, _EQUAL = 1e-8, 1e-6


@dataclass(frozen=True)
class KDPP(DictionaryRule):
    """Draw ``size`` points Z with probability proportional to det K_ZZ: points that are far apart, yet at random.

    This is a determinantal point process of fixed size (k-DPP), approximately. A Markov chain starts at the greedy
    maximum of the determinant; a step draws i uniformly from Z and j uniformly from the rest, and exchanges them with
    probability ½ min(1, det K_Z'Z' / det K_ZZ). Equal points are never drawn together. If all sets of the size have
    determinant 0 (up to 1e-7 of the largest prior variance) the size is the rank instead. Members of a batch share the
    rows drawn; K is then their mean.

    The probability that comes with each point is the mean over all u, size / u.

    Source: Burt, Rasmussen and van der Wilk, JMLR 2020, Alg. 1, as SparQ-GP-UCB has it (Alg. 2 and 3).

    After 100 steps a point neither log det K_ZZ nor what is left of the start changed any more. The chain is surely
    within ε of the k-DPP in total variation after 2 m (u − m) (½ ln C(u, m) + ln m! + ln(1/2ε)) steps (Anari, Oveis
    Gharan and Rezaei, COLT 2016, Theorem 1), out of reach for most sizes m.

    Cost: O(u m²) time and O(u m) memory for the start, then O(m²) time and O(m) kernel values for every other step.
    """

    size: int  #: Number of points m, fewer only if fewer were played or if the rank is less.
    num_swaps: int | None = None  #: Steps of the chain, those that change nothing included; None for 100 a point.

    def __post_init__(self) -> None:
        checks.keep(self, size=checks.positive_integer, num_swaps=checks.optional(checks.non_negative_integer))

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Draw the dictionary."""
        played.require_some()
        points, kernel, n = played.points.double(), in_double(played.kernel), played.size
        with torch.no_grad():
            rows = distinct(points.movedim(-2, 0).flatten(1))[1].cpu()
            # For each point the first that equals it.
            first = torch.full((n,), n).scatter_reduce(0, rows, torch.arange(n), "amin")[rows]
            different = first.unique()
            inside = different[greedy_pivots(points[..., different, :], kernel, self.size, _RANK_TOLERANCE).cpu()]
            steps = 100 * len(inside) if self.num_swaps is None else self.num_swaps
            chosen = inside if len(inside) == n else _chain(points, kernel, inside, first, steps, generator)
        return Selection.rows(played, chosen, len(chosen) / n)


def _chain(
    points: Tensor, kernel: Kernel, inside: Tensor, first: Tensor, num_swaps: int, generator: Generator | None
) -> Tensor:
    """Return the rows (m,) of the set after ``num_swaps`` steps from the set ``inside``."""
    n, m = points.shape[-2], len(inside)
    outside = torch.ones(n, dtype=torch.bool).index_fill_(0, inside, False).nonzero().squeeze(-1)
    block = max(_BLOCK, 4 * m)
    for start in range(0, num_swaps, block):
        k = min(block, num_swaps - start)
        slots = torch.randint(m, (k,), generator=generator, device="cpu")
        touched, candidates = torch.randint(n - m, (k,), generator=generator, device="cpu").unique(return_inverse=True)
        uniforms = torch.rand(k, generator=generator, dtype=torch.float64, device="cpu")
        rows = torch.cat([inside, outside[touched]])
        # A point that is there twice has one row in the Gram matrix: two would differ by rounding.
        kept, positions = first[rows].unique(return_inverse=True)
        values = host(gram(kernel, points[..., kept, :])).reshape(-1, len(kept), len(kept)).mean(0)
        places, numbers = positions.numpy(), rows.numpy()
        inverse = GramInverse(values[np.ix_(places[:m], places[:m])])
        for slot, candidate, uniform in zip(slots.tolist(), candidates.tolist(), uniforms.tolist(), strict=True):
            if uniform >= 0.5:  # whatever the determinants are
                continue
            new = places[m + candidate]
            across, own = values[places[:m], new], float(values[new, new])
            if uniform < 0.5 * min(inverse.factors(across, own)[slot], 1.0):
                inverse.swap(slot, across, own)
                for each in (places, numbers):
                    each[slot], each[m + candidate] = each[m + candidate], each[slot]
        inside, outside[touched] = rows[:m], rows[m:]
    return inside


class GramInverse:
    """The inverse A of a Gram matrix K_ZZ (m, m), in double precision, changed in place as points give way.

    Cost: O(m³) once, O(m²) for all factors of a point and for a swap.
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
        self._spent += np.finfo(np.float64).eps * inverse[place, place] * max(gram[place, place], own)
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

    Each takes the place of the point with which det(I + C½ K_ZZ C½ / λ) grows most, if it grows by a factor above 1;
    C are the numbers of plays. That is det W times the counts, but for a constant, with W = K_ZZ + λ C⁻¹, the mean over
    a batch. W⁻¹ is kept in the memory of the points.

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
