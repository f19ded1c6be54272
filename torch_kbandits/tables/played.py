"""The posterior at the played points: features that are never stale, variances and means when asked for."""

from collections.abc import Callable, Iterator
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.places import beside
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors import online_loops
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.online_loops import Matrix
from torch_kbandits.posteriors.squares import Squares, joined
from torch_kbandits.tables import played_loops
from torch_kbandits.tables.store import FeatureStore, blocks_of

Array = NDArray[np.float64]

#: With more rows than this to apply, and more than coordinates, variances cost less afresh.
_LONGEST = 64

#: With more rows than this to apply products are those of matrices, which are faster then.
_MOST_ROWS = 16

#: Of so many points that nobody asked about before the variances are computed one by one.
_FEW = 4


class ComputedFeatures:
    """Features of n points that are not kept, and computed whenever they are read.

    Args:
        factor: L (m, m) of the spanning points.
        values: gives their kernel values (m, k) with the points of numbers (k,).
        like: a tensor (n,) over the points.
    """

    def __init__(self, factor: Tensor, values: Callable[[Tensor], Tensor], like: Tensor) -> None:
        self._factor, self._values, self._numbers = factor, values, torch.arange(len(like), device=like.device)
        self.num_points = len(like)

    def columns(self, index: Tensor) -> Tensor:
        """Return the features (m, q) of some points, given their numbers (q,)."""
        return embed(self._factor, beside(self._values(index), self._factor).to(self._factor))

    def products(self, rows: Tensor, block: slice) -> Tensor:
        """Return rows (k, m') times the first m' features of a block of points, (k, |block|)."""
        return rows @ self.columns(self._numbers[block])[: rows.shape[1]]

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the features of all points, as many at a time as memory is to hold."""
        for block in blocks_of(len(self._numbers), self._numbers, len(self._factor)):
            yield block, self.columns(self._numbers[block])


Features = FeatureStore | ComputedFeatures


def combined(features: Features, weights: Tensor) -> Tensor:
    """Return features (m, n) times weights (n,) of the points, (m,)."""
    parts = [each @ weights[block] for block, each in features.blocks()]
    return torch.stack(parts).sum(0) if parts else features.columns(torch.arange(0, device=weights.device)).sum(1)


class PlayedPanel:
    """The posterior at the u played points, as far as it was asked for, and what happened since.

    A rule that asks for variances in every round finds them a few rows behind; for one that never asks nothing is done
    but to write down features, and nothing piles up. A value, but for what it remembers of what is done late.

    Args:
        store: the features, in double precision; None where they are not kept.
        like: a tensor in double precision.
        memory: bytes that features may occupy; beyond, they are given up. None for no bound.
    """

    def __init__(self, store: FeatureStore | None, like: Tensor, memory: int | None) -> None:
        self._memory = memory
        pending: list[Squares] = []
        self.store = store
        self._followed = like.new_empty(0), pending  # of the points known, which come first; and what is pending
        self._mean: tuple[Tensor, Tensor] | None = None  # and the weights that it is of

    @classmethod
    def empty(cls, like: Tensor, memory: int | None) -> Self:
        """Return the posterior at no points."""
        return cls(FeatureStore(0, like), like, memory)

    def appended(self, features: Tensor) -> Self:
        """Return the posterior at more points, of features (m, q), which are written behind what this one shows."""
        store = self.store
        if store is not None and self._has_room(store.num_points + features.shape[1], store.size):
            store = store.copy()
            store.append_points(features)
            return self._over(store)
        return self._over(None)

    def with_row(self, features: np.ndarray) -> Self:
        """Return the posterior at one more point, whose features (m,) are written like those of ``appended``."""
        store = self.store
        if store is None or not self._has_room(store.num_points + 1, store.size):
            return self._over(None)
        store = store.copy()
        store.append_row(features)
        return self._over(store)

    def grown(self, features: Tensor) -> Self:
        """Return the same posterior with more features (a, u), on which nothing depends yet."""
        size = features.shape[0]
        if size == 0:
            return self
        store = self.store
        if store is None or not self._has_room(store.num_points, store.size + size):
            return self._over(None)
        longer, first = store.copy(), store.size
        longer.resize(first + size)
        longer.write(features, slice(0, store.num_points), first)
        return self._over(longer)

    def following(self, squares: Squares) -> Self:
        """Return the posterior after variances changed by squares. Cost: O(1)."""
        if not self.is_known:
            return self
        after = shallow_copy(self)
        after._followed = self._followed[0], [*self._followed[1], squares]
        if after.num_pending > max(_LONGEST, squares.rows.shape[1]):
            return after.forgotten()
        return after

    def at(self, index: Tensor) -> Self:
        """Return the posterior at some of the points, given their numbers (q,)."""
        after = self._over(None if self.store is None else self.store.selected(index))
        variance, pending = self._followed
        known = index[: int((index < len(variance)).long().cumprod(0).sum())]
        after._followed = variance[known], pending if len(known) else []
        return after

    def shortened(self, size: int) -> Self:
        """Return the posterior in the first coordinates alone, another one."""
        return self.forgotten()._over(None if self.store is None else self.store.shortened(size))

    def refilled(self, features: ComputedFeatures, number: int, size: int) -> Self:
        """Return what is kept of so many points of other features, of which there are so many."""
        has_room, blocks = self._has_room(number, size), features.blocks()
        store = FeatureStore.holding(blocks, number, size, self._followed[0]) if has_room else None
        return self.forgotten()._over(store)

    def forgotten(self) -> Self:
        """Return the posterior with nothing known of it, for it is another one, or seen otherwise."""
        after = shallow_copy(self)
        after._followed, after._mean = (self._followed[0][:0], []), None
        return after

    def knowing(self, variance: Tensor, squares: Squares) -> Self:
        """Return the same with variances (k,) of the first points known, before squares changed them."""
        after = shallow_copy(self)
        after._followed, after._mean = (variance, [squares]), None
        return after

    @property
    def num_pending(self) -> int:
        """Number of rows that were not applied yet."""
        return sum(each.rows.shape[0] for each in self._followed[1])

    @property
    def is_known(self) -> bool:
        """Whether the variances of some points are followed."""
        return self._followed[0].shape[0] > 0

    def variance(self, features: Features, prior_variance: Tensor, dtc: OnlineDTC) -> Tensor:
        """Return posterior variances, (u,), which rounding may have made slightly negative; remembered.

        Args:
            features: of the points, kept or not.
            prior_variance: (u,).
            dtc: the posterior.

        Cost: O(u m k) for k changes since, O(m²) for a point that was not asked about before.
        """
        known, pending = self._followed
        number = known.shape[0]
        is_few = prior_variance.shape[0] - number <= _FEW and self.num_pending <= _MOST_ROWS
        if pending and is_few and isinstance(features, FeatureStore) and runs_compiled(known):
            self._follow(features, prior_variance, dtc)
        elif pending or number < prior_variance.shape[0]:
            parts = [] if pending else [known]
            squares = joined(pending) if pending else Squares.none(0, known)
            for block in blocks_of(number, known, 1) if pending else ():
                parts.append(known[block] + squares.change(squares.signs, features.products(squares.rows, block)))
            afresh = dtc.variance if len(prior_variance) - number > dtc.size else dtc.quick_variance
            new = torch.arange(number, len(prior_variance), device=known.device)
            for block in blocks_of(len(new), known, dtc.size):
                parts.append(afresh(prior_variance[new[block]], features.columns(new[block])))
            self._followed = torch.cat(parts), []
        return self._followed[0]

    def _follow(self, features: FeatureStore, prior_variance: Tensor, dtc: OnlineDTC) -> None:
        """Bring the variances up to date by a loop, where few are new."""
        known, pending = self._followed
        squares, inverse = joined(pending), dtc.tracked_inverse.arrays
        rows = squares.rows.contiguous().numpy()
        variance = variances_after(features, rows, squares.signs, known.numpy(), prior_variance.numpy(), inverse)
        self._followed = torch.from_numpy(variance), []

    def mean(self, features: Features, weights: Tensor) -> Tensor:
        """Return posterior means, (u,), given the weights (m,); remembered. Cost: O(u m)."""
        if self._mean is None or self._mean[0] is not weights:
            rows = weights.unsqueeze(0)
            parts = [features.products(rows, block)[0] for block in blocks_of(features.num_points, weights, 1)]
            self._mean = weights, torch.cat([weights[:0], *parts])
        return self._mean[1]

    def _over(self, store: FeatureStore | None) -> Self:
        """Return the same with these features of all points."""
        after = shallow_copy(self)
        after.store, after._mean = store, None
        return after

    def _has_room(self, number: int, size: int) -> bool:
        return self._memory is None or 8 * number * size <= self._memory


def variances_after(
    features: FeatureStore, rows: Array, signs: Array, before: Array, prior: Array, inverse: Matrix
) -> Array:
    """Return the variances of n points, by loops, where few are new.

    Args:
        features: of the points, in double precision.
        rows: whose squares changed the variances of those that are not new, which come first, (r, m).
        signs: of these squares, (r,).
        before: these variances before, (k,).
        prior: variances, (n,).
        inverse: K⁻¹.
    """
    number, variance = len(before), np.empty(features.num_points)
    for block, segment in features.segments():
        some = slice(block.start, min(block.stop, number))
        played_loops.follow(segment.numpy(), rows, signs, before[some], variance[some])
    for place in range(number, len(variance)):
        variance[place] = prior[place] + online_loops.reduction(inverse, features.row(place))
    return variance


def joined_by(
    features: Features, own: Tensor, corner: Tensor, values: Tensor, weights: Tensor, moments: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what spanning points add to points, whose features these are.

    Args:
        features: of n points.
        own: coordinates of the a spanning points, (a, m).
        corner: lower factor of their covariance given the others, (a, a).
        values: their kernel values with the points, (a, n).
        weights: the summed 1/λ of the rewards of each point, (n,).
        moments: the summed y/λ, (n,).

    Returns:
        Their coordinates f of the points, (a, n), and sums over these: of weight z fᵀ, (m, a), of weight f fᵀ, (a, a),
        and of moment f, (a,).

    Cost: O(n m a).
    """
    if len(own) == 1 and isinstance(features, FeatureStore) and runs_compiled(own):
        point, known, seen, told = (each.contiguous().numpy() for each in (own[0], values[0], weights, moments))
        new, cross, below, moment = joined_by_one(features, point, corner.item(), known, seen, told)
        sums = own.new_tensor([[below]]), own.new_tensor([moment])
        return torch.from_numpy(new).unsqueeze(0), torch.from_numpy(cross).unsqueeze(1), *sums
    parts, cross = [values[:, :0]], torch.zeros_like(own.mT)
    for block, old in features.blocks():
        parts.append(torch.linalg.solve_triangular(corner, values[:, block] - own @ old, upper=False))
        cross.addmm_(old, (parts[-1] * weights[block]).mT)
    new = torch.cat(parts, dim=1)
    return new, cross, (new * weights) @ new.mT, new @ moments


def joined_by_one(
    features: FeatureStore, own: Array, corner: float, values: Array, weights: Array, moments: Array
) -> tuple[Array, Array, float, float]:
    """Return the same of one spanning point, by a loop: arrays (n,), (m,), and numbers."""
    new, cross, below, moment = np.empty(len(values)), np.zeros(len(own)), 0.0, 0.0
    for block, segment in features.segments():
        parts = values[block], weights[block], moments[block], new[block]
        more = played_loops.join(segment.numpy(), own, corner, *parts, cross)
        below, moment = below + more[0], moment + more[1]
    return new, cross, below, moment
