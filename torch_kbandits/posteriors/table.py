"""Points that follow a posterior: their coordinates, means and variances, brought up to date in one pass."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.loops import table_loops
from torch_kbandits.loops.compiled import in_parts
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian, Move

Array = NDArray[Any]

#: Columns come in blocks of so many, so that rows begin where vector registers do.
_BLOCK = 16

#: What ``table_loops.follow`` takes of an update: rows, last, corners, changes.
Arrays = tuple[Array, Array, Array, Array]


class Steps(ABC):
    """How, for points of one place. What has no number for each of them is NumPy's, in double precision.

    Values are (n,), means (k, n), features z (n, m), and moments are means, variances and what the dictionary spans.
    """

    @abstractmethod
    def kept(self, *arrays: Array) -> Sequence[Any]:
        """Return what the host knows of each point where the points are."""

    @abstractmethod
    def own(self, values: Tensor) -> Any:
        """Return what PyTorch computed where the points are as it is kept."""

    @abstractmethod
    def empty(self, like: Any, rows: int, columns: int) -> Any:
        """Return memory, (rows, columns), of the kind of other."""

    @abstractmethod
    def times(self, values: Tensor, matrix: Array) -> Any:
        """Return values (n, m) that PyTorch computed where the points are times a matrix (m, r)."""

    @abstractmethod
    def products(self, rows: Array, memory: Any) -> Any:
        """Return the products (r, n) of rows (r, m) with the first m columns of features (n, M). Cost: O(n m r)."""

    @abstractmethod
    def followed(self, update: Arrays, values: Any, features: Any, memory: Any, moments: Any) -> Any:
        """Return moments after an update. Cost: one read of the features.

        Args:
            update: what there is of it.
            values: of the kernel with the points of new coordinates, (c, n); None for none.
            features: before.
            memory: of which columns m to m + c − 1 are written with the new coordinates, (n, M).
            moments: before.
        """

    @abstractmethod
    def refitted(self, gaussian: Gaussian, void: Array, memory: Any, prior: Any, expected: Any) -> Sequence[Any]:
        """Return moments computed afresh, given features (n, M), prior variances and means. Cost: O(n m²)."""

    @abstractmethod
    def bordered(self, taken: Any, below: Array, column: Any, corner: float) -> Any:
        """Return F (l, n) with one more row, (column − belowᵀF) / corner; see ``Pending``."""

    @abstractmethod
    def left(self, variance: Any, taken: Any) -> Any:
        """Return what F (l, n) leaves of variances, at least 0."""


class HostSteps(Steps):
    """On the CPU, by NumPy and loops."""

    @override
    def kept(self, *arrays: Array) -> Sequence[Array]:
        return arrays

    @override
    def own(self, values: Tensor) -> Array:
        return values.numpy()

    @override
    def empty(self, like: Array, rows: int, columns: int) -> Array:
        return np.empty((rows, columns), like.dtype)

    @override
    def times(self, values: Tensor, matrix: Array) -> Array:
        memory, rows = values.numpy(), np.ascontiguousarray(matrix.T, values.numpy().dtype)
        out = np.zeros((len(memory), len(rows)), memory.dtype)
        if rows.size:
            in_parts(table_loops.times, len(memory), _cost(rows, memory), rows, memory, out)
        return out

    @override
    def products(self, rows: Array, memory: Array) -> Array:
        out = np.zeros((len(rows), len(memory)), memory.dtype)
        if rows.size:
            rows = np.ascontiguousarray(rows, memory.dtype)
            in_parts(table_loops.products, len(memory), _cost(rows, memory), rows, memory, out)
        return out

    @override
    def followed(self, update: Arrays, values: Any, features: Array, memory: Array, moments: Any) -> Any:
        rows, last, corners, changes = update
        columns = np.empty((0, len(features))) if values is None else np.asarray(values, np.float64)
        mean, variance, spanned = moments
        after = mean.copy(), variance.copy(), spanned.copy()
        rows = np.ascontiguousarray(rows, features.dtype)
        words = rows, columns, last, corners, changes, memory, *after
        in_parts(table_loops.follow, len(features), _cost(rows, features), *words)
        return after

    @override
    def refitted(
        self, gaussian: Gaussian, void: Array, memory: Array, prior: Array, expected: Array
    ) -> Sequence[Array]:
        mean, variance, spanned = expected.copy(), np.empty_like(prior), np.empty_like(prior)
        # Of zᵀ cov z half of the products are the others once more.
        rows = np.concatenate((2.0 * np.tril(gaussian.cov, -1) + np.diag(gaussian.cov.diagonal()), gaussian.mean, void))
        words = rows, memory, np.ascontiguousarray(prior), mean, variance, spanned
        in_parts(table_loops.refit, len(prior), _cost(rows, memory), *words)
        return mean, variance, spanned

    @override
    def bordered(self, taken: Array, below: Array, column: Array, corner: float) -> Array:
        return np.vstack((taken, (column - below @ taken) / corner))

    @override
    def left(self, variance: Array, taken: Array) -> Array:
        return np.maximum(variance - np.einsum("la,la->a", taken, taken), 0.0)


def _cost(rows: Array, features: Array) -> int:
    """Return about how many numbers a loop reads for products of rows (r, m) with features, four rows at a time."""
    return len(features) * (rows.shape[1] + 16) * (1 + len(rows) // 4)


#: One for all.
HOST = HostSteps()


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

    def product(self, row: Array) -> Any:
        """Return the products (n,) of a row (m,) with them. Cost: O(n m)."""
        return self.products(row[None])[0]

    def products(self, rows: Array) -> Any:
        """Return the products (r, n) of rows (r, m) with them. Cost: O(n m r)."""
        return self.steps.products(rows, self.memory[: self.rows])

    def rewritten(self, columns: int, blocks: Iterable[tuple[int, Any]]) -> Self:
        """Return other coordinates (n, m) of the same points, given by blocks (b, m) with the first row of each."""
        fresh = self.steps.empty(self.memory, self.rows, _BLOCK * ((columns + columns // 8) // _BLOCK + 1))
        for first, block in blocks:
            fresh[first : first + len(block), :columns] = block
        return type(self)(fresh, self.rows, columns, self.steps)

    def with_columns(self, number: int = 1) -> Self:
        """Return them with more columns, which their first caller writes."""
        (n, m), after = self.shape, self.columns + number
        memory, taken = self.memory, self._taken
        if taken != [n, m] or after > memory.shape[1]:
            memory, taken = self._copied(memory.shape[0], _BLOCK * ((m + m // 8 + number) // _BLOCK + 1)), [n, m]
        return self._after(memory, taken, n, after)

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


class Column(NamedTuple):
    """One more coordinate: (k(x, ·) − rowᵀz) / corner.

    Attributes:
        place: of its point x among those that are known.
        row: (m,).
        corner: above 0.
    """

    place: int
    row: Array
    corner: float


class Update(NamedTuple):
    """What changed of a posterior: more coordinates, maybe, and moves, each in the coordinates that there were then."""

    columns: tuple[Column, ...]
    moves: tuple[Move, ...]

    def then(self, other: "Update") -> "Update":
        """Return this update and another after it in one: a move leaves coordinates that came later as they are."""
        return Update(self.columns + other.columns, self.moves + other.moves)

    def arrays(self, size: int) -> Arrays:
        """Return what ``table_loops.follow`` takes of it, given the number of coordinates before."""
        columns, moves = self
        rows = np.zeros((len(columns) + len(moves), size + len(columns)))
        for row, each in zip(rows, columns + moves, strict=True):
            row[: len(each.row)] = each.row
        corners = np.array([each.corner for each in columns])
        changes = np.array([(each.scale, each.span, *each.step) for each in moves])
        return rows[:, :size], rows[:, size:], corners, changes


#: What leaves all as it is.
NO_UPDATE = Update((), ())


@dataclass(frozen=True, eq=False)
class Table:
    """Means and variances of n points, in double precision. A value, whose successors share the features.

    They are NumPy's; of points on a device they are tensors there.

    Attributes:
        features: coordinates z, (n, m).
        prior: prior variances, (n,).
        expected: prior means, (k, n).
        mean: posterior means, (k, n).
        variance: posterior variances, (n,); rounding may have made them negative.
        spanned: what the dictionary spans of prior variances, (n,).
    """

    features: Features
    prior: Any
    expected: Any
    mean: Any
    variance: Any
    spanned: Any

    @classmethod
    def of(cls, features: Features, prior: Any, expected: Any) -> Self:
        """Return points before any reward, in no coordinates."""
        return cls(features, prior, expected, expected, prior, 0.0 * prior)

    def followed(self, update: Update, values: Any) -> Self:
        """Return the table after an update. Cost: one read of the features.

        Args:
            update: what changed.
            values: of the kernel with the points of new coordinates, (c, n); None for none.
        """
        before, moments = self.features, (self.mean, self.variance, self.spanned)
        features = before if values is None else before.with_columns(len(values))
        words = update.arrays(before.columns), values, before.known, features.memory, moments
        return self._with(features, *before.steps.followed(*words))

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return the table with all moments computed afresh from the features. Cost: O(n m²).

        Args:
            gaussian: of the coordinates.
            void: orthonormal directions that the dictionary does not span, (r, m).
        """
        features = self.features
        words = features.memory[: features.rows], self.prior, self.expected
        return self._with(features, *features.steps.refitted(gaussian, void, *words))

    def _with(self, features: Features, mean: Any, variance: Any, spanned: Any) -> Self:
        return changed(self, features=features, mean=mean, variance=variance, spanned=spanned)
