"""Coordinates of many points, to which columns and rows are appended."""

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
        memory: (N, M), NumPy's or a tensor on a device.
        rows: n.
        columns: m.
    """

    __slots__ = ("_taken", "columns", "memory", "rows")

    def __init__(self, memory: Any, rows: int, columns: int) -> None:
        self.memory, self.rows, self.columns = memory, rows, columns
        self._taken = [rows, columns]

    @classmethod
    def none(cls, rows: int, like: Tensor, columns: int = 0) -> Self:
        """Return features of so many points, with room for columns, on the device and in the dtype of a tensor."""
        shape = rows, _BLOCK * (columns // _BLOCK + 1)
        if like.is_cpu:
            return cls(np.empty(shape, np.float32 if like.dtype == torch.float32 else np.float64), rows, 0)
        return cls(like.new_empty(shape), rows, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.known.copy() if isinstance(self.memory, np.ndarray) else self.known.clone(), *self.shape)

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
        memory = self.memory
        if not isinstance(memory, np.ndarray):
            return torch.from_numpy(rows).to(memory) @ self.known.mT
        rows = rows.astype(memory.dtype, copy=False)
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
        old, shape = self.memory, (rows, columns)
        return np.empty(shape, old.dtype) if isinstance(old, np.ndarray) else old.new_empty(shape)

    def _copied(self, rows: int, columns: int) -> Any:
        """Return memory of this size with the coordinates."""
        memory = self._empty(rows, columns)
        memory[: self.rows, : self.columns] = self.known
        return memory
