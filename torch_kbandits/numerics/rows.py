"""Rows of tensors: which are the same point, all numbers equal, 0 and -0 being one; and numbers that the host knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

#: Numbers that the host knows, by tensors off the CPU that nobody writes to.
_KNOWN = WeakIdKeyDictionary()


def row_keys(points: Tensor) -> list[bytes]:
    """Return a hashable key for each row of points (n, d); equal points have equal keys. Cost: O(n d)."""
    return [row.tobytes() for row in points.detach().cpu().numpy() + 0.0]


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


def known(numbers: Tensor, values: list[int]) -> Tensor:
    """Return numbers (k,) that nobody may write to, and remember that these are their values."""
    if not numbers.is_cpu:
        _KNOWN[numbers] = values
    return numbers


def listed(numbers: Tensor) -> list[int]:
    """Return the values of numbers (k,) that nobody may write to."""
    if numbers.is_cpu:
        return numbers.tolist()
    values = _KNOWN.get(numbers)
    if values is None:
        values = _KNOWN[numbers] = numbers.tolist()
    return values
