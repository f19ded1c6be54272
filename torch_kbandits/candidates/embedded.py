from typing import NamedTuple

import torch
from torch import Tensor


class Embedded(NamedTuple):
    """Points as a growing posterior sees them, in double precision.

    Attributes:
        points: (k, d), in their own dtype.
        values: their kernel values with the m spanning points, (m, k).
        coordinates: L⁻¹ times these, (m, k).
        prior_variance: (k,).
    """

    points: Tensor
    values: Tensor
    coordinates: Tensor
    prior_variance: Tensor

    def column(self, number: int) -> "Embedded":
        """Return one of the points alone."""
        one = slice(number, number + 1)
        return Embedded(self.points[one], self.values[:, one], self.coordinates[:, one], self.prior_variance[one])

    def with_more(self, other: "Embedded") -> "Embedded":
        """Return these points and then others."""
        return Embedded(
            torch.cat([self.points, other.points]),
            torch.cat([self.values, other.values], dim=1),
            torch.cat([self.coordinates, other.coordinates], dim=1),
            torch.cat([self.prior_variance, other.prior_variance]),
        )
