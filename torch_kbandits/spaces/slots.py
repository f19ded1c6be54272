"""Where a parameter stands in a point, and when it is there."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits.spaces.arcs import RADIUS, rolled, unrolled
from torch_kbandits.spaces.kinds import Categorical, Float, Parameter


@dataclass(frozen=True, eq=False)
class Slot:
    """The columns of one parameter.

    Those of a parameter that is always there are its own encoding. One that is not always there lies on a sphere
    around 0, which stands for its absence: numbers on an arc, choices on an axis each. So a point without it is as far
    from all points with it, by 1/√2, and the ends of a range, as any two choices, are at distance 1.

    Attributes:
        name: of the parameter.
        parameter: the values that it may take.
        start: its first column.
        latent: its number among the parameters of several values; None if it has a single one.
        conditions: slots that it depends on, and the numbers (v,) of the values with which it is there; none of a
            parameter of a single value.
    """

    name: str
    parameter: Parameter
    start: int
    latent: int | None
    conditions: tuple[tuple["Slot", Tensor], ...] = ()

    @property
    def is_rolled(self) -> bool:
        """Whether it is a number on an arc."""
        return bool(self.conditions) and not isinstance(self.parameter, Categorical) and self.parameter.columns > 0

    @property
    def width(self) -> int:
        """The number of columns."""
        if not self.conditions or not self.parameter.columns:
            return self.parameter.columns
        return 2 if self.is_rolled else max(2, self.parameter.columns)

    @property
    def columns(self) -> slice:
        """The columns."""
        return slice(self.start, self.start + self.width)

    @property
    def is_continuous(self) -> bool:
        """Whether it may take any number of a range."""
        return isinstance(self.parameter, Float) and self.parameter.step is None and self.parameter.columns > 0

    def own(self, points: Tensor) -> Tensor:
        """Return what the parameter's own encoding would be at points (n, d), (n, its columns)."""
        block = points[:, self.columns]
        if self.is_rolled:
            return unrolled(block).unsqueeze(-1)
        if self.width > self.parameter.columns:  # two choices on an axis each
            return 0.5 * ((block[:, 1:] - block[:, :1]) / RADIUS + 1.0)
        return block

    def laid(self, own: Tensor, there: Tensor) -> Tensor:
        """Return the columns (n, width) of encodings of its own (n, its columns), where it is there (n,)."""
        if not self.conditions:
            return own
        if self.is_rolled:
            block = rolled(own.squeeze(-1))
        else:
            block = own if self.width == own.shape[-1] else torch.cat([1.0 - own, own], -1) * math.sqrt(0.5)
        return torch.where(there.unsqueeze(-1), block, 0.0)

    def is_there(self, owns: dict[str, Tensor], there: dict[str, Tensor], number: int) -> Tensor:
        """Say of so many points whether the parameter is there, (n,).

        Args:
            owns: encodings of their own of the parameters before it, each (n, its columns), by name.
            there: whether these are there, (n,).
            number: n.
        """
        found = torch.ones(number, dtype=torch.bool)
        for slot, numbers in self.conditions:
            found = found & there[slot.name]
            if slot.parameter.columns:
                found = found & torch.isin(slot.parameter.uniform(owns[slot.name]), numbers)
        return found
