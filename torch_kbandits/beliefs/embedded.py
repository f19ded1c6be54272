"""Joint points in the coordinates of a posterior."""

from typing import NamedTuple

from torch import Tensor


class Embedded(NamedTuple):
    """Points as a posterior over joint points sees them.

    Attributes:
        points: (k, d).
        coordinates: L⁻¹ times their kernel values with the m points that the posterior stands on, (m, k).
        prior_variance: (k,).
        values: these kernel values, (m, k), if they are needed later.
    """

    points: Tensor
    coordinates: Tensor
    prior_variance: Tensor
    values: Tensor | None = None

    def column(self, number: int) -> "Embedded":
        """Return one of the points alone."""
        one = slice(number, number + 1)
        values = None if self.values is None else self.values[:, one]
        return Embedded(self.points[one], self.coordinates[:, one], self.prior_variance[one], values)
