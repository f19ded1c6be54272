"""Coordinates of many points, to which columns and rows are appended; see ``DeviceFeatures`` for those on a device."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

#: Columns come in blocks of so many, so that rows begin where vector registers do.
_BLOCK = 16


class Features:
    """Coordinates (n, m) of points. A value, whose successors share its memory.

    There is room behind what was appended. The first to append writes there, and whoever appends to the same value
    later copies it, as with ``Rows``.

    Args:
        memory: (N, M).
        rows: n.
        columns: m.
    """

    __slots__ = ("_taken", "columns", "memory", "rows")

    def __init__(self, memory: Any, rows: int, columns: int) -> None:
        self.memory, self.rows, self.columns = memory, rows, columns
        self._taken = [rows, columns]

    @classmethod
    def none(cls, rows: int, like: Tensor) -> Self:
        """Return features of so many points in no coordinates, in the dtype of a tensor."""
        return cls(like.new_empty(rows, _BLOCK).numpy(), rows, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._copied(*self.shape), *self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Return n and m."""
        return self.rows, self.columns

    @property
    def known(self) -> Any:
        """The coordinates (n, m), not to be written to."""
        return self.memory[: self.rows, : self.columns]

    @property
    def is_large(self) -> bool:
        """Whether a product with them is worth threads."""
        return self.rows * self.columns >= 2**16

    def products(self, rows: np.ndarray) -> Any:
        """Return the products (r, n) of rows (r, m) with them. Cost: O(n m r), one read of the features."""
        rows = rows.astype(self.memory.dtype, copy=False)
        if not self.is_large:
            return rows @ self.known.T
        return torch.mm(torch.from_numpy(rows), torch.from_numpy(self.known).mT).numpy()

    def rewritten(self, columns: int, blocks: Iterable[tuple[int, Any]]) -> Self:
        """Return other coordinates (n, m) of the same points, given by blocks (b, m) with the first row of each."""
        fresh = self._empty(self.rows, _BLOCK * ((columns + columns // 2) // _BLOCK + 1))
        for first, block in blocks:
            fresh[first : first + len(block), :columns] = block
        return type(self)(fresh, self.rows, columns)

    def with_column(self) -> Self:
        """Return them with one more column, which its first caller writes."""
        n, m = self.shape
        memory, taken = self.memory, self._taken
        if taken != [n, m] or m == memory.shape[1]:
            memory, taken = self._copied(memory.shape[0], _BLOCK * ((m + m // 2) // _BLOCK + 1)), [n, m]
        return self._after(memory, taken, n, m + 1)

    def with_rows(self, new: np.ndarray) -> Self:
        """Return them with the coordinates of more points, (q, m)."""
        n, m = self.shape
        memory, taken, number = self.memory, self._taken, n + len(new)
        if taken != [n, m] or number > memory.shape[0]:
            memory, taken = self._copied(2 * number, memory.shape[1]), [n, m]
        memory[n:number, :m] = new
        return self._after(memory, taken, number, m)

    def _after(self, memory: Any, taken: list[int], rows: int, columns: int) -> Self:
        taken[:] = rows, columns
        after = object.__new__(type(self))
        after.memory, after.rows, after.columns, after._taken = memory, rows, columns, taken
        return after

    def _empty(self, rows: int, columns: int) -> Any:
        """Return memory of this size."""
        return np.empty((rows, columns), self.memory.dtype)

    def _copied(self, rows: int, columns: int) -> Any:
        """Return memory of this size with the coordinates."""
        memory = self._empty(rows, columns)
        memory[: self.rows, : self.columns] = self.known
        return memory
