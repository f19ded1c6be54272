"""Rows that grow, and which rows are the same point, 0 and -0 being one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor


class Rows:
    """Rows (n, ...) to which others are appended. A value, whose successors share its memory.

    There is room behind what was appended, which doubles when it is used up. The first to append writes there, and
    whoever appends to the same rows later copies them. On a CPU the memory is NumPy's, whose calls cost less, and a
    tensor shows it when it is asked for.

    Args:
        rows: what there is, not to be written to; as an array on a CPU, where that is known already.
    """

    __slots__ = ("_buffer", "_shown", "_start", "_stop", "_taken")

    def __init__(self, rows: Tensor | np.ndarray) -> None:
        self._take(rows, 0, rows.shape[0], [rows.shape[0]])
        self._shown = rows if isinstance(rows, Tensor) else None

    def _take(self, buffer: Tensor | np.ndarray, start: int, stop: int, taken: list[int]) -> None:
        self._buffer, self._start, self._stop, self._taken, self._shown = buffer, start, stop, taken, None

    def __reduce__(self) -> tuple[type["Rows"], tuple[Tensor]]:
        return Rows, (self.tensor.clone(),)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def tensor(self) -> Tensor:
        """All rows, (n, ...), not to be written to; the same object whenever it is asked for."""
        if self._shown is None:
            part = self._buffer[self._start : self._stop]
            self._shown = part if isinstance(part, Tensor) else torch.from_numpy(part)
        return self._shown

    @property
    def array(self) -> np.ndarray:
        """The same as an array, of rows on a CPU."""
        part = self._buffer[self._start : self._stop]
        return part if isinstance(part, np.ndarray) else part.detach().numpy()

    def followed(self, new: Tensor | np.ndarray) -> Self:
        """Return these rows and new ones (k, ...) after them. Cost: O(k) numbers on average."""
        number, first = new.shape[0], self._stop
        if not number:
            return self
        after = object.__new__(type(self))
        buffer, taken, start = self._buffer, self._taken, self._start
        if taken[0] != first or buffer.shape[0] < first + number:
            first -= start
            buffer, taken, start = self._copied(2 * (first + number)), [first], 0
        taken[0] = first + number  # first, so that after an interrupt nobody else writes there
        if isinstance(buffer, Tensor):
            buffer[first : first + number] = new if isinstance(new, Tensor) else torch.from_numpy(new)
        else:
            buffer[first : first + number] = new.numpy() if isinstance(new, Tensor) else new
        after._take(buffer, start, first + number, taken)
        return after

    def at(self, places: np.ndarray) -> Self:
        """Return a copy of the rows at places (k,)."""
        part = self._buffer[self._start : self._stop]
        return type(self)(part[torch.from_numpy(places)] if isinstance(part, Tensor) else part[places])

    def kept(self, which: np.ndarray) -> Self:
        """Return some of these rows, (n,) bool. Cost: O(n) numbers, but nothing if only the first ones go."""
        gone = len(which) - int(np.count_nonzero(which))
        if which[:gone].any():
            return self.at(np.flatnonzero(which))
        after = object.__new__(type(self))
        after._take(self._buffer, self._start + gone, self._stop, self._taken)
        return after

    def _copied(self, room: int) -> Tensor | np.ndarray:
        """Return a copy of the memory, with room for so many rows."""
        old = self.array
        copy = np.empty((room, *old.shape[1:]), old.dtype)
        copy[: len(old)] = old
        return copy


def row_keys(points: Tensor) -> list[bytes]:
    """Return a hashable key for each row of points (n, d); equal points have equal keys. Cost: O(n d)."""
    numbers = points.detach().cpu().numpy() + 0.0
    return [numbers.tobytes()] if len(numbers) == 1 else [row.tobytes() for row in numbers]


def among(points: Tensor, others: Tensor) -> Tensor:
    """Say of points (n, d) which are rows of others (m, d), (n,) bool. Cost: O(m d), more for several points."""
    if len(points) == 1:
        return (others == points).all(-1).any().unsqueeze(0)
    known = {*row_keys(points)} & {*row_keys(others)} if len(others) else set()
    return torch.tensor([key in known for key in row_keys(points)], dtype=torch.bool, device=points.device)


def distinct(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows (U, d) of points (N, d) and for each row which of them it is, (N,)."""
    return torch.unique(points + 0.0, dim=0, return_inverse=True)


def distinct_in_order(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same as ``distinct``, with the distinct rows in the order of their first appearance."""
    rows, places = distinct(points)
    numbers = torch.arange(len(points), device=points.device)
    first = numbers.new_full((len(rows),), len(points)).scatter_reduce(0, places, numbers, "amin")
    order = first.argsort()
    return rows[order], order.argsort()[places]


#: Entries that an index copies at most when it grows.
_LATEST = 256


@dataclass(frozen=True, eq=False)
class RowIndex:
    """The place of each distinct row, by its key; a value, whose successors share all but the latest entries.

    Attributes:
        earlier: entries that are shared and never written to.
        latest: the others.
    """

    earlier: Mapping[bytes, int]
    latest: Mapping[bytes, int]

    @classmethod
    def of(cls, entries: Mapping[bytes, int]) -> Self:
        """Hold these entries."""
        return cls(entries, {})

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.earlier) + len(self.latest)

    def place(self, key: bytes) -> int | None:
        """Return the place of a row, None if it is not known."""
        place = self.latest.get(key)
        return self.earlier.get(key) if place is None else place

    def extended(self, entries: Mapping[bytes, int]) -> Self:
        """Return the index with rows that are not in it. Cost: O(their number) on average, whatever the index holds."""
        latest = {**self.latest, **entries}
        return type(self)(self.earlier, latest) if len(latest) <= _LATEST else self.of({**self.earlier, **latest})

    def with_rows(self, points: Tensor) -> Self:
        """Return the index with those rows of points (n, d) that are not in it, in their order."""
        fresh: dict[bytes, int] = {}
        for key in row_keys(points):
            if self.place(key) is None:
                fresh.setdefault(key, len(self) + len(fresh))
        return self.extended(fresh) if fresh else self

    def places(self, points: Tensor) -> Tensor:
        """Return the places (n,) of points (n, d), all of which are in it."""
        return torch.tensor([self.place(key) for key in row_keys(points)], dtype=torch.long)

    def entries(self) -> dict[bytes, int]:
        """Return all entries. Cost: O(n)."""
        return {**self.earlier, **self.latest}


def with_owners(parts: Sequence[Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of all parts, (k, d), each of what belongs to one of some points (n, d), and of which, (k,)."""
    owners = torch.arange(len(parts)).repeat_interleave(torch.tensor([len(part) for part in parts]).long())
    return torch.cat([points[:0], *parts]), owners
