"""Which columns of a point a parameter has, and when it is there."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits.spaces.kinds import Parameter

#: The ends of the arc are at distance 1, as any two choices are; the centre is at this distance from all of it.
RADIUS = math.sqrt(0.5)

#: tan(π/8): half of half of a right angle.
_END = math.sqrt(2.0) - 1.0


@dataclass(frozen=True, eq=False)
class Slot:
    """The columns of one parameter.

    One that is always there has a column for its number; of two choices the column is 0 or 1, of more each has one,
    1/√2 for the choice taken. One that is not always there lies on a sphere around 0, which stands for its absence:
    numbers on an arc, choices on an axis each. So a point without it is as far from all points with it, by 1/√2, and
    the ends of a range, as any two choices, are at distance 1.

    Conditions are the places of slots that it depends on, and the numbers (v,) of the values with which it is there.
    """

    name: str
    parameter: Parameter
    start: int
    conditions: tuple[tuple[int, Tensor], ...] = ()

    @property
    def is_continuous(self) -> bool:
        """Whether it may take any number of a range."""
        return self.parameter.count == math.inf

    @property
    def is_rolled(self) -> bool:
        """Whether it is a number on an arc."""
        return bool(self.conditions) and self.parameter.is_ordered and self.parameter.count > 1

    @property
    def width(self) -> int:
        """The number of columns; none where there is a single value."""
        if self.parameter.count == 1:
            return 0
        if self.parameter.is_ordered:
            return 2 if self.conditions else 1
        return 1 if self.parameter.count == 2 and not self.conditions else int(self.parameter.count)

    def read(self, points: Tensor) -> Tensor:
        """Return the numbers of the parameter at points (n, d), (n,), which need not be those of values."""
        block = points[:, self.start : self.start + self.width]
        if self.parameter.count == 1:
            return points.new_full((len(points),), 0.5)
        if self.parameter.is_ordered:
            return unrolled(block) if self.is_rolled else block.squeeze(-1)
        if self.parameter.count > 2:
            choice = block.max(-1).indices
        else:
            choice = (block if self.width == 1 else 0.5 * ((block[:, 1:] - block[:, :1]) / RADIUS + 1.0))[:, 0] >= 0.5
        return (choice.double() + 0.5) / self.parameter.count

    def written(self, numbers: Tensor) -> Tensor:
        """Return the columns (n, width) of numbers of values (n,), NaN where the parameter is not there."""
        if not self.width or (self.width == 1 and self.parameter.is_ordered):
            return numbers.unsqueeze(-1)[:, : self.width]
        there, numbers = ~numbers.isnan().unsqueeze(-1), numbers.nan_to_num(0.5)
        if self.is_rolled:
            return torch.where(there, rolled(numbers), 0.0)
        choice = (numbers * self.parameter.count).long().unsqueeze(-1)
        if self.width == 1:
            return choice.double()
        return torch.where(there, numbers.new_zeros(len(numbers), self.width).scatter_(1, choice, RADIUS), 0.0)

    def is_there(self, numbers: Tensor) -> Tensor:
        """Say of the numbers (n, S) of values of all slots, NaN of those before that are not there, whether it is."""
        found = torch.ones(len(numbers), dtype=torch.bool)
        for place, wanted in self.conditions:
            found = found & torch.isin(numbers[:, place], wanted)
        return found


def rolled(numbers: Tensor) -> Tensor:
    """Return points (..., 2) of a quarter of a circle, in [0, 1]², for numbers (...,) in [0, 1].

    Source: Swersky et al., "Raiders of the lost architecture", 2013, the arc kernel, whose points are at angles
    proportional to the number. Differs: the tangent of half the angle from the middle is, within 17 % of that speed; of
    sums, products and quotients alone the same number has the same bits wherever it stands in a tensor.
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
