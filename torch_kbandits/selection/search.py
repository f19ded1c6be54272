"""Where in a box or on a cube the next point is sought."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor
from torch.quasirandom import SobolEngine

from torch_kbandits.acquisition import Cube, Domain, climb
from torch_kbandits.acquisition.climbing import Rescaled
from torch_kbandits.candidates import ArmSource
from torch_kbandits.numerics.rows import with_owners

_STARTS = 6  # from so many of the best points of each part that is evaluated a search goes on


@dataclass(frozen=True, eq=False)
class SearchConfig:
    """What may be played, where that is the same in every round, and how it is searched."""

    source: ArmSource | None = None  # the arms, if these follow the posterior
    tie_rank: Tensor | None = None  # the order in which ties between arms are broken, (A,)
    seed: int | None = None  # of the first points of a box or cube; None for that of the choice
    probes: Tensor | None = None  # points (k, d) that stand for all of the domain


def found(
    domain: Domain, score: Callable[[Tensor], Tensor], function: Callable[[], AcquisitionFunction] | None, seed: int
) -> Tensor:
    """Return points (k, d) of a domain's cube, of which the one of the highest score is chosen.

    They are all points that a search looks at, or, where there is a function to climb, single points (b, 1, d) to (b,),
    the best of these and where it ends that starts from them.
    """
    parts, cube = domain.initial_points(seed), cast(Cube, domain.cube)
    if function is None:
        return torch.cat(parts)
    starts = torch.cat([part[score(part).topk(min(_STARTS, len(part))).indices] for part in parts])
    actions, generator = starts[:, -cube.dimension :], torch.Generator().manual_seed(seed)
    zero, unit = starts.new_zeros(()), starts.new_tensor(10.0)  # climbs end at slopes of 1e-5 in it, no lower than in 1

    def exchanged(points: Tensor) -> tuple[Tensor, Tensor]:
        near, owners = cube.exchanges(cube.rolled(points), generator)
        return cube.unrolled(near), owners

    ends = climb(
        Rescaled(function(), zero, unit, lambda X: domain.joint(cube.rolled(X))),
        cube.unrolled(actions),
        continuous=cube.continuous,
        score=lambda points: score(domain.joint(cube.rolled(points))),
        neighbours=exchanged if cube.has_exchanges else None,
        allows=(lambda points: cube.allows(cube.rolled(points))) if cube.is_restricted else None,
    )
    return domain.joint(cube.playable(torch.cat([actions, cube.rolled(ends)])))


def cube_of(domain: Domain) -> Cube:
    """Return the cube of a domain, or its box of actions as one."""
    first = 0 if domain.context is None else len(domain.context)
    return BoxCube(cast(Tensor, domain.bounds)[:, first:]) if domain.cube is None else domain.cube


class BoxCube:
    """A box of bounds (2, d) as a ``Cube`` whose points keep their own units; columns without width stay."""

    is_restricted = has_exchanges = False

    def __init__(self, bounds: Tensor) -> None:
        self.bounds, self.dimension = bounds, bounds.shape[-1]
        self._widths = bounds[1] - bounds[0]
        self.continuous: Sequence[int] = self._widths.nonzero().flatten().tolist()

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

    def exchanges(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return no points: a search climbs along all coordinates."""
        return with_owners([], points)

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) in shares of the box."""
        return (points - self.bounds[0]) / self._widths.where(self._widths > 0.0, 1.0)

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, differentiably."""
        return self.bounds[0] + points * self._widths
