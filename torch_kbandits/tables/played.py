"""The posterior at the played points: features that are never stale, variances and means when asked for."""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import Squares
from torch_kbandits.posteriors.dtc import embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.tables.lazy import joined
from torch_kbandits.tables.panels import FeatureStore, blocks_of, with_squares

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

    def columns(self, index: Tensor) -> Tensor:
        """Return the features (m, q) of some points, given their numbers (q,)."""
        return embed(self._factor, self._values(index).to(self._factor))

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
        self._store = store
        self._waiting: list[Tensor] = []  # features of points that are not written yet
        self._variance = like.new_empty(0)  # of the points known, which come first, before what is pending
        self._pending: list[Squares] = []
        self._mean: tuple[Tensor, Tensor] | None = None  # and the weights that it is of

    @classmethod
    def empty(cls, like: Tensor, memory: int | None) -> Self:
        """Return the posterior at no points."""
        return cls(FeatureStore(0, like), like, memory)

    @property
    def store(self) -> FeatureStore | None:
        """The features; None where they are not kept."""
        if self._waiting:
            new, store = torch.cat(self._waiting, dim=1), self._store
            if store is not None:
                store = store.copy() if self._has_room(store.num_points + new.shape[1], store.size) else None
            if store is not None:
                store.append_points(new)
            self._store, self._waiting = store, []
        return self._store

    def appended(self, features: Tensor) -> Self:
        """Return the posterior at more points, of features (m, q), which are written behind what this one shows.

        Several together, since features lie far from one another.
        """
        after = copy(self)
        after._waiting, after._mean = [*self._waiting, features], None
        if len(after._waiting) >= _TOGETHER:
            _ = after.store
        return after

    def grown(self, features: Tensor) -> Self:
        """Return the same posterior with more features (a, u), on which nothing depends yet."""
        if len(features) == 0:
            return self
        store, size = self.store, len(features)
        after = copy(self)
        if store is not None:
            first, size = store.size, store.size + size
            after._store = store = store.copy() if self._has_room(store.num_points, size) else None
        if store is not None:
            store.resize(size)
            store.write(features, slice(0, store.num_points), first)
        return after

    def following(self, squares: Squares) -> Self:
        """Return the posterior after variances changed by squares. Cost: O(1)."""
        if not self.is_known:
            return self
        after = copy(self)
        after._pending = [*self._pending, squares]
        if after.num_pending > max(_LONGEST, squares.fallen.shape[1]):
            return after.forgotten()
        return after

    def at(self, index: Tensor) -> Self:
        """Return the posterior at some of the points, given their numbers (q,)."""
        store, after = self.store, copy(self)
        after._store, after._waiting = None if store is None else store.selected(index), []
        known = index[: int((index < len(self._variance)).long().cumprod(0).sum())]
        after._variance, after._mean = self._variance[known], None
        after._pending = self._pending if len(known) else []
        return after

    def rotated(self, basis: Tensor) -> Self:
        """Return the posterior in other coordinates, rows (k, m) of these, with nothing left out."""
        store, after = self.store, self.forgotten()
        after._store, after._waiting = None if store is None else store.rotated(basis), []
        return after

    def refilled(self, features: ComputedFeatures, number: int, size: int) -> Self:
        """Return what is kept of so many points of other features, of which there are so many."""
        after, store = self.forgotten(), FeatureStore(number, self._variance)
        after._store, after._waiting = None, []
        if self._has_room(number, size):
            store.resize(size)
            for block, each in features.blocks():
                store.write(each, block, 0)
            after._store = store
        return after

    def forgotten(self) -> Self:
        """Return the posterior with nothing known of it, for it is another one, or seen otherwise."""
        after = copy(self)
        after._pending, after._variance, after._mean = [], self._variance[:0], None
        return after

    @property
    def num_pending(self) -> int:
        """Number of rows that were not applied yet."""
        return sum(len(part) for each in self._pending for part in each)

    @property
    def is_known(self) -> bool:
        """Whether the variances of some points are followed."""
        return len(self._variance) > 0

    def variance(self, features: Features, prior_variance: Tensor, dtc: OnlineDTC) -> Tensor:
        """Return posterior variances, (u,), which rounding may have made slightly negative; remembered.

        Args:
            features: of the points, kept or not.
            prior_variance: (u,).
            dtc: the posterior.

        Cost: O(u m k) for k changes since, O(m²) for a point that was not asked about before.
        """
        number = len(self._variance)
        if self._pending or number < len(prior_variance):
            squares = joined(self._pending) if self._pending else Squares.none(0, prior_variance)
            width = squares.fallen.shape[1]
            afresh = dtc.variance if len(prior_variance) - number > dtc.size else dtc.quick_variance
            parts = []
            for block, each in features.blocks():
                old = self._variance[block]
                k = len(old)
                for rows, sign in zip(squares, (-1, 1), strict=True):
                    old = with_squares(old, rows @ each[:width, :k], sign)
                parts += [old, afresh(prior_variance[block][k:], each[:, k:])] if k < each.shape[1] else [old]
            self._variance, self._pending = torch.cat(parts), []
        return self._variance

    def mean(self, features: Features, weights: Tensor) -> Tensor:
        """Return posterior means, (u,), given the weights (m,); remembered. Cost: O(u m)."""
        if self._mean is None or self._mean[0] is not weights:
            parts = [weights @ each for _, each in features.blocks()]
            self._mean = weights, torch.cat(parts) if parts else weights[:0]
        return self._mean[1]

    def _has_room(self, number: int, size: int) -> bool:
        return self._memory is None or 8 * number * size <= self._memory
