"""The configurations of a space that were not tried yet."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.candidates import UnitCube
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.spaces import Categorical, Float, Integer, Parameter, ParameterSpace

#: Spaces of at most so many configurations are listed, if their encodings have no more numbers than so many.
_LISTED, _NUMBERS = 4096, 2**22


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
        self.count = _count(space)
        self._listed = self._all() if self.count <= min(_LISTED, _NUMBERS // max(1, space.dimension)) else None
        if self._listed is not None:
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

    def _all(self) -> Tensor:
        """Return the encodings of all configurations, each once."""
        encodings = self.space.encode(list(_configurations(list(self.space.parameters.items()), {})))
        return encodings.unique(dim=0) if self.space.dimension else encodings[:1]


class UntriedCube(UnitCube):
    """A cube whose ``snap`` is ``Untried``: what was tried is not played again, and may be recommended."""

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that all may be used in the end, (n,) bool: each is of a configuration."""
        return torch.ones(len(points), dtype=torch.bool)


def _count(space: ParameterSpace) -> float:
    """Return how many configurations a space has; infinity where others depend on too many values to go through."""
    items = list(space.parameters.items())
    parents = {other for _, parameter in items for other, _ in parameter.when}
    if math.prod(_number_of_values(space.parameters[name]) for name in parents) > _LISTED:
        return math.inf

    def beyond(first: int, known: Mapping[str, Any]) -> float:
        if first == len(items):
            return 1
        name, parameter = items[first]
        if not _is_there(parameter, known):
            return beyond(first + 1, known)
        if name in parents:
            return sum(beyond(first + 1, {**known, name: value}) for value in _values(parameter))
        return _number_of_values(parameter) * beyond(first + 1, known)

    return beyond(0, {})


def _configurations(items: Sequence[tuple[str, Parameter]], known: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all configurations of parameters that each have few values, given those before."""
    if not items:
        yield known
        return
    (name, parameter), *others = items
    for value in _values(parameter) if _is_there(parameter, known) else ():
        yield from _configurations(others, {**known, name: value})
    if not _is_there(parameter, known):
        yield from _configurations(others, known)


def _is_there(parameter: Parameter, known: Mapping[str, Any]) -> bool:
    return all(other in known and known[other] in values for other, values in parameter.when)


def _number_of_values(parameter: Parameter) -> float:
    if isinstance(parameter, Categorical):
        return len(parameter.choices)
    if isinstance(parameter, Integer):
        return (parameter.high - parameter.low) // parameter.step + 1
    if isinstance(parameter, Float) and (parameter.step is not None or parameter.low == parameter.high):
        return round((parameter.high - parameter.low) / (parameter.step or 1.0)) + 1
    return math.inf


def _values(parameter: Parameter) -> Sequence[Any]:
    """Return all values of a parameter that has few."""
    if isinstance(parameter, Categorical):
        return parameter.choices
    if isinstance(parameter, Integer):
        return range(parameter.low, parameter.high + 1, parameter.step)
    number = int(_number_of_values(parameter))
    return parameter.decode((torch.arange(number, dtype=torch.float64) + 0.5) / number)
