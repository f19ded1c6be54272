"""Numbers on a quarter of a circle around a point that stands for none: for parameters that are not always there."""

import math

import torch
from torch import Tensor

#: The ends of the arc are at distance 1, as any two choices are; the centre is at this distance from all of it.
RADIUS = math.sqrt(0.5)

#: tan(π/8): half of half of a right angle.
_END = math.sqrt(2.0) - 1.0


def rolled(numbers: Tensor) -> Tensor:
    """Return points (..., 2) of the arc, in [0, 1]², for numbers (...,) in [0, 1].

    The arc is run through at nearly constant speed, within 17 %. All of it is sums, products and quotients, so that the
    same number has the same bits wherever it stands in a tensor; that does not hold for cosines.

    Source: Swersky et al., "Raiders of the lost architecture", 2013, the arc kernel, whose points are at angles
    proportional to the number. Differs: the tangent of half the angle from the middle is.
    """
    tangent = _END * (2.0 * numbers - 1.0)
    square = tangent * tangent
    across, along = (1.0 - square) / (1.0 + square), 2.0 * tangent / (1.0 + square)
    return (0.5 * torch.stack([across - along, across + along], -1)).clamp(0.0, 1.0)


def unrolled(points: Tensor) -> Tensor:
    """Return the numbers (...,) of the nearest points of the arc to points (..., 2) of [0, 1]²; 1/2 at the centre."""
    first, second = points.unbind(-1)
    across, along = second + first, second - first
    away = (across * across + along * along).sqrt() + across
    tangent = torch.where(away > 0.0, along / away, 0.0)
    return (0.5 * (tangent / _END + 1.0)).clamp(0.0, 1.0)
