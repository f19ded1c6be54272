"""Where on a cube of which not all may be played the next point is sought."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from torch_kbandits.acquisition import Cube, Domain, climb
from torch_kbandits.numerics.random import generator_for, seed_for

#: Points at which the largest prior variance, and the largest change of a variance, are sought.
_PROBES = 512

#: From so many of the best points of each part that is evaluated a search goes on.
_STARTS = 6


@dataclass(frozen=True, eq=False)
class CubeSearch:
    """A cube, and the points of it that are evaluated whatever is known.

    Attributes:
        cube: what may be played.
        seed: of the first points.
        probes: points (k, d) that cover it, which stand for all; None where points have a context as well.
    """

    cube: Cube
    seed: int
    probes: Tensor | None

    @classmethod
    def of(cls, cube: Cube, seed: int, *, in_contexts: bool = False) -> "CubeSearch":
        """Return the search on a cube by a bandit of a seed."""
        probes = None if in_contexts else cube.sample(_PROBES, generator_for(0, 0, "probes"))
        return cls(cube, seed_for(seed, 0, "sobol"), probes)


def found(
    domain: Domain,
    score: Callable[[Tensor], Tensor],
    function: Callable[[], AcquisitionFunction] | None,
    seed: int,
) -> Tensor:
    """Return points (k, d) of a domain's cube, of which the one of the highest score is chosen.

    They are all points that a search looks at, or, where there is a function to climb, the best of these and where it
    ends that starts from them.

    Args:
        domain: a cube, and its context.
        score: of points (k, d), (k,).
        function: what to climb, single points (b, 1, d) to (b,); None where only points evaluated are compared.
        seed: all randomness.
    """
    parts = domain.initial_points(seed)
    if function is None:
        return torch.cat(parts)
    starts = torch.cat([part[score(part).topk(min(_STARTS, len(part))).indices] for part in parts])
    return _climbed(domain, function(), starts, seed)


def _climbed(domain: Domain, function: AcquisitionFunction, starts: Tensor, seed: int) -> Tensor:
    """Return playable points (m, d): some (n, d), and those at the ends of a search from them."""
    cube, generator = cast(Cube, domain.cube), torch.Generator().manual_seed(seed)
    actions = starts[:, -cube.dimension :]

    def neighbours(point: Tensor) -> Tensor:
        return cube.unrolled(cube.exchanges(cube.rolled(point), generator))

    ends = climb(
        _Unrolled(function, domain, cube),
        cube.unrolled(actions),
        continuous=cube.continuous,
        neighbours=neighbours if cube.has_exchanges else None,
        allows=(lambda points: cube.allows(cube.rolled(points))) if cube.is_restricted else None,
    )
    return domain.joint(cube.playable(torch.cat([actions, cube.rolled(ends)])))


class _Unrolled(AcquisitionFunction):
    """A function of joint points as one of what is played, in the coordinates along which a search climbs."""

    def __init__(self, function: AcquisitionFunction, domain: Domain, cube: Cube) -> None:
        super().__init__(function.model)
        self._function, self._domain, self._cube = function, domain, cube

    def forward(self, X: Tensor) -> Tensor:
        """Return the values (b,) at single points (b, 1, d)."""
        return self._function(self._domain.joint(self._cube.rolled(X)))
