"""Points of the unit cube of which not all may be played, and those that a search looks at first."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

#: Points that cover the cube, and of each of three kinds near the best point known.
_SPREAD, _NEAR = 2048, 256

#: Of more columns than this, as of thousands of choices, points are fewer, so that all have as many numbers.
_COLUMNS = 2048

#: Deviation of the points near the best one, step by step, in units of the cube.
_RADII = (0.1, 0.03, 0.01, 0.003)


class Cube(Protocol):
    """Points of [0, 1]^d of which some may be played, and moves between them. ``ParameterSpace`` is one."""

    @property
    def dimension(self) -> int:
        """D."""
        ...

    @property
    def continuous(self) -> Sequence[int]:
        """The coordinates of points ``unrolled`` along which a search may climb."""
        ...

    @property
    def is_restricted(self) -> bool:
        """Whether a point that climbs may come to where nothing is playable."""
        ...

    @property
    def has_exchanges(self) -> bool:
        """Whether a search should look at ``exchanges``."""
        ...

    def playable(self, points: Tensor) -> Tensor:
        """Return the playable points (m, d) next to points (n, d), m <= n."""
        ...

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) whether the nearest may be played, (n,)."""
        ...

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return playable points (n, d), or fewer, that are evenly spread, without the first of their sequence."""
        ...

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return playable points (m, d), m <= 3 size r, near a playable one, (1, d), by moves of r radii."""
        ...

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return playable points (k, d) that a search may try in the place of one, (1, d)."""
        ...

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) in coordinates along which a search may climb."""
        ...

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, differentiably."""
        ...


def looked_at(cube: Cube, best: Tensor | None, seed: int) -> list[Tensor]:
    """Return playable points (k, d) spread over a cube, and others near the best one known, each once in its part.

    Args:
        cube: what may be played.
        best: a point (1, d); None if there is none yet.
        seed: all randomness.
    """
    generator = torch.Generator().manual_seed(seed)
    spread, near = (-(-size * _COLUMNS // max(_COLUMNS, cube.dimension)) for size in (_SPREAD, _NEAR))
    parts = [cube.sample(spread, generator)]
    if best is not None:
        parts.append(cube.playable(torch.cat([best, cube.near(best, _RADII, near, generator)])))
    return [_distinct(part) for part in parts]


def _distinct(points: Tensor) -> Tensor:
    """Return points (n, d) of the unit cube in their order, each once, (k, d)."""
    # The bytes of numbers that are not negative, the largest first, are in the order of the numbers: so rows are
    # compared at once. torch's takes four times as long, and NumPy's by columns twenty times where they are many.
    rows = np.ascontiguousarray((points + 0.0).cpu().numpy().astype(">f8"))
    _, first = np.unique(rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel(), return_index=True)
    return points[torch.from_numpy(first).to(points.device)]
