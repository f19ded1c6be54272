"""The posterior at the played points: features that are never stale, variances and means when asked for."""

from collections.abc import Callable, Iterator
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import Squares, joined
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.tables.store import FeatureStore, blocks_of

#: With more rows than this to apply, and more than coordinates, variances cost less afresh.
_LONGEST = 64

#: So many points are written down together.
_TOGETHER = 32


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
        return embed(self._factor, self._values(index).to(self._factor))

    def products(self, rows: Tensor, block: slice) -> Tensor:
        """Return rows (k, m') times the first m' features of a block of points, (k, |block|)."""
        return rows @ self.columns(self._numbers[block])[: rows.shape[1]]

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the features of all points, as many at a time as memory is to hold."""
        for block in blocks_of(len(self._numbers)):
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
        store: the features; None where they are not kept.
        like: a tensor in double precision.
        memory: bytes that features may occupy; beyond, they are given up. None for no bound.
    """

    def __init__(self, store: FeatureStore | None, like: Tensor, memory: int | None) -> None:
        self._memory = memory
        nothing: tuple[list[Tensor], list[Squares]] = [], []
        self._kept = store, nothing[0]  # and features of points that are not written yet
        self._followed = like.new_empty(0), nothing[1]  # of the points known, which come first; and what is pending
        self._mean: tuple[Tensor, Tensor] | None = None  # and the weights that it is of

    @classmethod
    def empty(cls, like: Tensor, memory: int | None) -> Self:
        """Return the posterior at no points."""
        return cls(FeatureStore(0, like), like, memory)

    @property
    def store(self) -> FeatureStore | None:
        """The features; None where they are not kept."""
        store, waiting = self._kept
        if waiting:
            new = torch.cat(waiting, dim=1)
            if store is not None:
                store = store.copy() if self._has_room(store.num_points + new.shape[1], store.size) else None
            if store is not None:
                store.append_points(new)
            self._kept = store, []  # at once, so that nothing is written twice after an interrupt
        return store

    def appended(self, features: Tensor) -> Self:
        """Return the posterior at more points, of features (m, q), which are written behind what this one shows.

        Several together, since features lie far from one another.
        """
        after = shallow_copy(self)
        after._kept, after._mean = (self._kept[0], [*self._kept[1], features]), None
        if len(after._kept[1]) >= _TOGETHER:
            _ = after.store
        return after

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
        after._followed, after._mean = (variance[known], pending if len(known) else []), None
        return after

    def rotated(self, basis: Tensor) -> Self:
        """Return the posterior in other coordinates, rows (k, m) of these, with nothing left out."""
        return self.forgotten()._over(None if self.store is None else self.store.rotated(basis))

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
        number = len(known)
        if pending or number < len(prior_variance):
            parts = [] if pending else [known]
            squares = joined(pending) if pending else Squares.none(0, known)
            for block in blocks_of(number) if pending else ():
                parts.append(known[block] + squares.change(squares.signs, features.products(squares.rows, block)))
            afresh = dtc.variance if len(prior_variance) - number > dtc.size else dtc.quick_variance
            new = torch.arange(number, len(prior_variance), device=known.device)
            for block in blocks_of(len(new)):
                parts.append(afresh(prior_variance[new[block]], features.columns(new[block])))
            self._followed = torch.cat(parts), []
        return self._followed[0]

    def mean(self, features: Features, weights: Tensor) -> Tensor:
        """Return posterior means, (u,), given the weights (m,); remembered. Cost: O(u m)."""
        if self._mean is None or self._mean[0] is not weights:
            rows = weights.unsqueeze(0)
            parts = [features.products(rows, block)[0] for block in blocks_of(features.num_points)]
            self._mean = weights, torch.cat([weights[:0], *parts])
        return self._mean[1]

    def _over(self, store: FeatureStore | None) -> Self:
        """Return the same with these features of all points."""
        after = shallow_copy(self)
        after._kept = store, []
        return after

    def _has_room(self, number: int, size: int) -> bool:
        return self._memory is None or 8 * number * size <= self._memory
