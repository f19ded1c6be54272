"""The posterior at many points in the coordinates of a dictionary: their features, means and variances."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import Squares
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors.online_dtc import OnlineDTC

#: Features allocated at a time: few, since products of few rows are fastest on short sums, but so many numbers.
_CHUNK = 16
_CHUNK_NUMBERS = 2**17

#: One point in so many is room for more, where some are selected.
_SPARE = 8

#: Points whose features are solved with at a time, so that they stay in cache.
_CACHED = 4096

#: Points handled at a time when rows are applied to many, and products that may come of it, so that these stay small.
_BLOCK = 65536
_PRODUCTS = 2**19


class FeatureStore:
    """Features of n points, feature-major, in chunks that are never copied when a feature is added.

    Copies share the chunks. A feature is written beyond those that a copy knows of, so of several copies only the last
    one that grew may go on growing.

    Args:
        num_points: n.
        like: a tensor whose dtype and device all have.
    """

    def __init__(self, num_points: int, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self._capacity = num_points
        self._chunk = max(_CHUNK, min(_CHUNK_NUMBERS // max(num_points, 512), 256))
        self.num_points = num_points
        self.size = 0
        self._chunks: list[Tensor] = []

    @classmethod
    def holding(cls, blocks: Iterable[tuple[slice, Tensor]], num_points: int, size: int, like: Tensor) -> Self:
        """Return a store of so many features of n points, given block by block."""
        store = cls(num_points, like)
        store.resize(size)
        for block, features in blocks:
            store.write(features, block, 0)
        return store

    def copy(self) -> Self:
        """Return a copy that shares the features."""
        other = shallow_copy(self)
        other._chunks = list(self._chunks)
        return other

    def resize(self, size: int) -> None:
        """Hold ``size`` features; those beyond the old size are to be written, memory that is not needed is freed."""
        needed = -(-size // self._chunk)
        while len(self._chunks) < needed:
            self._chunks.append(self._like.new_empty(self._chunk, self._capacity))
        del self._chunks[needed:]
        self.size = size

    def write(self, features: Tensor, block: slice, first: int) -> None:
        """Write features (k, |block|) of a block of points, the first of which has number ``first``."""
        done = 0
        while done < len(features):
            chunk, offset = divmod(first + done, self._chunk)
            count = min(self._chunk - offset, len(features) - done)
            self._chunks[chunk][offset : offset + count, block] = features[done : done + count]
            done += count

    def products(self, rows: Tensor, block: slice) -> Tensor:
        """Return rows (k, m') times the first m' features of a block of points, (k, |block|): one pass over them."""
        if rows.shape[1] == 0:
            return rows.new_zeros(rows.shape[0], block.stop - block.start)
        products = torch.mm(rows[:, : self._chunk], self._part(0, rows, block))
        for number in range(1, -(-rows.shape[1] // self._chunk)):
            first = number * self._chunk
            products.addmm_(rows[:, first : first + self._chunk], self._part(number, rows, block))
        return products

    def columns(self, index: Tensor) -> Tensor:
        """Return the features (m, q) of some points, given their numbers (q,)."""
        chunks = [self._chunks[number].index_select(1, index) for number in range(-(-self.size // self._chunk))]
        return torch.cat(chunks)[: self.size] if chunks else self._like.new_empty(0, len(index))

    def block(self, block: slice) -> Tensor:
        """Return the features of a block of points, (m, |block|); not to be written to."""
        parts = [chunk[:, block] for chunk in self._chunks]
        if len(parts) == 1:
            return parts[0][: self.size]
        return torch.cat(parts)[: self.size] if parts else self._like.new_empty(0, block.stop - block.start)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the features of all points, so many at a time that they stay in cache."""
        for block in blocks_of(self.num_points):
            yield block, self.block(block)

    def rotated(self, basis: Tensor) -> "FeatureStore":
        """Return rows (k, m) times the features, in memory of its own."""
        blocks = ((block, self.products(basis.to(self._like), block)) for block in blocks_of(self.num_points))
        return FeatureStore.holding(blocks, self.num_points, len(basis), self._like)

    def selected(self, index: Tensor) -> "FeatureStore":
        """Return the features of some points, given their numbers (q,), in memory with room for some more points."""
        store = FeatureStore(len(index), self._like)
        store._capacity, store._chunk = len(index) + len(index) // _SPARE + 1, self._chunk
        store.resize(self.size)
        for mine, theirs in zip(store._chunks, self._chunks, strict=True):
            torch.index_select(theirs, 1, index, out=mine[:, : len(index)])
        return store

    def shortened(self, size: int) -> Self:
        """Return the first features alone; what is written behind them is in memory of its own."""
        other = self.copy()
        other.resize(size)
        if size % self._chunk:
            other._chunks[-1] = other._chunks[-1].clone()
        return other

    def append_points(self, features: Tensor) -> None:
        """Append points with features (m, q); the room for points doubles when it is used up."""
        first, self.num_points = self.num_points, self.num_points + features.shape[1]
        if self.num_points > self._capacity:
            self._capacity = max(self.num_points, 2 * self._capacity)
            for number, chunk in enumerate(self._chunks):
                grown = self._like.new_empty(self._chunk, self._capacity)
                grown[:, :first] = chunk[:, :first]
                self._chunks[number] = grown
        self.write(features, slice(first, self.num_points), 0)

    def _part(self, number: int, rows: Tensor, block: slice) -> Tensor:
        return self._chunks[number][: min(self._chunk, rows.shape[1] - number * self._chunk), block]


class Change(NamedTuple):
    """How posteriors at points follow a posterior: coordinates added, then squares that change variances.

    The squares of the new coordinates themselves come off too.

    Attributes:
        own: coordinates of new spanning points in the old ones, (a, m).
        corner: lower factor (a, a) of their covariance given the old ones.
        squares: in m + a coordinates.
    """

    own: Tensor
    corner: Tensor
    squares: Squares

    @classmethod
    def none(cls, size: int, like: Tensor) -> Self:
        """Return no change, in ``size`` coordinates."""
        squares = Squares.none(size, like)
        return cls(squares.fallen, like.new_empty(0, 0), squares)


@dataclass(frozen=True, eq=False)
class Panel:
    """The posterior at n points.

    Attributes:
        features: their coordinates.
        prior_variance: k(x, x), (n,).
        variance: posterior variances, (n,); rounding may have made them slightly negative.
        mean: posterior means, (n,).
        prior_mean: prior means, (n,); None if they are zero.
    """

    features: FeatureStore
    prior_variance: Tensor
    variance: Tensor
    mean: Tensor
    prior_mean: Tensor | None = None

    @classmethod
    def prior(
        cls, prior_variance: Tensor, prior_mean: Tensor | None = None, features: FeatureStore | None = None
    ) -> Self:
        """Return the prior at points of prior variance (n,) and prior mean (n,), which may have features already."""
        store = FeatureStore(len(prior_variance), prior_variance) if features is None else features
        mean = torch.zeros_like(prior_variance) if prior_mean is None else prior_mean
        return cls(store, prior_variance, prior_variance, mean, prior_mean)

    def fitted(self, dtc: OnlineDTC, weights: Tensor) -> "Panel":
        """Return the posterior at these points, from factors rather than from what follows them. Cost: O(n m²)."""
        variance = torch.empty_like(self.prior_variance)
        for block, values in self.features.blocks():
            variance[block] = dtc.variance(self.prior_variance[block], values)
        return replace(self, variance=variance).following(Change.none(dtc.size, variance), weights)

    def at(self, index: Tensor) -> Self:
        """Return the posterior at some of the points, given their numbers (q,)."""
        parts = (self.prior_variance, self.variance, self.mean)
        expected = None if self.prior_mean is None else self.prior_mean[index]
        return type(self)(self.features.selected(index), *(part[index] for part in parts), prior_mean=expected)

    def rotated(self, basis: Tensor) -> "Panel":
        """Return the same posterior in other coordinates, rows (k, m) of these, with nothing left out."""
        return replace(self, features=self.features.rotated(basis))

    def shortened(self, size: int) -> "Panel":
        """Return the same posterior where it does not depend on other than the first features."""
        return replace(self, features=self.features.shortened(size))

    def joined(self, other: "Panel") -> Self:
        """Return the posterior at these points and others."""
        store = self.features.copy()
        store.append_points(other.features.columns(torch.arange(other.features.num_points, device=other.mean.device)))
        pairs = (
            (self.prior_variance, other.prior_variance),
            (self.variance, other.variance),
            (self.mean, other.mean),
        )
        expected = None
        if self.prior_mean is not None and other.prior_mean is not None:
            expected = torch.cat([self.prior_mean, other.prior_mean])
        return type(self)(store, *(torch.cat(pair) for pair in pairs), prior_mean=expected)

    def following(self, change: Change, weights: Tensor, columns: Callable[[slice], Tensor] | None = None) -> "Panel":
        """Return the posterior after a change, in one pass over the features.

        Args:
            change: what changed since this posterior.
            weights: those of the mean after it, (m + a,).
            columns: gives the kernel values (a, |block|) of new spanning points at a block of points.
        """
        store = self.features.copy()
        first, added = store.size, change.own.shape[0]
        store.resize(len(weights))
        dtype = self.variance.dtype
        parts = [*change.squares, weights.unsqueeze(0)]
        counts = [part.shape[0] for part in parts]
        rows = torch.cat([part for part, count in zip(parts, counts, strict=True) if count]).to(dtype)
        new_rows, corner = rows[:, first:], change.corner.to(dtype)
        old_rows = torch.cat([change.own.to(dtype), rows[:, :first]]) if added else rows
        results: list[tuple[Tensor, Tensor]] = []
        size = max(_CACHED, min(_BLOCK, _PRODUCTS // old_rows.shape[0]))
        for start in range(0, max(store.num_points, 1), size):
            block = slice(start, min(start + size, store.num_points))
            products = store.products(old_rows, block)
            variance = self.variance[block]
            if added and columns is not None:
                features = torch.linalg.solve_triangular(corner, columns(block) - products[:added], upper=False)
                store.write(features, block, first)
                products = products[added:].addmm_(new_rows, features)
                variance = with_squares(variance, features, -1)
            fallen, risen, mean = products.split(counts)
            variance = with_squares(with_squares(variance, fallen, -1), risen, 1)
            results.append((variance, mean[0]))
        variance, mean = results[0] if len(results) == 1 else map(torch.cat, zip(*results, strict=True))
        mean = mean if self.prior_mean is None else mean + self.prior_mean
        return replace(self, features=store, variance=variance, mean=mean)


def with_squares(values: Tensor, rows: Tensor, sign: int) -> Tensor:
    """Return values (n,) plus or minus the sum of squares of rows (k, n)."""
    if rows.shape[0] == 0:
        return values
    if rows.shape[0] == 1:
        return torch.addcmul(values, rows[0], rows[0], value=sign)
    return torch.add(values, rows.square().sum(0), alpha=sign)


def blocks_of(number: int) -> Iterator[slice]:
    """Yield blocks of so many points."""
    for start in range(0, number, _CACHED):
        yield slice(start, min(start + _CACHED, number))
