"""Where an acquisition function is maximised: arms, a box, or points of a cube, in a context or without one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.fixed_feature import FixedFeatureAcquisitionFunction
from torch import Tensor
from typing_extensions import override

from torch_kbandits.numerics.rows import distinct

#: Points of a cube that a search evaluates first, of each of three kinds near the best point known, and that stand for
#: all. Of more columns than this, as of thousands of choices, they are fewer, so that all have as many numbers.
_SPREAD, _NEAR, _ALL, _COLUMNS = 2048, 128, 1024, 2048

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
        """Whether a search should evaluate ``exchanges``."""
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

    def exchanges(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return playable points (k, d) that a search may try in the place of one of (n, d), and of which, (k,)."""
        ...

    def unrolled(self, points: Tensor) -> Tensor:
        """Return points (..., d) in coordinates along which a search may climb."""
        ...

    def rolled(self, points: Tensor) -> Tensor:
        """Undo ``unrolled``, differentiably."""
        ...


@dataclass(frozen=True, eq=False)
class Domain:
    """Where an acquisition function is maximised: arms, a box with the effort of the search, or a cube."""

    arms: Tensor | None = None  #: (A, d); None on a box or a cube, and for arms that are not in memory.
    bounds: Tensor | None = None  #: (2, d) of a box.
    num_restarts: int = 8  #: Starting points that the search chooses itself.
    raw_samples: int = 128  #: Random points from which it chooses them.
    starts: Tensor | None = None  #: Points of a box (s, d) that it also starts from; of a cube one, to search around.
    context: Tensor | None = None  #: (c,) what the first columns are in this round, whatever the bounds say of them.
    incumbent: Tensor | None = None  #: The point (1, d) whose mean is to be improved on, where that is searched for.
    blocks: Callable[[], Iterable[Tensor]] | None = None  #: Reads arms not in memory part by part, (k, d), in order.
    cube: Cube | None = None  #: Points of the unit cube some of which may be played; a context comes before them.
    allowed: Tensor | None = None  #: The rows (k,) of the arms that may be played, ascending; None for all.
    avoided: Tensor | None = None  #: Points (k, d) not to be chosen while others are left, where nobody has all arms.
    allows: Callable[[Tensor], Tensor] | None = None  #: Says of points (n, d) whether limits leave them; None: all.

    def to(self, device: torch.device) -> "Domain":
        """Return the domain with its tensors on a device."""
        there = {name: part.to(device) for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **there)  # pyright: ignore[reportArgumentType]

    @property
    def is_listed(self) -> bool:
        """Whether these are arms, in memory or not."""
        return self.arms is not None or self.blocks is not None

    def in_context(self, X: Tensor) -> Tensor:
        """Return points (..., d) with the context in their first columns."""
        return X if self.context is None else self.joint(X[..., len(self.context) :])

    def eligible(self, X: Tensor) -> Tensor:
        """Return points (n, d) in the context of this round, those that limits on outcomes leave, (m, d)."""
        X = self.in_context(X)
        return X if self.allows is None or not len(X) else X[self.allows(X)]

    def without(self, rows: Sequence[int], size: int) -> "Domain":
        """Return arms, of which there are so many, without those of some rows."""
        left = self.allowed
        if left is None:
            left = torch.arange(size, device="cpu" if self.arms is None else self.arms.device)
        return replace(self, allowed=left[~torch.isin(left, left.new_tensor(rows))])

    def parts(self) -> Iterable[Tensor]:
        """Return the arms part by part, (k, d) each, in order; none on a box or a cube."""
        if self.arms is not None:
            return [self.arms]
        return () if self.blocks is None else self.blocks()

    def joint(self, actions: Tensor) -> Tensor:
        """Return actions (..., a) with the context before them, (..., d)."""
        if self.context is None:
            return actions
        return torch.cat([self.context.expand(*actions.shape[:-1], -1), actions], -1)

    def spread(self) -> "Domain":
        """Return arms that cover the cube of this domain in its place."""
        arms = self.joint(cast(Cube, self.cube).sample(_ALL, torch.Generator().manual_seed(0)))
        return replace(self, arms=arms, cube=None)

    def without_first(self, columns: int, dtype: torch.dtype) -> "Domain":
        """Return a domain of arms in a dtype whose points lack so many first columns, which are of the context."""
        if not columns:
            return self
        read, own = self.blocks, {"arms": self.arms, "context": self.context}
        parts: dict[str, Any] = {name: part[..., columns:].to(dtype) for name, part in own.items() if part is not None}
        if read is not None:
            parts["blocks"] = lambda: (block[:, columns:].to(dtype) for block in read())
        return replace(self, **parts)

    def initial_points(self, seed: int) -> list[Tensor]:
        """Return playable points (k, d) of the cube that a search evaluates first: spread, and near the first start."""
        cube, generator = cast(Cube, self.cube), torch.Generator().manual_seed(seed)
        spread, near = (-(-size * _COLUMNS // max(_COLUMNS, cube.dimension)) for size in (_SPREAD, _NEAR))
        parts = [cube.sample(spread, generator)]
        if self.starts is not None:
            best = self.starts[:1, -cube.dimension :]
            parts.append(cube.playable(torch.cat([best, cube.near(best, _RADII, near, generator)])))
        # Where all coordinates are continuous no two are equal, and to look takes longer than to score them.
        return [self.joint(distinct(part)[0] if cube.has_exchanges else part) for part in parts]

    def of_action(self, function: AcquisitionFunction, dimension: int) -> AcquisitionFunction:
        """Return a function of points with so many columns as one of what comes after the context."""
        if self.context is None or len(self.context) == 0:
            return function
        return _OfAction(function, dimension, [*range(len(self.context))], self.context)


class _OfAction(FixedFeatureAcquisitionFunction):
    """BoTorch's, in the dtype of what is fixed: a time is in double precision, also with actions in single."""

    values: Tensor

    @override
    def _construct_X_full(self, X: Tensor) -> Tensor:
        return super()._construct_X_full(X.to(self.values))
