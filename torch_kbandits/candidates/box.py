"""Boxes, searched by gradients, and the unit cube, of which not every point need be playable."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.base import LastingCandidates, within
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.rows import among, with_owners
from torch_kbandits.spaces.space import near

#: Points of each kind near one that may take its place where nobody says which.
_NEARER, _RADII = 16, (0.1, 0.03, 0.01, 0.003)


class Box(LastingCandidates):
    """A box of points, searched by BoTorch's ``optimize_acqf``, also from where the last search may have ended.

    Args:
        bounds: (2, d), finite lower bounds, then upper bounds above them: a tensor, a list, an array or a data frame.
        num_restarts: random starting points of the gradient search, beside the warm ones.
        raw_samples: random points from which they are chosen.
    """

    is_finite = False

    def __init__(self, bounds: Any, num_restarts: int = 8, raw_samples: int = 128) -> None:
        given = checks.bounds(bounds)
        self.bounds, self.device = given.detach().cpu().clone(), given.device
        self.example, self.ranges = self.bounds[:1], self.bounds.double()
        self.num_restarts = checks.size("num_restarts", num_restarts)
        self.raw_samples = checks.size("raw_samples", raw_samples)
        self.domain = Domain(bounds=self.bounds, num_restarts=self.num_restarts, raw_samples=self.raw_samples)

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which lie within the bounds, (n,) bool."""
        return within(points, self.bounds)


class UnitCube(LastingCandidates):
    """Points of the unit cube, in double precision, where some coordinates are numbers and others stand for choices.

    A search evaluates some thousand points that cover the cube, and others near the best one played. For rules with a
    gradient it then goes on from the six best of both, see ``climb``. For named parameters give ``ParameterSpace``.

    Args:
        dimension: d, the number of coordinates.
        snap: takes points (n, d) of the cube to the nearest playable ones, (n, d); None where all are playable.
        continuous: the coordinates that ``snap`` leaves as they are but for rounding, along which a search climbs; none
            unless given where there is a ``snap``, else all.
        neighbours: takes a point (1, d) to playable ones (k, d) that a search tries in its place, such as those of
            which one choice is another. Unless given, points drawn near it.
    """

    is_finite = is_restricted = False

    def __init__(
        self,
        dimension: int,
        *,
        snap: Callable[[Tensor], Tensor] | None = None,
        continuous: Sequence[int] | None = None,
        neighbours: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.dimension = checks.size("dimension", dimension)
        for name, function in (("snap", snap), ("neighbours", neighbours)):
            checks.absent_or(name, function, Callable, "a function of points (n, d)")
        self.snap, self.neighbours = snap, neighbours
        listed = range(self.dimension if snap is None else 0) if continuous is None else continuous
        self.continuous = tuple(checks.whole_numbers("continuous", listed))
        if not {*self.continuous} <= {*range(self.dimension)}:
            raise InputError(f"continuous must be coordinates from 0 to {self.dimension - 1}, got {continuous!r}.")
        #: Whether a search should evaluate ``exchanges``: not all is continuous, or there are ``neighbours``.
        self.has_exchanges = neighbours is not None or len(self.continuous) < self.dimension
        self.ranges = torch.tensor([0.0, 1.0], dtype=torch.float64).unsqueeze(-1).expand(2, self.dimension)
        self.example = self.playable(torch.full((1, self.dimension), 0.5, dtype=torch.float64))[:1]

    @property
    def domain(self) -> Domain:
        """The cube, to be searched."""
        return Domain(cube=self)

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, d) which are playable, (n,) bool."""
        return among(points, self.playable(points))

    # ---------------------------------------------------------------- as ``Cube``

    def playable(self, points: Tensor) -> Tensor:
        """Return the playable points next to points (n, d), (n, d)."""
        points = points.clamp(0.0, 1.0)
        return points if self.snap is None else self._checked("what snap returns", self.snap(points), points)

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that what is next to them may be played, (n,)."""
        return torch.ones(len(points), dtype=torch.bool)

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return playable points (n, d) next to those of a scrambled Sobol sequence, without its first ones."""
        seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
        engine = SobolEngine(self.dimension, scramble=True, seed=seed)
        return self.playable(engine.fast_forward(first).draw(n, dtype=torch.float64))

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return playable points (3 size r, d) near one, (1, d), by moves of r radii; see ``spaces.space.near``."""
        return self.playable(near(point, torch.ones(self.dimension, dtype=torch.bool), radii, size, generator))

    def exchanges(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return playable points (k, d) that a search may try in the place of one of (n, d), and of which, (k,)."""

        def moved(point: Tensor) -> Tensor:
            if self.neighbours is None:
                return self.near(point, _RADII, _NEARER, generator)
            return self._checked("what neighbours returns", self.neighbours(point), point)

        return with_owners([moved(point) for point in points.split(1)], points)

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) as they are: along these coordinates a search climbs."""
        return points

    rolled = unrolled

    def _checked(self, name: str, points: Tensor, like: Tensor) -> Tensor:
        return checks.points(name, points, dimension=self.dimension, like=like)
