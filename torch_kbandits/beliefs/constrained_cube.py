"""Points of a cube, or of a box, of which limits on outcomes allow some."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits.acquisition import Cube
from torch_kbandits.errors import InfeasibleError

#: Moves from a point that is allowed, in widths of the cube, so that a small region is found, too.
_RADII = (0.3, 0.1, 0.03, 0.01)

#: Points of a spread set that are evaluated where a few are wanted, and near each radius and start.
_SPREAD, _NEAR = 1024, 64

#: Of the points where a search of a small region starts so many are taken, and so many rounds approach it.
_STARTS, _ROUNDS = 16, 6


@dataclass(frozen=True, eq=False)
class BoxCube:
    """A box as a ``Cube`` whose points keep their own units.

    Args:
        bounds: (2, d).
    """

    bounds: Tensor

    is_restricted = False
    has_exchanges = False

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self.bounds.shape[-1]

    @property
    def continuous(self) -> Sequence[int]:
        """All coordinates."""
        return range(self.dimension)

    def playable(self, points: Tensor) -> Tensor:
        """Return points (n, d), moved to the border where they are outside."""
        return points.clamp(self.bounds[0], self.bounds[1])

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) that what is next to them may be played, (n,)."""
        return torch.ones(len(points), dtype=torch.bool, device=points.device)

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return points (n, d) of a scrambled Sobol sequence, without its first ones."""
        seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
        engine = SobolEngine(self.dimension, scramble=True, seed=seed)
        return self.rolled(engine.fast_forward(first).draw(n, dtype=torch.float64).to(self.bounds))

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return points (size r, d) around one, (1, d), normal in each of r radii."""
        normals = torch.randn(len(radii), size, self.dimension, generator=generator, dtype=torch.float64, device="cpu")
        moves = normals * torch.tensor(radii, dtype=torch.float64)[:, None, None]
        return self.playable(self.rolled(self.unrolled(point) + moves.reshape(-1, self.dimension).to(point)))

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return no points: a search climbs along all coordinates."""
        return point[:0]

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) in shares of the box."""
        return (points - self.bounds[0]) / (self.bounds[1] - self.bounds[0])

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, differentiably."""
        return self.bounds[0] + points * (self.bounds[1] - self.bounds[0])


@dataclass(frozen=True, eq=False)
class ConstrainedCube:
    """The points of a cube that are allowed.

    A small allowed region is found from points that are likely in it; where none is known, from where the rule is
    broken the least.

    Args:
        cube: what may be played without a constraints.
        keeps: says of actions (n, d) whether they are allowed, (n,).
        excess: by how much actions (n, d) break the limits, (n,), the largest; None where no search helps.
        likely: actions (k, d) where to look.
        refusal: what to say where nothing is found.
    """

    cube: Cube
    keeps: Callable[[Tensor], Tensor]
    excess: Callable[[Tensor], Tensor] | None
    likely: Tensor
    refusal: str

    is_restricted = True

    @property
    def dimension(self) -> int:
        """Number d of columns."""
        return self.cube.dimension

    @property
    def continuous(self) -> Sequence[int]:
        """The coordinates along which a search may climb."""
        return self.cube.continuous

    @property
    def has_exchanges(self) -> bool:
        """Whether a search should look at ``exchanges``."""
        return self.cube.has_exchanges

    def playable(self, points: Tensor) -> Tensor:
        """Return the allowed ones (m, d) of the playable points next to points (n, d)."""
        return self._kept(self.cube.playable(points))

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) whether the nearest may be played, (n,)."""
        possible = self.cube.allows(points)
        near = self.cube.playable(points[possible])
        kept = possible.clone()
        if len(near) == int(possible.sum()):
            kept[possible] = self.keeps(near)
        else:  # of a cube that leaves some out, or takes all points to those of a list
            same = (points[possible].unsqueeze(1) == near).all(-1).any(-1)
            kept[possible] = same & self.keeps(points[possible])
        return kept

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return allowed points (k, d), k >= 1: of an even spread, those that are likely, and near these if few are.

        Where few are wanted they are those of their number in one order of allowed points, which goes round.

        Raises:
            InfeasibleError: if none is found.
        """
        spread, likely = self._kept(self.cube.sample(max(n, _SPREAD), generator)), self.playable(self.likely)
        is_small = len(spread) < max(n, _SPREAD) // 4
        spread = torch.cat([spread, likely, *([self._around(likely, generator)] if is_small else [])])
        if not len(spread):
            raise InfeasibleError(self.refusal)
        if n >= _SPREAD:
            return spread
        return spread[torch.arange(first, first + n, device=spread.device) % len(spread)]

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return allowed points (m, d) near one, (1, d), by moves of r radii."""
        return self._kept(self.cube.near(point, radii, size, generator))

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return allowed points (k, d) that a search may try in the place of one, (1, d)."""
        return self._kept(self.cube.exchanges(point, generator))

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) in coordinates along which a search may climb."""
        return self.cube.unrolled(points)

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, differentiably."""
        return self.cube.rolled(points)

    def _kept(self, points: Tensor) -> Tensor:
        return points[self.keeps(points)] if len(points) else points

    def _around(self, likely: Tensor, generator: torch.Generator) -> Tensor:
        """Return allowed points (m, d) around likely ones (k, d); without any what a search of the limits ends at."""
        if len(likely):
            return torch.cat([self.near(x, _RADII, _NEAR, generator) for x in likely[:_STARTS].split(1)])
        if self.excess is None:
            return likely
        best = self.cube.sample(_SPREAD, generator)
        for _ in range(_ROUNDS):
            best = best[self.excess(best).topk(min(_STARTS, len(best)), largest=False).indices]
            moved = [self.cube.near(x, _RADII, _NEAR, generator) for x in best.split(1)]
            best = torch.cat([best, *moved])
        return self._kept(best)
