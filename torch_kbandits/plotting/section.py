"""The points at which a posterior is drawn: one or two coordinates vary, the others are fixed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, Configurations, ContextualActions
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.observations.columns import Number

#: Points whose posterior is computed at a time.
_BLOCK = 4096


class Moments(NamedTuple):
    """Posterior means (q,) and standard deviations (q,) of the function, in reward units."""

    mean: Tensor
    deviation: Tensor


def moments(bandit: Bandit, X: Tensor) -> Moments:
    """Return the posterior at points X (q, d), joint ones with contexts. Cost: O(q m²)."""
    parts = [(X.new_zeros(0), X.new_zeros(0))]
    with torch.no_grad():
        for block in X.split(_BLOCK) if len(X) else ():
            posterior = bandit.model.posterior(block.unsqueeze(-2).to(bandit.candidates.device))
            parts.append((cast(Tensor, posterior.mean).flatten(), posterior.variance.flatten().clamp_min(0.0).sqrt()))
    return Moments(*map(torch.cat, zip(*parts[1:] or parts, strict=True)))


def recommended_point(bandit: Bandit, context: Any = None, candidates: Any = None) -> Tensor | None:
    """Return the point (1, d) that ``recommend`` returns now; None if nothing was learned that has weight.

    Where actions differ from round to round and none are given, it is of those played. A bandit that asks an expert
    would remember the question; for it the point is the played one of the largest posterior mean.
    """
    kinds, played = bandit.candidates, bandit.history.X[bandit.weights > 0.0]
    now, offers = max(bandit.now, 0.0), untimed(kinds)
    if candidates is None and isinstance(offers, ContextualActions) and offers.set is None and offers.bounds is None:
        if len(played) == 0:
            return None
        candidates = kinds.actions(played)
    kinds.in_round(context, candidates, now)
    if len(played) == 0:
        return None
    if asks_expert(bandit):
        return played[moments(bandit, played).mean.argmax(), None].clone()
    return kinds.points(bandit.recommend(context=context, candidates=candidates), context, now).to(kinds.device)


def asks_expert(bandit: Bandit) -> bool:
    """Say whether a bandit asks an expert, also where it recommends."""
    return "expert" in bandit.state_dict()


@dataclass(frozen=True, eq=False)
class Section:
    """Points of which one or two coordinates vary while the others are fixed.

    Attributes:
        bandit: whose points they are.
        columns: which coordinates vary, one or two.
        values: for each of them its values (k,), as the kernel sees them.
        at: the point (1, d) that has the fixed coordinates; it lies on the section.
        names: of all d coordinates.
        is_recommended: whether ``at`` is the point that the bandit recommends, and within what is shown.
    """

    bandit: Bandit
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
        ends = zip(self.columns, self.values, strict=True)
        within = [(X[:, column] >= each.min()) & (X[:, column] <= each.max()) for column, each in ends]
        return torch.stack(within).all(0)

    def shown(self, column: int, values: Tensor) -> Any:
        """Return values (k,) of a coordinate in the units of its column, as an array; as they are if no spec knows."""
        number = column_number(self.bandit, column)
        known = values.tolist() if number is None else number.decode(values.unsqueeze(-1))
        return torch.tensor(known, dtype=torch.float64).numpy()


def section(
    bandit: Bandit,
    coordinates: Sequence[int | str],
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    resolution: int = 200,
    names: Sequence[str] | None = None,
) -> Section:
    """Return the section along coordinates, given by name or number; the words are those of ``plot_line``."""
    d = bandit.candidates.example.shape[-1]
    names = coordinate_names(bandit) if names is None else tuple(names)
    if len(names) != d or not all(isinstance(name, str) for name in names):
        raise InputError(f"names must be {d}, one for each coordinate, got {names!r}.")
    columns = tuple(_column(bandit, names, coordinate) for coordinate in coordinates)
    if len(set(columns)) != len(columns):
        raise InputError(f"The coordinates must differ, got {list(coordinates)}.")
    values = _values(bandit, columns, bounds, checks.whole_number("resolution", resolution, 2), names)
    fixed, is_recommended = _fixed(bandit, at, context, candidates)
    where = Section(bandit, columns, values, fixed, names, is_recommended)
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


def column_number(bandit: Bandit, column: int) -> Number | None:
    """Return how a coordinate is made from a number that users know, if a column spec says so."""
    owner = _column_owner(bandit, column)
    return owner if isinstance(owner, Number) else None


# ---------------------------------------------------------------- inside


def _column_owner(bandit: Bandit, column: int) -> Any:
    """Return the entry of a column spec that a coordinate is made by; None if no spec is given for it."""
    kind, place = untimed(bandit.candidates), column - int(bandit.candidates.is_timed)
    if place < 0 or not isinstance(kind, ContextualActions):
        return None
    spec = kind.context_columns if place < kind.context_dim else kind.action_columns
    place -= 0 if place < kind.context_dim else kind.context_dim
    return None if spec is None else next(each for each in spec.columns if place in spec.columns_of(each.name))


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
    if not isinstance(_column_owner(bandit, column), Number | None):
        raise InputError(f"{names[column]!r} belongs to a category, which has nothing between its levels: fix it.")
    return column


def _values(
    bandit: Bandit, columns: tuple[int, ...], bounds: Tensor | None, resolution: int, names: Sequence[str]
) -> tuple[Tensor, ...]:
    """Return the values of each varying coordinate, (k,)."""
    kernel = bandit.model.covar_module
    candidates = untimed(bandit.candidates)
    if any(isinstance(part, PrecomputedKernel) for part in kernel.modules()) and isinstance(candidates, Arms):
        arms = candidates.source.tensor
        if arms is None or bounds is not None:
            raise InputError("The kernel knows arms by their number: they must be in memory, and bounds left out.")
        return (arms[:, 0].unique(),)
    if bounds is None:
        ranges = [_range(bandit, column, names[column]) for column in columns]
    else:
        bounds = checks.bounds(bounds)
        if bounds.shape[-1] != len(columns):
            raise InputError(
                f"bounds must be (2, {len(columns)}), for the coordinates that vary; got {checks.describe(bounds)}."
            )
        ranges = [(float(low), float(high)) for low, high in bounds.T]
    kind: Any = {"dtype": bandit.candidates.example.dtype, "device": bandit.candidates.device}
    return tuple(torch.linspace(low, high, resolution, **kind) for low, high in ranges)


def _range(bandit: Bandit, column: int, name: str) -> tuple[float, float]:
    """Return between which values a coordinate of what may be played lies; of what was played, if that is not known."""
    known = bandit.history.X[:, column]
    if column >= bandit.candidates.context_dim:
        offered = bandit.candidates.ranges[:, column - bandit.candidates.example.shape[-1]]
        known = offered if bool(offered.isfinite().all()) else known
    if len(known) == 0 or not bool(known.min() < known.max()):
        raise InputError(f"It is not known in which range {name!r} is to be shown: give bounds=.")
    return float(known.min()), float(known.max())


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
    middle = own.ranges[:, own.context_dim - example.shape[-1] :].mean(0, keepdim=True)
    if not bool(middle.isfinite().all()):
        raise InputError("Nothing was learned yet, and actions differ from round to round: give at=, a joint point.")
    return own.points(middle.to(example).to(own.device), context, max(bandit.now, 0.0)).to(own.device), False
