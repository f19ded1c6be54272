"""The configurations of a space that were not tried yet."""

import math

import torch
from torch import Tensor

from torch_kbandits.candidates import UnitCube
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.numerics.rows import among
from torch_kbandits.spaces import ParameterSpace

#: Spaces of at most so many configurations are listed, if their encodings have no more numbers than so many.
_LISTED, _NUMBERS = 4096, 2**22

#: So many points of a design are tried for one that is new.
_DRAWS = 32


class UntriedCube(UnitCube):
    """The configurations of a space as points of the cube; what was tried is not played again, and may be recommended.

    A small space is searched whole, whatever points a search looks at. In a larger one points whose configurations were
    all tried are taken to these nevertheless. ``count`` is infinite where configurations are not listed.
    """

    def __init__(self, space: ParameterSpace) -> None:
        self.space, self.tried = space, torch.zeros(0, space.dimension, dtype=torch.float64)
        self._listed = _listed(space)
        self.count = math.inf if self._listed is None else len(self._listed)
        super().__init__(space.dimension, snap=self.untried, continuous=space.continuous, neighbours=space.neighbours)

    def untried(self, points: Tensor) -> Tensor:
        """Return encodings (m, d) of configurations, those not tried if there are any among those considered."""
        points = self.space.snap(points) if self._listed is None else self._listed
        fresh = ~among(points, self.tried)
        return points[fresh] if bool(fresh.any()) else points

    def spread(self, seed: int, number: int) -> Tensor:
        """Return the encoding (1, d) of a configuration; those of one number after another are evenly spread."""
        drawn = self.space.sample(_DRAWS, generator_for(seed, 0, "design"), first=number)
        others = self.untried(drawn)
        return others[[int((others - drawn[0]).square().sum(-1).argmin())]]

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that all may be used in the end, (n,) bool: each is of a configuration."""
        return torch.ones(len(points), dtype=torch.bool)


def _listed(space: ParameterSpace) -> Tensor | None:
    """Return the encodings of all configurations of a space, (n, d); None where they are too many."""
    parameters = space.parameters.values()
    counts = [parameter.count for parameter in parameters if not parameter.when]  # others may be there or not
    if math.prod(counts) > _LISTED or any(parameter.count > _LISTED for parameter in parameters):
        return None
    found = latest = space.sample(1, torch.Generator().manual_seed(0))
    while len(latest) and len(found) <= _LISTED and found.numel() <= _NUMBERS:
        near = space.neighbours(latest).unique(dim=0)
        latest = near[~among(near, found)]
        found = torch.cat([found, latest])
    return None if len(latest) else found.unique(dim=0)
