"""The configurations of a space that were not tried yet."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.candidates import UnitCube
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.spaces import Categorical, Integer, ParameterSpace

#: Spaces of at most so many configurations are listed, if their encodings have no more numbers than so many.
_LISTED, _NUMBERS = 4096, 2**22

#: What a parameter that is not there has in place of a value.
_ABSENT = object()


class Untried:
    """Takes points of the cube to configurations that were not tried: ``snap`` of a ``UnitCube``.

    A small space is searched whole, whatever the points are. In a larger one points whose configurations were all
    tried are taken to these nevertheless.

    Args:
        space: the search space.
        seed: addresses what is sampled.

    Cost: O(n k d) for n points and k configurations tried; where the space is listed n is its size.
    """

    def __init__(self, space: ParameterSpace, seed: int) -> None:
        self.space = space
        self.seed = seed
        self._num_sampled = 0
        self.tried = torch.zeros(0, space.dimension, dtype=torch.float64)
        listed = _configurations(space)
        self.count = math.inf if listed is None else len(listed)
        self._listed: Tensor | None = None
        if listed is not None and len(listed) * space.dimension <= _NUMBERS:
            encodings = space.encode(listed)
            self._listed = encodings.unique(dim=0) if space.dimension else encodings[:1]
            self.count = len(self._listed)

    def __call__(self, points: Tensor) -> Tensor:
        """Return encodings (m, d) of configurations, those not tried if there are any among those considered."""
        points = self.space.snap(points) if self._listed is None else self._listed
        fresh = self._fresh(points)
        return points[fresh] if bool(fresh.any()) else points

    def add(self, points: Tensor) -> None:
        """Count encodings (n, d) as tried."""
        self.tried = torch.cat([self.tried, points])

    def sample(self, n: int) -> Tensor:
        """Return the encodings (m, d) of at most n different configurations not tried, evenly spread; m >= 1.

        Those of one call after another are spread like those of one.
        """
        drawn = self.space.sample(n, generator_for(self.seed, 0, "design"), first=self._num_sampled)
        self._num_sampled += n
        kept = drawn[self._fresh(drawn)]
        first = [row for row in range(len(kept)) if not bool((kept[:row] == kept[row]).all(-1).any())]
        if first:
            return kept[first]
        others = self(drawn)
        return others[[int(torch.cdist(drawn[:1], others).argmin())]]

    def _fresh(self, points: Tensor) -> Tensor:
        fresh = torch.ones(len(points), dtype=torch.bool)
        for each in self.tried:
            fresh &= (points != each).any(-1)
        return fresh


class UntriedCube(UnitCube):
    """A cube whose ``snap`` is ``Untried``: what was tried is not played again, and may be recommended."""

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that all may be used in the end, (n,) bool: each is of a configuration."""
        return torch.ones(len(points), dtype=torch.bool)


def _configurations(space: ParameterSpace) -> list[dict[str, Any]] | None:
    """Return all configurations of a space; None where there are too many to be listed."""
    found: list[dict[str, Any]] = [{}]
    for name, parameter in space.parameters.items():
        if (values := _values(parameter)) is None:
            return None
        longer: list[dict[str, Any]] = []
        for known in found:
            is_there = all(known.get(other, _ABSENT) in wanted for other, wanted in parameter.when)
            longer += [known | {name: value} for value in values] if is_there else [known]
        found = longer
        if len(found) > _LISTED:
            return None
    return found


def _values(parameter: Any) -> Sequence[Any] | None:
    """Return the values of a parameter; None where there are too many to be listed."""
    if isinstance(parameter, Categorical):
        found = parameter.choices
    elif isinstance(parameter, Integer):
        found = range(parameter.low, parameter.high + 1, parameter.step)
    elif parameter.step is None:
        return [parameter.low] if parameter.low == parameter.high else None
    else:
        count = round((parameter.high - parameter.low) / parameter.step) + 1
        places = (torch.arange(min(count, _LISTED + 1), dtype=torch.float64) + 0.5) / count
        found = parameter.decode(places)
    return found if len(found) <= _LISTED else None
