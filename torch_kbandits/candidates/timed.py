"""Candidates whose points know when they are played, and some of the points of any."""

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain
from torch_kbandits.candidates.arms import Arms, ArmSource
from torch_kbandits.candidates.base import Candidates
from torch_kbandits.candidates.contextual import ContextualActions
from torch_kbandits.candidates.listing import Listing, checked_names, names_of
from torch_kbandits.errors import InputError


class Timed(Candidates):
    """Candidates of any kind, with the time at which they are played as the first column of their points.

    The kernel sees (time, point), with contexts (time, context, action), in double precision whatever the candidates
    have: in single precision dates of this century are two minutes apart. What is asked for and told has no time.
    """

    is_contextual = is_timed = True

    def __init__(self, candidates: Candidates) -> None:
        checks.instance("candidates", candidates, Candidates, "Arms, a Box or ContextualActions")
        if candidates.is_timed:
            raise InputError("The points of these candidates know the time already: give them as they are.")
        if candidates.is_split:
            hint = "give Arms, or a memory that is no prior on time and a mean= that does not depend on it"
            raise InputError(f"The arms of {type(candidates).__name__} are not read here in every round: {hint}.")
        self.untimed = candidates.on_host if isinstance(candidates, Arms) else candidates
        self.device, self.ranges = candidates.device, candidates.ranges
        self.context_dim, self.example = 1 + candidates.context_dim, dated(0.0, candidates.example)

    def in_round(self, context: Any, candidates: Any, now: float) -> Domain:
        """Return what may be played in a round, with the time as the first column of the context."""
        domain = self.untimed.in_round(context, candidates, now)
        known = self.example[0, :0] if domain.context is None else domain.context
        arms, bounds = (None if part is None else dated(now, part) for part in (domain.arms, domain.bounds))
        if bounds is not None:  # a search needs some width, and the context says what the time is
            bounds[:, 0] += bounds.new_tensor([-1.0, 1.0])
        read = domain.blocks
        blocks = None if read is None else lambda: (dated(now, block.cpu()) for block in read())
        return replace(domain, arms=arms, blocks=blocks, bounds=bounds, context=dated(now, known))

    def points(self, x: Any, context: Any, now: float) -> Tensor:
        """Return the points (q, 1 + d) that were played at a time."""
        return dated(now, self.untimed.points(x, context, now))

    def actions(self, X: Tensor) -> Any:
        """Return what is asked for, given points (q, 1 + d)."""
        return self.untimed.actions(X[:, 1:].to(self.untimed.example.dtype))

    def recommends(self, points: Tensor) -> Tensor:
        """Say of points (n, 1 + d) which may be used in the end, at another time, (n,) bool."""
        return self.untimed.recommends(points[:, 1:])


def timed(candidates: Candidates) -> Candidates:
    """Return candidates whose points know the time; these, if theirs do."""
    return candidates if candidates.is_timed else Timed(candidates)


def untimed(candidates: Candidates) -> Candidates:
    """Return candidates without the column of time that they may have."""
    return candidates.untimed if isinstance(candidates, Timed) else candidates


def column_names(candidates: Candidates) -> tuple[str, ...]:
    """Return the names of the columns of points: of the time, of contexts and then of the action."""
    space, time = untimed(candidates), ("time",) if candidates.is_timed else ()
    contexts, d = space.context_dim, space.example.shape[-1]
    plain = [f"context {i + 1}" for i in range(contexts)] + [f"x{i + 1}" for i in range(d - contexts)]
    return *time, *(name or other for name, other in zip(space.names or [""] * d, plain, strict=True))


def listing_of(candidates: Candidates, brought: Any = None, arms: Tensor | None = None) -> Listing | None:
    """Return the finite set of actions that stay, or that a round brought, of which points (A, d) may be known already.

    None on a box, a cube, and of a round that is not known.
    """
    own = untimed(candidates)
    source: ArmSource | None = getattr(own, "source", None)
    if source is not None:
        if brought is not None:
            raise InputError("The actions of this bandit are always the same: leave out candidates.")
        names = getattr(getattr(own, "table", own), "arm_names", None)

        def of_rows(rows: list[int]) -> Tensor:
            return source.rows(torch.tensor(rows, dtype=torch.long, device=source.device))

        return Listing(len(source), names, of_rows, source.find)
    if brought is None or not isinstance(own, ContextualActions):
        return None
    actions = own._checked_actions("candidates", brought) if arms is None else arms[:, candidates.context_dim :]
    return Listing(len(actions), names_of(brought), lambda rows: actions[rows])


def check_offered(name: str, candidates: Candidates, x: Any) -> None:
    """Refuse what is asked for in rounds to come if candidates do not stay, or it is not among them."""
    if not candidates.is_lasting:
        raise InputError(f"{name}= are of candidates that stay: leave it out with contexts, and tell past rewards.")
    offered = candidates.offers(points := candidates.points(x, None, 0.0))
    for row in (~offered).nonzero().flatten().tolist():
        raise InputError(f"{name}[{row}] is none of the candidates: {points[row].tolist()}.")


def table_of(candidates: Candidates) -> Arms:
    """Return the arms, or actions that stay, where they are all in memory; refuse other candidates."""
    own = untimed(candidates)
    table = getattr(own, "table", own)
    if not isinstance(table, Arms) or table.source.tensor is None:
        hint = "give Arms of a tensor or ContextualActions(actions=...), or build another bandit and replay(history)"
        raise InputError(f"Arms come and go in a table in memory: {hint}.")
    return table


def with_table(candidates: Candidates, kept: Tensor, new: Any = None, names: Any = None) -> Candidates:
    """Return candidates with another table: of its rows those kept (k,), and after them new ones, with their names."""
    own, table = untimed(candidates), table_of(candidates)
    arms, labels = cast(Tensor, table.source.tensor)[kept], names_of(new) if names is None else names
    known = table.arm_names and [table.arm_names[row] for row in kept.tolist()]
    if new is not None:
        if isinstance(own, ContextualActions):
            new = own._checked_actions("arms", new)
        else:
            new = checks.listed_points("arms", own.brought("arms", new), dimension=arms.shape[-1], like=own.example)
        if (labels is None and known is not None) or (names is not None and known is None):
            hint = "no names, since the others have none" if known is None else "names, as the others have: names=[...]"
            raise InputError(f"Give the new arms {hint}.")
        known = known and [*known, *checked_names(labels, len(new))]
        arms = torch.cat([arms, new.to(arms)])
    other = Arms(arms, names=known)
    other.device = own.device
    if isinstance(own, ContextualActions):
        columns: dict[str, Any] = {"context_columns": own.context_columns, "action_columns": own.action_columns}
        other = ContextualActions(other, context_dim=own.context_dim, **columns)
    return Timed(other) if candidates.is_timed else other


def as_told(candidates: Candidates, X: Tensor) -> Tensor:
    """Return points (q, 1 + d) as they come back once told: all but the time in the precision they are asked for in."""
    return torch.cat([X[:, :1], X[:, 1:].to(untimed(candidates).example.dtype).to(X)], dim=-1)


def dated(now: float, X: Tensor) -> Tensor:
    """Return rows (..., d) with a time before them, (..., 1 + d), in double precision."""
    return torch.cat([X.new_full((*X.shape[:-1], 1), now, dtype=torch.float64), X.double()], dim=-1)


def some_points(candidates: Candidates, number: int, now: float, generator: torch.Generator) -> Tensor:
    """Return points (k, d), k at most a number, some of which may be played at a time. Cost: O(k) arms are read.

    Of arms they are drawn with repetition, on a box uniformly, and on a cube they are points of those that a search
    evaluates first. None where what may be played depends on a context, or is not read here.
    """
    space = untimed(candidates)
    domain = Domain() if space.is_contextual else space.in_round(None, None, now)
    X, bounds = space.example[:0], domain.bounds
    if isinstance(space, Arms):
        rows = torch.randint(len(space.source), (number,), generator=generator, device="cpu")
        X = space.source.rows(rows.to(space.device)).cpu()
    elif bounds is not None:
        uniforms = torch.rand(number, bounds.shape[-1], generator=generator, dtype=torch.float64, device="cpu")
        X = bounds[0] + (bounds[1] - bounds[0]) * uniforms.to(bounds)
    elif domain.cube is not None:
        X = torch.cat(domain.initial_points(generator.initial_seed()))
        X = X[torch.randperm(len(X), generator=generator, device="cpu")[:number]]
    return dated(now, X) if candidates.is_timed else X
