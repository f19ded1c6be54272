"""Search spaces of named parameters, and how their configurations become points of the unit cube and come back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.spaces.kinds import Categorical, Float, Integer, Parameter

__all__ = ["Categorical", "Float", "Integer", "Parameter", "ParameterSpace"]


@dataclass(frozen=True)
class ParameterSpace:
    """Named parameters, in order. A configuration is a mapping from names to values, its encoding a point of [0, 1]^d.

    Every playable configuration has one encoding, ``decode`` gives it back exactly, and ``snap`` takes any point to
    the encoding of the nearest one. Between the ends of a continuous parameter there are 2^40 playable values, or as
    many as its numbers can tell apart; values between these are moved to the nearest.

    Parameters of a single value take no coordinate.

    Args:
        parameters: of each name, ``Float``, ``Integer`` or ``Categorical``.

    Raises:
        InputError: if there are none, or one is something else.
    """

    parameters: Mapping[str, Parameter]

    def __post_init__(self) -> None:
        checks.instance("parameters", self.parameters, Mapping, "a mapping from names to parameters")
        if not self.parameters:
            raise InputError("parameters must have at least one entry, got none.")
        for name, parameter in self.parameters.items():
            if not isinstance(name, str) or not isinstance(parameter, Parameter):
                raise InputError(
                    f"parameters must map names to Float, Integer or Categorical; {name!r} is "
                    f"{checks.describe(parameter)}."
                )
        object.__setattr__(self, "parameters", dict(self.parameters))

    @property
    def dimension(self) -> int:
        """The number of coordinates, d; 0 where every parameter has a single value."""
        return sum(parameter.columns for parameter in self.parameters.values())

    @property
    def groups(self) -> list[int]:
        """Of each coordinate the number of its parameter among those that take some, (d,); see ``GroupedKernel``."""
        widths = [parameter.columns for parameter in self.parameters.values() if parameter.columns]
        return [number for number, width in enumerate(widths) for _ in range(width)]

    @property
    def continuous(self) -> list[int]:
        """The coordinates of floats without a step, which may take any value but for rounding."""
        kinds = (kind for kind in self.parameters.values() for _ in range(kind.columns))
        return [column for column, kind in enumerate(kinds) if isinstance(kind, Float) and kind.step is None]

    def encode(self, configurations: Sequence[Mapping[str, Any]]) -> Tensor:
        """Return n configurations as points (n, d), in double precision. Names that are no parameters are left out.

        Raises:
            InputError: if a parameter is missing, or its value is not one that it may take.
        """
        blocks = []
        for name, parameter in self.parameters.items():
            for row, configuration in enumerate(configurations):
                if name not in configuration:
                    raise InputError(f"parameter {name!r} is missing in configuration {row}: {dict(configuration)!r}.")
            blocks.append(parameter.encode(name, [configuration[name] for configuration in configurations]))
        return torch.cat(blocks, -1)

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the configurations nearest to points (n, d)."""
        values = [
            parameter.decode(block)
            for parameter, block in zip(self.parameters.values(), self._blocks(points), strict=True)
        ]
        return [dict(zip(self.parameters, row, strict=True)) for row in zip(*values, strict=True)]

    def snap(self, points: Tensor) -> Tensor:
        """Return the encodings (..., d) of the configurations nearest to points (..., d)."""
        flat = points.reshape(math.prod(points.shape[:-1]), self.dimension)
        blocks = zip(self.parameters.values(), self._blocks(flat), strict=True)
        return torch.cat([parameter.snap(block) for parameter, block in blocks], -1).reshape(points.shape)

    def neighbours(self, points: Tensor) -> Tensor:
        """Return encodings (k, d) of configurations that differ from one of the points (n, d) in one parameter.

        Choices are exchanged for any other, numbers on steps for any other where they are few and for those 1, 2, 4, …
        steps away where they are many. Continuous parameters stay. For a local search over what has no gradient.
        """
        widths = [parameter.columns for parameter in self.parameters.values()]
        starts = [sum(widths[:place]) for place in range(len(widths))]
        found = [points[:0]]
        for point in self.snap(points):
            for parameter, start, width in zip(self.parameters.values(), starts, widths, strict=True):
                others = parameter.others(point[start : start + width])
                moved = point.repeat(len(others), 1)
                moved[:, start : start + width] = others
                found.append(moved)
        return torch.cat(found)

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return the encodings (n, d) of n configurations, uniform and evenly spread (scrambled Sobol points).

        Each parameter is uniform on its scale: logarithmic ones in the logarithm.

        Args:
            n: number of points.
            generator: the only source of randomness.
            first: how many points of the sequence are left out; so a sequence can be drawn bit by bit.
        """
        several = {name: parameter for name, parameter in self.parameters.items() if parameter.columns}
        if not several:
            return torch.zeros(n, 0, dtype=torch.float64)
        if len(several) > SobolEngine.MAXDIM:
            shape = first + n, len(several)
            uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")[first:]
        else:
            seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
            engine = SobolEngine(len(several), scramble=True, seed=seed)
            uniform = engine.fast_forward(first).draw(n, dtype=torch.float64)
        columns = zip(several.values(), uniform.unbind(-1), strict=True)
        return torch.cat([parameter.spread(column) for parameter, column in columns], -1)

    def _blocks(self, points: Tensor) -> tuple[Tensor, ...]:
        return points.split([parameter.columns for parameter in self.parameters.values()], -1)
