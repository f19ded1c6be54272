"""Changes by squares of rows, of variances and of symmetric matrices, which grow besides."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakIdKeyDictionary

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.shallow import made
from torch_kbandits.posteriors import squares_loops

Signs = NDArray[np.float64]

#: Of matrices returned: the buffer that each shows a corner of, and how much of it is taken.
_BUFFERS = WeakIdKeyDictionary()

#: Rows that are kept apart. Matrices are read often and rewritten seldom, since writing them costs more than all else
#: in a round.
_MOST_ROWS = 32

#: Matrices with more columns than this are written by the products of matrices, for which other threads are woken up.
_LARGEST_LOOPED = 512

_NO_SIGNS: Signs = np.empty(0)
_ONE: dict[float, Signs] = {sign: np.array([sign]) for sign in (1.0, -1.0)}


class Squares(NamedTuple):
    """How the variance at a point of coordinates z changes: by squares of rows applied to z, each of a sign.

    Signs stay with NumPy on the host, whose calls cost a fraction of torch's at this size.

    Attributes:
        rows: (k, m).
        signs: 1 for a square that comes on, -1 for one that comes off, (k,).
        spans: the same of what the dictionary spans of the prior variance at z, 0 where that does not change, (k,).
    """

    rows: Tensor
    signs: Signs
    spans: Signs

    @classmethod
    def none(cls, size: int, like: Tensor) -> Self:
        """Return no change, in ``size`` coordinates."""
        return cls(like.new_empty(0, size), _NO_SIGNS, _NO_SIGNS)

    @classmethod
    def of(cls, rows: Tensor, sign: float, span: float = 0.0) -> Self:
        """Return rows (k, m) of one sign."""
        return cls(rows, np.full(rows.shape[0], sign), np.full(rows.shape[0], span))

    def then(self, other: Self) -> "Squares":
        """Return this change and another one after it, in coordinates of which there may be more by then."""
        if self.rows.shape[0] == 0:
            return other
        return joined([self, other])

    @staticmethod
    def change(signs: Signs, products: Tensor) -> Tensor:
        """Return by how much squares of products (k, n), of rows and points, change what is at the points, (n,)."""
        return torch.from_numpy(signs).to(products) @ products.square()


def joined(parts: list[Squares]) -> Squares:
    """Return what several changes make together, the last of which has at least as many coordinates as the others."""
    if len(parts) == 1:
        return parts[0]
    rows, signs, spans = zip(*parts, strict=True)
    last = rows[-1].shape[1]
    rows = [each if each.shape[1] == last else pad(each, (0, last - each.shape[1])) for each in rows]
    return Squares(torch.cat(rows), np.concatenate(signs), np.concatenate(spans))


def with_sign(signs: Signs, sign: float) -> Signs:
    """Return signs (k,) and one more."""
    return np.concatenate((signs, _ONE[sign]))


def is_full(signs: Signs) -> bool:
    """Say whether a matrix that has rows of these signs (k,) apart is written anew before it has one more."""
    return len(signs) >= _MOST_ROWS


@dataclass(frozen=True, eq=False)
class Tracked:
    """A symmetric matrix (m, m), base + Σ sign rowᵀ row. A value.

    Attributes:
        base: (m, m); not to be written to.
        rows: (k, m).
        signs: (k,).
    """

    base: Tensor
    rows: Tensor
    signs: Signs

    @classmethod
    def of(cls, matrix: Tensor) -> Self:
        """Hold a matrix (m, m)."""
        return cls(matrix, matrix[:0], _NO_SIGNS)

    @cached_property
    def whole(self) -> Tensor:
        """The matrix, (m, m). Cost: O(m²) a row."""
        return self._written(self.base.new_empty(self.base.shape)) if len(self.signs) else self.base

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, Signs]:
        """The parts as loops take them; of the base the first m columns count."""
        return as_rows(self.base), self.rows.contiguous().numpy(), self.signs

    def times(self, columns: Tensor) -> Tensor:
        """Return the matrix times columns (m, c). Cost: O(m² c)."""
        product = self.base @ columns
        return torch.addmm(product, self._signed.mT, self.rows @ columns) if len(self.signs) else product

    def trace(self) -> Tensor:
        """Return the trace, 0-dim. Cost: O(m), and as much a row."""
        return self.base.diagonal().sum() + self._signed.ravel() @ self.rows.ravel()

    def changed(self, squares: Squares) -> Self:
        """Return the matrix after a change of it."""
        if len(self.signs) + len(squares.signs) > _MOST_ROWS:
            return type(self)(self.whole, squares.rows, squares.signs)
        if not len(self.signs):
            return type(self)(self.base, squares.rows, squares.signs)
        return type(self)(self.base, torch.cat([self.rows, squares.rows]), np.concatenate([self.signs, squares.signs]))

    def followed(self, rows: np.ndarray, sign: float) -> Self:
        """Return the matrix with one more row of a sign: rows (k + 1, m) are those there were, and this one."""
        if rows.shape[0] > _MOST_ROWS:
            m = self.base.shape[0]  # with room for as many columns as rows until it is written again
            buffer = self.base.new_empty(m + _MOST_ROWS, m + _MOST_ROWS)
            base = self._written(buffer[:m, :m])
            _BUFFERS[base] = buffer, [m]
            return type(self)(base, torch.from_numpy(rows[-1:]), _ONE[sign])
        return self.showing((self.arrays[0], rows, with_sign(self.signs, sign)))

    def showing(self, arrays: tuple[np.ndarray, np.ndarray, Signs]) -> Self:
        """Return the matrix of these arrays, the first of which are those of the base."""
        rows = torch.from_numpy(arrays[1])
        return made(type(self), {"base": self.base, "rows": rows, "signs": arrays[2], "arrays": arrays})

    def bordered(self, right: Tensor, corner: Tensor) -> Self:
        """Return the matrix with more columns (m, a) and (a, a). Cost: O(m a), and as much a row kept apart."""
        base = grown(self.base, right, right.mT, corner)
        return type(self)(base, pad(self.rows, (0, right.shape[1])), self.signs)

    def with_base(self, base: Tensor, rows: np.ndarray) -> Self:
        """Return the matrix of another base and other rows (k, m) of the same signs."""
        return type(self)(base, torch.from_numpy(rows), self.signs)

    def _written(self, result: Tensor) -> Tensor:
        """Return a matrix (m, m) into which this one is written; its rows are apart from each other, or beside."""
        if result.shape[0] <= _LARGEST_LOOPED and runs_compiled(self.base, self.rows):
            squares_loops.whole(*self.arrays, as_rows(result))
            return result
        return torch.addmm(self.base, self._signed.mT, self.rows, out=result)

    @cached_property
    def _signed(self) -> Tensor:
        return self.rows * torch.from_numpy(self.signs).to(self.rows).unsqueeze(-1)


def grown(matrix: Tensor, right: Tensor, below: Tensor, corner: Tensor) -> Tensor:
    """Return [[matrix, right], [below, corner]] of (m, m), (m, a), (a, m) and (a, a). None may be written to.

    What was returned before has room around it. The first to grow it writes there, and whoever grows it later copies
    it. Cost: O(m a) numbers on average.
    """
    m, size = matrix.shape[0], matrix.shape[0] + right.shape[1]
    buffer, shown = _with_room(matrix, size)
    buffer[:m, m:size], buffer[m:size, :m], buffer[m:size, m:size] = right, below, corner
    return shown


def grown_by_one(matrix: Tensor, right: np.ndarray | float, below: np.ndarray | float, corner: float) -> Tensor:
    """Return the same of one more column and row (m,), on the host."""
    m = matrix.shape[0]
    buffer, shown = _with_room(matrix, m + 1)
    array = buffer.numpy()
    array[:m, m], array[m, :m], array[m, m] = right, below, corner
    return shown


def _with_room(matrix: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return a buffer that begins with a matrix (m, m) and may be written beyond it, and its first rows and columns."""
    m = matrix.shape[0]
    buffer, taken = _BUFFERS.get(matrix) or (matrix, [m])
    if taken[0] != m or buffer.shape[0] < size:
        room = size + size // 2
        buffer, taken = matrix.new_empty(room, room), [m]
        buffer[:m, :m] = matrix
    taken[0] = size  # first, so that after an interrupt nobody else writes there
    shown = buffer[:size, :size]
    _BUFFERS[shown] = buffer, taken
    return buffer, shown


def as_rows(matrix: Tensor) -> np.ndarray:
    """Return a matrix (m, m) as loops take it: one row after another, with any numbers beyond each of them."""
    step = matrix.stride(0)
    if matrix.stride(1) != 1 or step < matrix.shape[1] or not matrix.shape[0]:
        return matrix.contiguous().numpy()
    return torch.as_strided(matrix, (matrix.shape[0], step), (step, 1)).numpy()
