"""Coordinates of many points, to which columns and rows are appended."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from torch import Tensor

from torch_kbandits.posteriors.steps import HOST, Steps

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
        steps: what is done where they are.
    """

    __slots__ = ("_taken", "columns", "memory", "rows", "steps")

    def __init__(self, memory: Any, rows: int, columns: int, steps: Steps = HOST) -> None:
        self.memory, self.rows, self.columns, self.steps = memory, rows, columns, steps
        self._taken = [rows, columns]

    @classmethod
    def none(cls, rows: int, like: Tensor, steps: Steps = HOST) -> Self:
        """Return features of so many points in no coordinates, in the dtype of a tensor."""
        return cls(steps.own(like.new_empty(rows, _BLOCK)), rows, 0, steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self._copied(*self.shape), *self.shape, self.steps)

    @property
    def shape(self) -> tuple[int, int]:
        """Return n and m."""
        return self.rows, self.columns

    @property
    def known(self) -> Any:
        """The coordinates (n, m), not to be written to."""
        return self.memory[: self.rows, : self.columns]

    def product(self, row: np.ndarray) -> Any:
        """Return the products (n,) of a row (m,) with them. Cost: O(n m)."""
        return self.steps.products(row[None], self.known)[0]

    def rewritten(self, columns: int, blocks: Iterable[tuple[int, Any]]) -> Self:
        """Return other coordinates (n, m) of the same points, given by blocks (b, m) with the first row of each."""
        fresh = self.steps.empty(self.memory, self.rows, _BLOCK * ((columns + columns // 2) // _BLOCK + 1))
        for first, block in blocks:
            fresh[first : first + len(block), :columns] = block
        return type(self)(fresh, self.rows, columns, self.steps)

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
        after.memory, after.rows, after.columns, after._taken, after.steps = memory, rows, columns, taken, self.steps
        return after

    def _copied(self, rows: int, columns: int) -> Any:
        """Return memory of this size with the coordinates."""
        memory = self.steps.empty(self.memory, rows, columns)
        memory[: self.rows, : self.columns] = self.known
        return memory
