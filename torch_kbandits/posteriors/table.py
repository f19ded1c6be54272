"""Points that follow a posterior: their coordinates, means and variances, brought up to date in one pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits.loops import table_loops
from torch_kbandits.numerics.compiled import in_parts
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.features import Features
from torch_kbandits.posteriors.gaussian import Gaussian, Move

Array = NDArray[Any]

_NONE = np.empty(0)


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
    """What changed of a posterior: one more coordinate, maybe, and then moves in all coordinates."""

    column: Column | None
    moves: Sequence[Move]

    def arrays(self, size: int, number: int) -> tuple[Array, Array, Array, Array, Array]:
        """Return what ``table_loops.follow`` takes of it: rows, last, scales, spans, steps.

        Args:
            size: number of coordinates before.
            number: k, how many means there are.
        """
        moves = self.moves
        rows = np.stack([each.row[:size] for each in (self.column, *moves) if each is not None])
        last = np.array([0.0 if self.column is None else each.row[size] for each in moves])
        steps = np.array([each.step for each in moves]).reshape(len(moves), number).T.copy()
        scales, spans = (np.array(part) for part in ([each.scale for each in moves], [each.span for each in moves]))
        return rows, last, scales, spans, steps


@dataclass(frozen=True, eq=False)
class Table:
    """Means and variances of n points, in double precision. A value, whose successors share the features.

    Attributes:
        features: coordinates z, (n, m).
        prior: prior variances, (n,).
        expected: prior means, (k, n).
        mean: posterior means, (k, n).
        variance: posterior variances, (n,); rounding may have made them negative.
        spanned: what the dictionary spans of prior variances, (n,).
    """

    features: Features
    prior: Array
    expected: Array
    mean: Array
    variance: Array
    spanned: Array

    @classmethod
    def of(cls, features: Features, prior: Array, expected: Array) -> Self:
        """Return points before any reward, in no coordinates."""
        return cls(features, prior, expected, expected, prior, 0.0 * prior)

    def followed(self, update: Update, values: Callable[[], Any]) -> Self:
        """Return the table after an update. Cost: one read of the features.

        Args:
            update: what changed.
            values: returns the kernel values (n,) of the point of a new coordinate.
        """
        column, size = update.column, self.features.columns
        rows, last, scales, spans, steps = update.arrays(size, len(self.mean))
        products = self.features.products(rows)
        features = self.features if column is None else self.features.with_column()
        mean, variance, spanned = self.mean.copy(), self.variance.copy(), self.spanned.copy()
        in_parts(
            table_loops.follow,
            len(variance),
            16 * len(variance),
            products,
            _NONE if column is None else np.asarray(values(), np.float64),
            1.0 if column is None else column.corner,
            last,
            scales,
            spans,
            steps,
            features.memory,
            size,
            mean,
            variance,
            spanned,
        )
        return changed(self, features=features, mean=mean, variance=variance, spanned=spanned)

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return the table with all moments computed afresh from the features. Cost: O(n m²).

        Args:
            gaussian: what is believed of the coordinates.
            void: orthonormal directions that the dictionary does not span, (r, m).
        """
        F = np.asarray(self.features.known)
        mean = self.expected + gaussian.mean @ F.T
        inside = np.einsum("ij,ij->i", F, F, dtype=np.float64)
        products = torch.from_numpy(F).double() @ torch.from_numpy(gaussian.cov)
        left = np.einsum("ij,ij->i", products.numpy(), F, dtype=np.float64)
        spanned = inside - np.square(F @ void.T).sum(1) if len(void) else inside
        return changed(self, mean=mean, variance=self.prior - inside + left, spanned=spanned)
