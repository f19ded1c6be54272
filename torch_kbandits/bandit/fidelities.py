"""What is chosen where a column of the candidates is a fidelity: the target's points, and the level to play them at."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import Domain, UpperConfidenceRule
from torch_kbandits.candidates import Arms, Box, Candidates, Configurations, ContextualActions
from torch_kbandits.candidates.base import within
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.rows import among, distinct
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import Fidelity
from torch_kbandits.selection import FantasyPosterior, Surrogate
from torch_kbandits.selection.search import BoxCube, cube_of
from torch_kbandits.spaces import ParameterSpace


@dataclass(frozen=True, eq=False)
class Levels:
    """A fidelity as the points of candidates have it; checked when put together."""

    fidelity: Fidelity
    candidates: Candidates

    def __post_init__(self) -> None:
        own, column = untimed(self.candidates), self.place - self.candidates.context_dim
        if isinstance(own, Box) or (isinstance(own, ContextualActions) and own.bounds is not None):
            bounds = own.ranges[:, self.place - self.candidates.is_timed, None]
            if not bool(within(self.values.double().unsqueeze(-1), bounds).all()):
                got = f"levels {self.fidelity.levels}, and bounds {bounds.flatten().tolist()}"
                raise InputError(f"The levels must lie within the bounds of the column; got {got}.")
        elif isinstance(own, (Arms, ContextualActions)) and own.source is not None:
            found = torch.zeros(len(self.values), dtype=torch.bool)
            for block in own.source.parts():
                found |= (block[:, column, None] == self.values.to(block)).any(0).cpu()
            if not bool(found.all()):
                level = self.values[~found][0].item()
                hint = "list each point at each level, of the same precision"
                raise InputError(f"No candidate has the level {level!r} in column {column}: {hint}.")

    @cached_property
    def place(self) -> int:
        """The column of points that is the fidelity."""
        own, column, first = untimed(self.candidates), self.fidelity.column, self.candidates.context_dim
        width = self.candidates.example.shape[-1] - first
        if not isinstance(own, (Arms, Box, Configurations, ContextualActions)) or own.is_split:
            hint = "Arms in one process, a Box, ContextualActions or a ParameterSpace"
            raise InputError(f"A fidelity is a column of {hint}, and these are {type(own).__name__}.")
        names = [] if own.names is None else [*own.names][own.context_dim :]
        if isinstance(column, str) and column not in names:
            known = (
                f"there are {[name for name in names if name]}" if names else "here columns have none: give its number"
            )
            raise InputError(f"No column of the candidates is named {column!r}; {known}.")
        if isinstance(own, Configurations):
            parameter = own.space.parameters.get(column) if isinstance(column, str) else None
            if parameter is None or not parameter.is_ordered:
                raise InputError(f"column must be the name of a number that is always there, got {column!r}.")
        number = names.index(column) if isinstance(column, str) else column
        if not 0 <= number < width or width < 2:
            raise InputError(f"column must be from 0 to {width - 1}, with another beside it, got {number}.")
        return first + number

    @cached_property
    def values(self) -> Tensor:
        """The levels as points have them, (L,)."""
        own, column = untimed(self.candidates), self.fidelity.column
        if isinstance(own, Configurations) and isinstance(column, str):
            return own.space.parameters[column].encode(column, self._plain)
        return torch.tensor(self.fidelity.levels, dtype=own.example.dtype).to(self.candidates.example)

    @property
    def _plain(self) -> list[float]:
        """The levels as a space has them: whole numbers as such."""
        return [int(level) if level.is_integer() else level for level in self.fidelity.levels]

    @cached_property
    def _space(self) -> ParameterSpace:
        """The space of a ``Configurations`` at the target."""
        space = cast(Configurations, untimed(self.candidates)).space
        return replace(space, held={**space.held, self.fidelity.column: self._plain[self.fidelity.goal]})

    def at_each(self, X: Tensor) -> Tensor:
        """Return points (n, d) at each level, (n, L, d)."""
        found = X.unsqueeze(1).repeat(1, len(self.values), 1)
        found[..., self.place] = self.values.to(X)
        return found

    def at_target(self, domain: Domain) -> Domain:
        """Return what may be played of a round's domain at the target."""
        goal = self.values[self.fidelity.goal]
        if domain.cube is not None:
            return replace(domain, cube=self._space)
        if domain.bounds is not None:
            bounds = cast(BoxCube, cube_of(domain)).bounds.clone()
            bounds[:, self.place - self.candidates.context_dim] = goal.to(bounds)
            return replace(domain, cube=BoxCube(bounds), bounds=None)
        rows = torch.cat([part[:, self.place] == goal.to(part) for part in domain.parts()]).nonzero().flatten()
        rows = rows if domain.allowed is None else rows[torch.isin(rows, domain.allowed.to(rows.device))]
        if not len(rows):
            raise InputError(
                f"Nothing that may be played now has the target, {self.fidelity.levels[self.fidelity.goal]:g}, in its "
                "column: offer each action at the target, too, and do not exclude all of these."
            )
        return replace(domain, allowed=rows)

    def chosen(
        self,
        x: Tensor,
        domain: Domain,
        ahead: FantasyPosterior,
        surrogate: Surrogate,
        played: Tensor,
        may_be_played: Callable[[Tensor], Tensor],
        turn: int | None,
    ) -> Tensor:
        """Return a point (1, d) that was chosen at the target at the level at which it is to be played.

        Args:
            x: the point.
            domain: of the round, at all levels.
            ahead: the posterior with points pending.
            surrogate: the posterior, for its kernel.
            played: all points told before, (n, d), in order.
            may_be_played: says of points (n, d), which are there, whether limits and what is left out let them be.
            turn: the number of the point where points are spread, over all levels; None where they are not.
        """
        X, prices, goal = self.at_each(x)[0], torch.tensor(self.fidelity.price, dtype=torch.float64), self.fidelity.goal
        is_there = among(X.to(domain.arms), domain.arms) if domain.arms is not None else self.candidates.recommends(X)
        useful = (prices < prices[goal]) & is_there.cpu()
        if turn is None:
            useful &= prices + self._spent_since(torch.cat([played, ahead.pending])) <= prices[goal]
            useful &= self._informs(X, prices, ahead, surrogate)
        useful[useful.clone()] = may_be_played(X[useful])
        order = prices.masked_fill(~useful, torch.inf)
        place = int(order.argmin()) if turn is None else self._spread_at(turn)
        return X[place if bool(useful[place]) else goal, None].clone()

    def _spread_at(self, turn: int) -> int:
        """Return at which level the point of a number is spread: that on which the least was spent before."""
        prices, turns = self.fidelity.price, list[int]()
        while len(turns) <= turn:
            spent = [turns.count(level) * price for level, price in enumerate(prices)]
            turns.append(min(zip(spent, prices, range(len(prices)), strict=True))[-1])
        return turns[-1]

    def _spent_since(self, played: Tensor) -> float:
        """Return what was spent below the target since it was played last, of points in order, (n, d)."""
        latest, goal = self._nearest(played)[::-1], self.fidelity.goal
        return math.fsum(self.fidelity.price[level] for level in latest[: [*latest, goal].index(goal)])

    def _nearest(self, X: Tensor) -> list[int]:
        """Return the level of each point (n, d), the nearest one."""
        return (X[:, self.place, None] - self.values.to(X)).abs().argmin(-1).tolist()

    def _informs(self, X: Tensor, prices: Tensor, ahead: FantasyPosterior, surrogate: Surrogate) -> Tensor:
        """Say of a point at each level (L, d) whether it still tells something of the target; see ``Fidelity``."""
        goal = self.fidelity.goal
        with torch.no_grad():
            covariance = gram(surrogate.kernel, X).double()
            prior, variance = covariance.diagonal(), ahead.moments(X)[1].double()
            gap = 1.0 - covariance[goal].square() / (prior * prior[goal])
        columns = X.shape[-1] - self.candidates.is_timed
        return variance / prior > gap * (prices / prices[goal]) ** (2.0 / (columns + 2.0))

    def recommended(self, surrogate: Surrogate, domain: Domain, constraints: Any) -> Tensor:
        """Return the point (1, d) at the target to use: the best that was played at some level, within limits.

        The best has the largest posterior mean less one deviation: means of what was never played at the target are too
        large where they are the largest. In a context with a list of actions it is the largest mean of these.
        """
        if not surrogate.num_observations:
            return surrogate.recommend_in(domain)
        surrogate, domain = surrogate.leading or surrogate, self.at_target(domain)
        if domain.context is None or not domain.is_listed:
            known = distinct(domain.in_context(self.at_each(surrogate.played)[:, self.fidelity.goal]))[0]
            known = known[self.candidates.recommends(known)]
            known = known if constraints is None or not len(known) else known[constraints.relaxed(known)[1]]
            if len(known):
                mean, variance = surrogate.moments(known)
                return known[(mean - variance.clamp_min(0.0).sqrt()).argmax(), None].clone()
        if constraints is not None:
            raise constraints.refusal
        nothing, ahead = torch.zeros_like(surrogate.regularization), surrogate.fantasized(surrogate.inducing_points[:0])
        return ahead.choose(UpperConfidenceRule(), nothing, 0, domain).x

    def spent(self, history: History) -> float:
        """Return what the plays of a history cost that are over, one at another value that of the nearest level."""
        return math.fsum(self.fidelity.price[level] for level in self._nearest(history.over.X))
