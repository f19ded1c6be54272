"""Points that follow a posterior: their coordinates, means and variances, brought up to date in one pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.features import Features
from torch_kbandits.posteriors.gaussian import Gaussian, Move
from torch_kbandits.posteriors.steps import Arrays

Array = NDArray[Any]


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

    def arrays(self, size: int, number: int) -> Arrays:
        """Return what ``table_loops.follow`` takes of it.

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

    def followed(self, update: Update, values: Callable[[], Any]) -> Self:
        """Return the table after an update. Cost: one read of the features.

        Args:
            update: what changed.
            values: returns the kernel values (n,) of the point of a new coordinate.
        """
        before, column, moments = self.features, update.column, (self.mean, self.variance, self.spanned)
        features, new, corner = before, None, 1.0
        if column is not None:
            features, new, corner = before.with_column(), values(), column.corner
        arrays, memory = update.arrays(before.columns, len(self.mean)), features.memory
        return self._with(features, *before.steps.followed(arrays, new, corner, before.known, memory, moments))

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return the table with all moments computed afresh from the features. Cost: O(n m²).

        Args:
            gaussian: what is believed of the coordinates.
            void: orthonormal directions that the dictionary does not span, (r, m).
        """
        features, known = self.features, (self.features.known, self.prior, self.expected)
        return self._with(features, *features.steps.refitted(gaussian, void, *known))

    def _with(self, features: Features, mean: Any, variance: Any, spanned: Any) -> Self:
        return changed(self, features=features, mean=mean, variance=variance, spanned=spanned)
