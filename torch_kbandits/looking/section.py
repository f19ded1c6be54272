"""Where a belief is looked at: one or two coordinates vary, the others are fixed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, Configurations, ContextualActions, UnitCube
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.looking.belief import recommended_point
from torch_kbandits.looking.units import column_spec, number_column


@dataclass(frozen=True, eq=False)
class Section:
    """Points of which one or two coordinates vary while the others are fixed.

    Attributes:
        columns: which coordinates vary, one or two.
        values: for each of them its values (k,), as the kernel sees them.
        at: the point (1, d) that has the fixed coordinates; it lies on the section.
        names: of all d coordinates.
        is_recommended: whether ``at`` is the point that the bandit recommends, and within what is shown.
    """

    columns: tuple[int, ...]
    values: tuple[Tensor, ...]
    at: Tensor
    names: tuple[str, ...]
    is_recommended: bool

    @property
    def points(self) -> Tensor:
        """All points of the section, (k, d), or (k₁ k₂, d) with the second coordinate running fastest."""
        grid = torch.cartesian_prod(*self.values).reshape(-1, len(self.columns))
        return self.through(self.at.expand(len(grid), -1), grid)

    def through(self, X: Tensor, values: Tensor | None = None) -> Tensor:
        """Return points (q, d) moved onto the section; with values (q, number of columns) at these of the varying."""
        moved = self.at.expand(len(X), -1).clone()
        columns = list(self.columns)
        moved[:, columns] = X[:, columns] if values is None else values
        return moved

    def covers(self, X: Tensor) -> Tensor:
        """Return which points (q, d) have their varying coordinates within what is shown, (q,)."""
        within = torch.ones(len(X), dtype=torch.bool, device=X.device)
        for column, values in zip(self.columns, self.values, strict=True):
            within &= (X[:, column] >= values.min()) & (X[:, column] <= values.max())
        return within

    @property
    def fixed(self) -> dict[str, float]:
        """The fixed coordinates by name."""
        others = [i for i in range(len(self.names)) if i not in self.columns]
        return {self.names[i]: float(self.at[0, i]) for i in others}


def section(
    bandit: Bandit,
    coordinates: Sequence[int | str],
    *,
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    resolution: int = 200,
    names: Sequence[str] | None = None,
) -> Section:
    """Return the points where a belief is looked at.

    Args:
        bandit: whose.
        coordinates: one or two, by name or as columns of ``history.X``; none for the first ones of an action.
        at: a point (d,) or (1, d) that has the fixed coordinates; with contexts a joint point. None for the point that
            the bandit recommends, or the middle of what may be played if nothing was learned that counts.
        context: with contexts, that in which it is recommended, as in ``ask``.
        candidates: as in ``ask``, where actions differ from round to round; None for those played.
        bounds: of the coordinates that vary, (2, k); None for the range of what may be played or was.
        resolution: values of each coordinate, at least 2. Where the kernel knows arms by number, those are shown.
        names: of all coordinates, d of them; None for those of the columns, or x₁, x₂ and so on.

    Raises:
        InputError: if an argument does not fit; the message says what was expected.
    """
    d = bandit.candidates.example.shape[-1]
    names = coordinate_names(bandit) if names is None else tuple(names)
    if len(names) != d or not all(isinstance(name, str) for name in names):
        raise InputError(f"names must be {d}, one for each coordinate, got {names!r}.")
    columns = tuple(_column(bandit, names, coordinate) for coordinate in coordinates)
    if len(set(columns)) != len(columns):
        raise InputError(f"The coordinates must differ, got {list(coordinates)}.")
    if (resolution := checks.positive_integer("resolution", resolution)) < 2:
        raise InputError(f"resolution must be at least 2, got {resolution}.")
    values = _values(bandit, columns, bounds, resolution, names)
    fixed, is_recommended = _fixed(bandit, at, context, candidates)
    where = Section(columns, values, fixed, names, is_recommended)
    return where if bool(where.covers(fixed)) else replace(where, is_recommended=False)


def coordinate_names(bandit: Bandit) -> tuple[str, ...]:
    """Return the names of the coordinates of a bandit's points: with contexts, of those and then of the action."""
    candidates = untimed(bandit.candidates)
    time = ("time",) if bandit.candidates.is_timed else ()
    if not isinstance(candidates, (Configurations, ContextualActions)):
        return (*time, *_numbered("x", candidates.example.shape[-1]))
    contexts = candidates.context_columns
    before = _numbered("context ", candidates.context_dim) if contexts is None else contexts.names
    if isinstance(candidates, Configurations):
        return (*time, *before, *candidates.space.names)
    actions = candidates.action_columns
    return (*time, *before, *(_numbered("action ", candidates.action_dim) if actions is None else actions.names))


# ---------------------------------------------------------------- inside


def _numbered(stem: str, number: int) -> tuple[str, ...]:
    return (stem.strip(),) if number == 1 else tuple(f"{stem}{i}" for i in range(1, number + 1))


def _column(bandit: Bandit, names: Sequence[str], coordinate: Any) -> int:
    """Return the number of a coordinate; a category's columns cannot vary by themselves."""
    if isinstance(coordinate, str):
        if coordinate not in names:
            near = checks.nearest_name(coordinate, names)
            guess = f"did you mean {near!r}? " if near else ""
            raise InputError(f"{coordinate!r} is no coordinate; {guess}Known: {', '.join(names)}.")
        column = list(names).index(coordinate)
    else:
        column = checks.non_negative_integer("coordinate", coordinate)
        if column >= len(names):
            raise InputError(f"coordinate must be from 0 to {len(names) - 1}, got {column}.")
    if column_spec(bandit, column)[0] is not None and number_column(bandit, column) is None:
        raise InputError(f"{names[column]!r} belongs to a category, which has nothing between its levels: fix it.")
    return column


def _values(
    bandit: Bandit, columns: tuple[int, ...], bounds: Tensor | None, resolution: int, names: Sequence[str]
) -> tuple[Tensor, ...]:
    """Return the values of each varying coordinate, (k,)."""
    kernel = bandit.model.covar_module
    candidates = untimed(bandit.candidates)
    if any(isinstance(part, PrecomputedKernel) for part in kernel.modules()) and isinstance(candidates, Arms):
        arms = candidates.domain.arms
        if arms is None or bounds is not None:
            raise InputError("The kernel knows arms by their number: they must be in memory, and bounds left out.")
        return (arms[:, 0].unique(),)
    if bounds is not None:
        bounds = checks.bounds(bounds)
        if bounds.shape[-1] != len(columns):
            raise InputError(
                f"bounds must be (2, {len(columns)}), for the coordinates that vary; got {checks.describe(bounds)}."
            )
        ranges = [(float(low), float(high)) for low, high in bounds.T]
    else:
        ranges = [_range(bandit, column, names[column]) for column in columns]
    kind: Any = {"dtype": bandit.candidates.example.dtype, "device": bandit.candidates.device}
    return tuple(torch.linspace(low, high, resolution, **kind) for low, high in ranges)


def _range(bandit: Bandit, column: int, name: str) -> tuple[float, float]:
    """Return between which values a coordinate of what may be played lies; of what was played, if that is not known."""
    offered, known = _offered(bandit), bandit.history.X[:, column]
    start = bandit.candidates.context_dim
    if offered is not None and column >= start:
        known = offered[:, column - start]
    if len(known) == 0 or not bool(known.min() < known.max()):
        raise InputError(f"It is not known in which range {name!r} is to be shown: give bounds=.")
    return float(known.min()), float(known.max())


def _offered(bandit: Bandit) -> Tensor | None:
    """Return the corners of the actions that may be played, (2, a); None where every round brings its own."""
    candidates: Any = untimed(bandit.candidates)
    if isinstance(candidates, Arms):
        blocks = [(block.amin(0), block.amax(0)) for _, block in candidates.source.blocks()]
        lows, highs = zip(*blocks, strict=True)
        return torch.stack([torch.stack(lows).amin(0), torch.stack(highs).amax(0)])
    if isinstance(candidates, ContextualActions) and candidates.set is not None:
        return torch.stack([candidates.set.amin(0), candidates.set.amax(0)])
    if isinstance(candidates, (Configurations, UnitCube)):
        sides = candidates.example[:, candidates.context_dim :]
        return torch.cat([torch.zeros_like(sides), torch.ones_like(sides)])
    return candidates.bounds


def _fixed(bandit: Bandit, at: Tensor | None, context: Any, candidates: Any) -> tuple[Tensor, bool]:
    """Return the point (1, d) that has the fixed coordinates, and whether it is the recommended one."""
    own, example = bandit.candidates, bandit.candidates.example
    if at is not None:
        if context is not None or candidates is not None:
            raise InputError("Give either at, a whole point, or the context in which a point is recommended.")
        point = checks.floating_tensor("at", own.brought("at", at)).reshape(1, -1)
        return checks.points("at", point, dimension=example.shape[-1], like=example).to(own.device), False
    best = recommended_point(bandit, context, candidates)
    if best is not None:
        return best, True
    offered = _offered(bandit)
    if offered is None:
        raise InputError("Nothing was learned yet, and actions differ from round to round: give at=, a joint point.")
    now = max(bandit.now, 0.0)
    return own.points(offered.mean(0, keepdim=True).to(own.device), context, now).to(own.device), False
