"""Points that follow a posterior: their coordinates, means and variances, brought up to date in one pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.loops import table_loops
from torch_kbandits.loops.compiled import in_parts
from torch_kbandits.numerics.device import points_at_a_time
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian, Move

Array = NDArray[Any]

#: Columns come in blocks of so many, so that rows begin where vector registers do.
_BLOCK = 16

#: What ``table_loops.follow`` takes of an update: rows, last, corners, changes.
Arrays = tuple[Array, Array, Array, Array]


class Steps:
    """What is done to numbers of each point, on the CPU by NumPy and loops; ``_DeviceSteps`` does it on a device.

    What has no number for each of them is NumPy's, in double precision. Values are (n,), means (k, n), features (n, m)
    in memory (n, M), and moments are means, variances and what the dictionary spans.
    """

    def kept(self, *arrays: Array) -> Sequence[Any]:
        """Return what the host knows of each point where the points are."""
        return arrays

    def own(self, values: Tensor) -> Any:
        """Return what PyTorch computed where the points are as it is kept."""
        return values.numpy()

    def empty(self, like: Any, rows: int, columns: int) -> Any:
        """Return memory, (rows, columns), of the kind of other."""
        return np.empty((rows, columns), like.dtype)

    def products(self, rows: Array, memory: Any) -> Any:
        """Return the products (r, n) of rows (r, m) with the first m columns of memory. Cost: O(n m r)."""
        out = np.zeros((len(rows), len(memory)), memory.dtype)
        if rows.size:
            rows = np.ascontiguousarray(rows, memory.dtype)
            in_parts(table_loops.products, len(memory), _cost(rows, memory), rows, memory, out)
        return out

    def followed(self, update: Arrays, values: Any, features: Any, memory: Any, moments: Any) -> Any:
        """Return moments after an update of features and moments before. Cost: one read of the features.

        Given kernel values (c, n) of the points of new coordinates, columns m to m + c − 1 of memory are written.
        """
        rows, last, corners, changes = update
        columns = np.empty((0, len(features))) if values is None else np.asarray(values, np.float64)
        mean, variance, spanned = moments
        after = mean.copy(), variance.copy(), spanned.copy()
        rows = np.ascontiguousarray(rows, features.dtype)
        words = rows, (columns, last, corners, changes), memory, after
        in_parts(table_loops.follow, len(features), _cost(rows, features), *words)
        return after

    def refitted(self, gaussian: Gaussian, void: Array, memory: Any, prior: Any, expected: Any) -> Sequence[Any]:
        """Return moments computed afresh, given prior variances and means. Cost: O(n m²)."""
        moments = expected.copy(), np.empty_like(prior), np.empty_like(prior)
        # Of zᵀ cov z half of the products are the others once more.
        rows = np.vstack((2.0 * np.tril(gaussian.cov, -1) + np.diag(gaussian.cov.diagonal()), gaussian.mean, *void))
        words = rows, memory, np.ascontiguousarray(prior), moments
        in_parts(table_loops.refit, len(prior), _cost(rows, memory), *words)
        return moments

    def bordered(self, taken: Any, below: Array, column: Any, corner: float) -> Any:
        """Return F (l, n) with one more row, (column − belowᵀF) / corner; see ``Pending``."""
        return np.vstack((taken, (column - below @ taken) / corner))

    def left(self, variance: Any, taken: Any) -> Any:
        """Return what F (l, n) leaves of variances, at least 0."""
        return np.maximum(variance - np.einsum("la,la->a", taken, taken), 0.0)


class _DeviceSteps:
    """What ``Steps`` does, by PyTorch: one copy from the host a step and no wait."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def kept(self, *arrays: Array) -> list[Tensor]:
        sent = torch.from_numpy(np.concatenate([each.ravel() for each in arrays])).to(self.device, non_blocking=True)
        parts = sent.split([each.size for each in arrays])
        return [part.view(each.shape) for part, each in zip(parts, arrays, strict=True)]

    def own(self, values: Tensor) -> Tensor:
        return values

    def empty(self, like: Tensor, rows: int, columns: int) -> Tensor:
        return like.new_empty(rows, columns)

    def products(self, rows: Array, memory: Tensor) -> Tensor:
        return self.kept(rows)[0].to(memory.dtype) @ memory[:, : rows.shape[1]].mT

    def followed(self, update: Arrays, values: Any, features: Tensor, memory: Tensor, moments: Any) -> Any:
        rows, last, corners, changes = update
        (n, m), (mean, variance, spanned), joins = features.shape, moments, len(corners)
        whitened = np.linalg.inv(np.tril(last[:joins], -1) + np.diag(corners))
        has_spans = changes[:, 1].any()
        rows, last, whitened, changes = self.kept(rows, last[joins:], whitened, changes)
        products = (rows.to(features.dtype) @ features.mT).double()
        if joins:
            new = whitened @ (values - products[:joins])
            products = torch.addmm(products[joins:], last, new)
            memory[:n, m : m + joins] = new.mT
        squares = products.square().mT
        spanned = torch.addmv(spanned, squares, changes[:, 1]) if has_spans else spanned
        return torch.addmm(mean, changes[:, 2:].mT, products), torch.addmv(variance, squares, changes[:, 0]), spanned

    def refitted(
        self, gaussian: Gaussian, void: Array, memory: Tensor, prior: Tensor, expected: Tensor
    ) -> Sequence[Tensor]:
        weights, cov, directions = self.kept(gaussian.mean, gaussian.cov, void)
        features = memory[:, : len(cov)]
        size, parts = points_at_a_time(self.device, 1, len(cov)), []
        for block, before, own in zip(*(features.split(size), prior.split(size), expected.split(size, 1)), strict=True):
            F = block.double()
            spanned = F.square().sum(1)
            spanned = spanned - (F @ directions.mT).square().sum(1) if len(void) else spanned
            variance = before + (torch.addmm(F, F, cov, beta=-1.0) * F).sum(1)
            parts.append((torch.addmm(own, weights, F.mT), variance, spanned))
        return [each[0] if len(parts) == 1 else torch.cat(each, -1) for each in zip(*parts, strict=True)]

    def bordered(self, taken: Tensor, below: Array, column: Tensor, corner: float) -> Tensor:
        return torch.vstack((taken, (column - self.kept(below)[0] @ taken) / corner))

    def left(self, variance: Tensor, taken: Tensor) -> Tensor:
        return (variance - taken.square().sum(0)).clamp_min(0.0)


def steps_on(device: torch.device) -> Steps:
    """Return what is done to numbers of points on a device."""
    return HOST if device.type == "cpu" else cast(Steps, _DeviceSteps(device))


def _cost(rows: Array, features: Array) -> int:
    """Return about how many numbers a loop reads for products of rows (r, m) with features, four rows at a time."""
    return len(features) * (rows.shape[1] + 16) * (1 + len(rows) // 4)


#: One for all.
HOST = Steps()


class Features:
    """Coordinates of n points, (n, m), in memory (N, M) of NumPy or a device. A value, whose successors share it.

    There is room behind what was appended. The first to append writes there, and whoever appends to the same value
    later copies it, as with ``Rows``.
    """

    __slots__ = ("_taken", "columns", "memory", "rows", "steps")

    def __init__(
        self, memory: Any, rows: int, columns: int, steps: Steps = HOST, taken: list[int] | None = None
    ) -> None:
        self.memory, self.rows, self.columns, self.steps = memory, rows, columns, steps
        self._taken = [0, 0] if taken is None else taken
        self._taken[:] = rows, columns

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

    def rewritten(self, white: Array, values: Iterable[tuple[int, Tensor]]) -> Self:
        """Return other coordinates W v of the points, (n, m), given v (b, m) of blocks with the first row of each."""
        columns = len(white)
        fresh = self.steps.empty(self.memory, self.rows, _BLOCK * ((columns + columns // 8) // _BLOCK + 1))
        for first, block in values:
            fresh[first : first + len(block), :columns] = self.steps.products(white, self.steps.own(block)).T
        return type(self)(fresh, self.rows, columns, self.steps)

    def over(self, kept: Tensor, new: Self | None) -> Self:
        """Return those of some points, (k,), and after them others in the same coordinates, if any. Cost: O(n m)."""
        others = () if new is None else (torch.as_tensor(new.known),)
        rows = torch.cat([torch.as_tensor(self.known)[kept], *others])
        memory = self.steps.empty(self.memory, len(rows), self.memory.shape[1])
        memory[:, : self.columns] = self.steps.own(rows)
        return type(self)(memory, len(rows), self.columns, self.steps)

    def with_columns(self, number: int = 1) -> Self:
        """Return them with more columns, which their first caller writes."""
        (n, m), after = self.shape, self.columns + number
        memory, taken = self.memory, self._taken
        if taken != [n, m] or after > memory.shape[1]:
            memory, taken = self._copied(memory.shape[0], _BLOCK * ((m + m // 8 + number) // _BLOCK + 1)), [n, m]
        return type(self)(memory, n, after, self.steps, taken)

    def with_rows(self, new: np.ndarray) -> Self:
        """Return them with the coordinates of more points, (q, m)."""
        n, m = self.shape
        memory, taken, number = self.memory, self._taken, n + len(new)
        if taken != [n, m] or number > memory.shape[0]:
            memory, taken = self._copied(2 * number, memory.shape[1]), [n, m]
        memory[n:number, :m] = new
        return type(self)(memory, number, m, self.steps, taken)

    def _copied(self, rows: int, columns: int) -> Any:
        """Return memory of this size with the coordinates."""
        memory = self.steps.empty(self.memory, rows, columns)
        memory[: self.rows, : self.columns] = self.known
        return memory


class Column(NamedTuple):
    """One more coordinate, (k(x, ·) − rowᵀz) / corner, of the point x at a place among those that are known."""

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
        """Return the table after an update, given kernel values (c, n) of new coordinates; see ``Steps.followed``."""
        before, moments = self.features, (self.mean, self.variance, self.spanned)
        features = before if values is None else before.with_columns(len(values))
        words = update.arrays(before.columns), values, before.known, features.memory, moments
        return self._with(features, *before.steps.followed(*words))

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return the table with moments computed afresh, given w and the ``void`` of a posterior. Cost: O(n m²)."""
        features = self.features
        words = features.memory[: features.rows], self.prior, self.expected
        return self._with(features, *features.steps.refitted(gaussian, void, *words))

    def over(self, kept: Tensor, new: Self | None) -> Self:
        """Return the table of some of these points, (k,), and after them of others, if any. Cost: O(n m)."""
        features = self.features.over(kept, None if new is None else new.features)

        def joined(name: str) -> Any:
            others = () if new is None else (torch.as_tensor(getattr(new, name)),)
            return features.steps.own(torch.cat([torch.as_tensor(getattr(self, name))[..., kept], *others], -1))

        return type(self)(features, *map(joined, ("prior", "expected", "mean", "variance", "spanned")))

    def _with(self, features: Features, mean: Any, variance: Any, spanned: Any) -> Self:
        return changed(self, features=features, mean=mean, variance=variance, spanned=spanned)
