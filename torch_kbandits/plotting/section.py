"""The points at which a posterior is drawn: one or two coordinates vary, the others are fixed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, ContextualActions
from torch_kbandits.candidates.timed import column_names, untimed
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.observations.columns import Number

#: Points whose posterior is computed at a time, and of each coordinate of a line or a plane.
_BLOCK, _NUMBERS = 4096, {1: 200, 2: 60}


def moments(bandit: Bandit, X: Tensor, model: Any = None) -> tuple[Tensor, Tensor]:
    """Return posterior means and standard deviations (q,) at points X (q, d), joint with contexts. Cost: O(q m²)."""
    means, deviations = [X.new_zeros(0)], [X.new_zeros(0)]
    with torch.no_grad():
        for block in X.split(_BLOCK) if len(X) else ():
            posterior = (model or bandit.model).posterior(block.unsqueeze(-2).to(bandit.candidates.device))
            means.append(cast(Tensor, posterior.mean).flatten())
            deviations.append(posterior.variance.flatten().clamp_min(0.0).sqrt())
    return torch.cat(means[1:] or means), torch.cat(deviations[1:] or deviations)


def recommended_point(bandit: Bandit, context: Any = None, candidates: Any = None) -> Tensor | None:
    """Return the point (1, d) that ``recommend`` returns now; None before any reward that counts.

    Where actions differ by round and none are given, it is of those played. A bandit that asks an expert would remember
    the question: for it the point is the played one of the largest mean.
    """
    kinds, played = bandit.candidates, bandit.history.X[bandit.weights > 0.0]
    now, offers = max(bandit.now, 0.0), untimed(kinds)
    if candidates is None and isinstance(offers, ContextualActions) and offers.set is None and offers.bounds is None:
        if not len(played):
            return None
        candidates = kinds.actions(played)
    kinds.in_round(context, candidates, now)  # refuses what does not fit
    if not len(played):
        return None
    if bandit._config.advice is not None:
        return played[moments(bandit, played)[0].argmax(), None].clone()
    # The current time as it was given: a number or a date; None for the round.
    kind, time = bandit._state.clock.kind or "", bandit.now if bandit._state.clock.kind == "numbers" else None
    if kind.startswith("dates"):
        time = datetime.fromtimestamp(bandit.now, UTC).replace(tzinfo=None if kind == "dates" else UTC)
    best = bandit.recommend(context=context, candidates=candidates, time=time)
    return kinds.points(best, context, now).to(kinds.device)


class Section:
    """Points of which one or two coordinates vary while the others are fixed; the arguments are those of ``plot_line``.

    Attributes:
        columns: which coordinates vary, one or two.
        values: for each of them its values (k,), as the kernel sees them.
        at: the point (1, d) that has the fixed coordinates; it lies on the section.
        names: of all d coordinates.
        is_recommended: whether ``at`` is the point that the bandit recommends, and within what is shown.
    """

    def __init__(
        self,
        bandit: Bandit,
        coordinates: Sequence[int | str],
        at: Tensor | None,
        context: Any,
        candidates: Any,
        bounds: Tensor | None,
    ) -> None:
        self._bandit, self.names = bandit, column_names(bandit.candidates)
        self.columns = tuple(map(self._column, coordinates))
        if len(set(self.columns)) != len(self.columns):
            raise InputError(f"The coordinates must differ, got {list(coordinates)}.")
        self.values = self._values(bounds)
        best = None if at is not None else recommended_point(bandit, context, candidates)
        self.at = self._fixed(at, context, candidates) if best is None else best
        self.is_recommended = best is not None and bool(self.covers(best))

    @property
    def points(self) -> Tensor:
        """All points of the section, (k, d), or (k₁ k₂, d) with the second coordinate running fastest."""
        return self._moved(torch.cartesian_prod(*self.values).reshape(-1, len(self.columns)))

    def through(self, X: Tensor) -> Tensor:
        """Return points (q, d) moved onto the section."""
        return self._moved(X[:, list(self.columns)])

    def covers(self, X: Tensor) -> Tensor:
        """Return which points (q, d) have their varying coordinates within what is shown, (q,)."""
        low, high = (torch.stack([end(each) for each in self.values]) for end in (torch.min, torch.max))
        varying = X[:, list(self.columns)]
        return ((varying >= low) & (varying <= high)).all(-1)

    def shown(self, column: int, values: Tensor) -> Any:
        """Return values (k,) of a coordinate in the units of its column, as an array; as they are if no spec knows."""
        owner = self.owner(column)
        known = owner.decode(values.unsqueeze(-1)) if isinstance(owner, Number) else values.tolist()
        return torch.tensor(known, dtype=torch.float64).numpy()

    def owner(self, column: int) -> Any:
        """Return the entry of a column spec that a coordinate is made by; None if no spec is given for it."""
        candidates = self._bandit.candidates
        kind, place = untimed(candidates), column - int(candidates.is_timed)
        if place < 0 or not isinstance(kind, ContextualActions):
            return None
        is_context = place < kind.context_dim
        spec, place = (kind.context_columns, place) if is_context else (kind.action_columns, place - kind.context_dim)
        return None if spec is None else next(each for each in spec.columns if place in spec.columns_of(each.name))

    # ---------------------------------------------------------------- inside

    def _moved(self, values: Tensor) -> Tensor:
        moved = self.at.repeat(len(values), 1)
        moved[:, list(self.columns)] = values
        return moved

    def _column(self, coordinate: Any) -> int:
        """Return the number of a coordinate; a category's columns cannot vary by themselves."""
        if isinstance(coordinate, str):
            column = self.names.index(checks.one_of("coordinate", coordinate, self.names))
        elif (column := checks.non_negative_integer("coordinate", coordinate)) >= len(self.names):
            raise InputError(f"coordinate must be from 0 to {len(self.names) - 1}, got {column}.")
        if not isinstance(self.owner(column), Number | None):
            raise InputError(f"{self.names[column]!r} belongs to a category, with nothing between its levels: fix it.")
        return column

    def _values(self, bounds: Tensor | None) -> tuple[Tensor, ...]:
        """Return the values of each varying coordinate, (k,)."""
        candidates, kernel = untimed(self._bandit.candidates), self._bandit.model.covar_module
        arms = candidates.source.tensor if isinstance(candidates, Arms) else None
        if arms is not None and any(isinstance(part, PrecomputedKernel) for part in kernel.modules()):
            return (arms[:, 0].unique(),)  # it knows arms by their number
        ranges = torch.stack([*map(self._range, self.columns)], -1) if bounds is None else checks.bounds(bounds)
        if ranges.shape[-1] != len(self.columns):
            raise InputError(f"bounds must be (2, {len(self.columns)}); got {checks.describe(bounds)}.")
        kind: Any = {"dtype": candidates.example.dtype, "device": self._bandit.candidates.device}
        number = _NUMBERS[len(self.columns)]
        return tuple(torch.linspace(float(low), float(high), number, **kind) for low, high in ranges.T)

    def _range(self, column: int) -> Tensor:
        """Return the bounds (2,) of a coordinate of what may be played; of what was played, if those are not known."""
        candidates, known = self._bandit.candidates, self._bandit.history.X[:, column].double()
        if column >= candidates.context_dim:
            offered = candidates.ranges[:, column - len(self.names)].double()
            known = offered if bool(offered.isfinite().all()) else known
        if len(known) == 0 or not bool(known.min() < known.max()):
            raise InputError(f"It is not known in which range {self.names[column]!r} is to be shown: give bounds=.")
        return torch.stack([known.min(), known.max()]).cpu()

    def _fixed(self, at: Tensor | None, context: Any, candidates: Any) -> Tensor:
        """Return the point (1, d) that has the fixed coordinates where none is recommended."""
        own, example = self._bandit.candidates, self._bandit.candidates.example
        if at is not None:
            if context is not None or candidates is not None:
                raise InputError("Give either at, a whole point, or the context in which a point is recommended.")
            point = checks.floating_tensor("at", own.brought("at", at)).reshape(1, -1)
            return checks.points("at", point, dimension=example.shape[-1], like=example).to(own.device)
        middle = own.ranges[:, own.context_dim - example.shape[-1] :].mean(0, keepdim=True)
        if not bool(middle.isfinite().all()):
            raise InputError(
                "Nothing was learned yet, and actions differ from round to round: give at=, a whole point."
            )
        return own.points(middle.to(example).to(own.device), context, max(self._bandit.now, 0.0)).to(own.device)
