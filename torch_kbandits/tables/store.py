"""Features of many points, in memory that copies share."""

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.shallow import shallow_copy

#: Points whose features lie together, and are written anew where more features need more room: so many are there twice
#: meanwhile. Of more points, parts of all, but not less than the second number. Elsewhere each part takes launches.
_SEGMENT, _LEAST_SEGMENT, _SEGMENTS = 16384, 4096, 16
_SEGMENT_ELSEWHERE = 2**22

#: Features for which there is more room at least, a multiple of what vector registers hold.
_STEP = 8

#: Multiples of so many bytes are no distance for points.
_CONTENDED = 2048

#: Room that is made for more features, as a fraction of those there are; for more numbers than this, a smaller one.
#: Passes leap over what is not used of it, and memory is fetched ahead no further than a small leap: with half as much
#: again as room they took twice as long.
_FEW = 2**22
_ROOM, _ROOM_OF_MANY = 8, 16

#: Bytes of all features from which on memory is asked of the system itself, which takes longer.
_MUCH = 2**23

#: Such memory is of this process alone, where a system tells the two apart: memory to share takes longer.
_OWN = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}

#: One point in so many is room for more, where some are selected.
_SPARE = 8

#: Points whose features are solved with at a time, so that they stay in cache.
_CACHED = 4096


class FeatureStore:
    """Features of n points, point-major: those of a point are next to one another, with room for some more.

    Copies share the memory. A feature or a point is written beyond those that a copy knows of, so of several copies
    only the last one that grew may go on growing. Where there is no more room the memory is replaced in all copies,
    a segment of points at a time, so that all of it is never there twice.

    Args:
        num_points: n.
        like: a tensor whose dtype and device all have.
    """

    def __init__(self, num_points: int, like: Tensor) -> None:
        self._like = like.new_empty(0)
        self.num_points = 0
        self.size = 0
        self._segments: list[Tensor] = []  # (points, features) each, more of both than there are
        some = _SEGMENT if num_points <= _SEGMENT else max(_LEAST_SEGMENT, -(-num_points // _SEGMENTS))
        self._longest = some if like.is_cpu else _SEGMENT_ELSEWHERE
        self._hold(num_points, num_points)

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
        return shallow_copy(self)

    def resize(self, size: int) -> None:
        """Hold ``size`` features; those beyond the old size are to be written."""
        for number, segment in enumerate(self._segments):
            if size > segment.shape[1]:
                wider = self._memory(len(segment), self._width(size))
                wider[:, : segment.shape[1]] = segment
                self._segments[number] = wider
                if not number and self._is_much(size):
                    _give_back()
        self.size = size

    def rewritten(self, size: int) -> Self:
        """Return a store of so many other features of the same points, all to be written, over what copies show."""
        other = self.copy()
        other.size = size
        for number, segment in enumerate(self._segments):
            # Shorter than it was, if an interrupt came between the two assignments below.
            length = max(len(segment), min(self.num_points - number * self._longest, self._longest))
            if len(segment) < length or not size <= segment.shape[1] <= 2 * self._width(size):
                self._segments[number] = segment.new_empty(0, 0)  # first, so that both are never there
                self._segments[number] = self._memory(length, self._width(size))
        return other

    def write(self, features: Tensor, block: slice, first: int) -> None:
        """Write features (k, |block|) of a block of points, the first of which has number ``first``."""
        for part, segment, rows in self._parts(block):
            segment[rows, first : first + len(features)] = features[:, part].mT

    def products(self, rows: Tensor, block: slice) -> Tensor:
        """Return rows (k, m') times the first m' features of a block of points, (k, |block|): one pass over them."""
        parts = [rows @ segment[some, : rows.shape[1]].mT for _, segment, some in self._parts(block)]
        return parts[0] if len(parts) == 1 else torch.cat([rows.new_empty(rows.shape[0], 0), *parts], dim=1)

    def columns(self, index: Tensor) -> Tensor:
        """Return the features (m, q) of some points, given their numbers (q,)."""
        if len(self._segments) == 1:
            return self._segments[0].index_select(0, index)[:, : self.size].mT
        if not self._like.is_cpu:  # where knowing which of the few segments have some means to wait
            return self._columns_of_few_segments(index)
        columns, numbers = self._like.new_empty(len(index), self.size), index // self._longest
        for number in numbers.unique().tolist():
            there = (numbers == number).nonzero().squeeze(-1)
            columns[there] = self._segments[number][index[there] - number * self._longest, : self.size]
        return columns.mT

    def _columns_of_few_segments(self, index: Tensor) -> Tensor:
        """Return what ``columns`` does, reading as many points of each segment."""
        places = torch.arange(len(self._segments), device=index.device).unsqueeze(-1)
        rows = torch.sub(index, places, alpha=self._longest).clamp(0, self._longest - 1)  # of the last there are fewer
        parts = [each.index_select(0, some)[:, : self.size] for each, some in zip(self._segments, rows, strict=True)]
        return torch.stack(parts).take_along_dim((index // self._longest).view(1, -1, 1), 0).squeeze(0).mT

    def row(self, number: int) -> np.ndarray:
        """Return the features (m,) of a point, of a store on the host; not to be written to."""
        place, row = divmod(number, self._longest)
        return self._segments[place].numpy()[row, : self.size]

    def block(self, block: slice) -> Tensor:
        """Return the features of a block of points, (m, |block|); not to be written to."""
        parts = [segment[rows, : self.size].mT for _, segment, rows in self._parts(block)]
        return parts[0] if len(parts) == 1 else torch.cat([self._like.new_empty(self.size, 0), *parts], dim=1)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the features of all points, so many at a time that they stay in cache."""
        for block in self._blocks():
            yield block, self.block(block)

    def segments(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield all points in parts, each with the memory (points, features) in which its features come first."""
        for number, segment in enumerate(self._segments):
            first = number * self._longest
            if first < self.num_points:
                yield slice(first, min(first + self._longest, self.num_points)), segment

    def pieces(self, size: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the same, at most so many points at a time, and of the memory no other points."""
        for block, segment in self.segments():
            for start in range(block.start, block.stop, size):
                stop = min(start + size, block.stop)
                yield slice(start, stop), segment[start - block.start : stop - block.start]

    def selected(self, index: Tensor) -> "FeatureStore":
        """Return the features of some points, given their numbers (q,), in memory with room for some more points."""
        store = FeatureStore(0, self._like)
        store.size = self.size
        store._hold(len(index), len(index) + len(index) // _SPARE + 1)
        store.write(self.columns(index), slice(0, len(index)), 0)
        return store

    def shortened(self, size: int) -> "FeatureStore":
        """Return the first features alone, in memory of its own."""
        blocks = ((block, features[:size]) for block, features in self.blocks())
        return FeatureStore.holding(blocks, self.num_points, size, self._like)

    def append_points(self, features: Tensor) -> None:
        """Append points with features (m, q); the room for points doubles when it is used up."""
        first, number = self.num_points, self.num_points + features.shape[1]
        self._hold(number, max(number, 2 * first))
        self.write(features, slice(first, number), 0)

    def _blocks(self) -> Iterator[slice]:
        return blocks_of(self.num_points, self._like, self.size)

    def append_row(self, features: np.ndarray) -> None:
        """Append a point with features (m,), of a store on the host; the room for points doubles."""
        first = self.num_points
        place, row = divmod(first, self._longest)
        if place >= len(self._segments) or row >= len(self._segments[place]):
            self._hold(first + 1, max(first + 1, 2 * first))
        self._segments[place].numpy()[row, : self.size] = features
        self.num_points = first + 1

    def _hold(self, number: int, capacity: int) -> None:
        """Be of so many points, of which the last are to be written; where there is no room, make room for more."""
        held = sum(map(len, self._segments))
        if number > held:
            for place in range(held // self._longest, -(-capacity // self._longest)):
                length = min(capacity - place * self._longest, self._longest)
                longer = self._memory(length, self._width(self.size))
                if place < len(self._segments):
                    old = self._segments[place]
                    longer = self._memory(length, old.shape[1])
                    longer[: len(old)] = old
                self._segments[place : place + 1] = [longer]
        self.num_points = number

    def _memory(self, length: int, width: int) -> Tensor:
        """Return memory (length, width), not to be read before it is written.

        Much of it on a CPU goes back to the system once nobody has it: what the C library frees between parts that are
        in use it keeps, and of memory that grows by and by that becomes as much again.
        """
        if not self._is_much(width) or not length:
            return self._like.new_empty(length, width)
        pages = mmap.mmap(-1, self._like.dtype.itemsize * width * length, **_OWN)
        with suppress(AttributeError, OSError):  # where a system knows of no large pages, which are there sooner
            pages.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(pages, dtype=self._like.dtype).view(length, width)

    def _is_much(self, width: int) -> bool:
        """Say whether so many features of all points are much memory on a CPU."""
        return self._like.is_cpu and self._like.dtype.itemsize * width * self.num_points >= _MUCH

    def _width(self, size: int) -> int:
        """Return for how many features there is to be room where there are so many."""
        room = _ROOM if size * self.num_points <= _FEW else _ROOM_OF_MANY
        width = -(-(size + size // room) // _STEP) * _STEP
        # At these distances the features of neighbours contend for the same places of a cache.
        return width + _STEP if width and width * self._like.itemsize % _CONTENDED == 0 else width

    def _parts(self, block: slice) -> Iterator[tuple[slice, Tensor, slice]]:
        """Yield parts of a block of points: which of the block, their segment, and their rows in it."""
        start = block.start
        while start < block.stop:
            place, row = divmod(start, self._longest)
            stop = min(start - row + self._longest, block.stop)
            yield slice(start - block.start, stop - block.start), self._segments[place], slice(row, row + stop - start)
            start = stop


@cache
def _trim() -> Callable[[int], int] | None:
    """Return what gives memory back that was freed, where the C library has such a function."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def _give_back() -> None:
    """Let the system have what was freed between parts of memory that are in use.

    Vectors over many points, which each round replaces, leave holes there in which smaller things settle, so that the
    next ones do not fit: without this as much was held in the end as all features take.
    """
    if (trim := _trim()) is not None:
        trim(0)


def blocks_of(number: int, like: Tensor, features: int) -> Iterator[slice]:
    """Yield blocks of so many points of so many features, which lie where a tensor does."""
    size = points_at_a_time(like.device, _CACHED, features)
    for start in range(0, number, size):
        yield slice(start, min(start + size, number))
