"""Several objectives, each with a posterior of its own, and what is chosen when they are weighed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.multi_objective.pareto import is_non_dominated
from torch import Tensor

from torch_kbandits.acquisition import (
    AcquisitionRule,
    CombinedFunction,
    Domain,
    RandomRule,
    SomeOf,
    ThompsonRule,
)
from torch_kbandits.numerics.gram import prior_variance
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.outcomes import Objective
from torch_kbandits.selection.base import FantasyPosterior, Surrogate, best_of
from torch_kbandits.selection.fantasies import GaussianFantasy
from torch_kbandits.selection.propensities import Choice, Chosen, counted, shares, spread_out
from torch_kbandits.selection.search import cube_of, found

_MARGIN = 0.1  # by so much of the range of the front the reference lies below its worst
#: Points (n, d), or a round's domain of n arms.
Where = Tensor | Domain


def moments_at(surrogate: Surrogate, where: Where) -> tuple[Tensor, Tensor]:
    """Return the posterior means and variances, (n,), without points pending."""
    if isinstance(where, Tensor):
        return surrogate.moments(where)
    offer = surrogate.fantasized(surrogate.inducing_points[:0]).offered(where)
    return offer.mean, offer.variance


def parts_of(where: Where) -> Iterable[Tensor]:
    """Return points (k, d) part by part."""
    return [where] if isinstance(where, Tensor) else where.parts()


@dataclass(frozen=True, eq=False, kw_only=True)
class OutcomePosterior:
    """The posterior of what is measured of a play."""

    surrogate: Surrogate  # without points pending
    beta: Tensor  # the multiplier of its deviation, 0-dim
    dropped: int = 0  # how many columns of points, the first, it does not know

    def own(self, where: Any) -> Any:
        """Return points (..., d), or a round's domain of arms, as the posterior has them."""
        if isinstance(where, Tensor):
            return where[..., self.dropped :].to(self.surrogate.regularization.dtype)
        return where.without_first(self.dropped, self.surrogate.regularization.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectivePosterior(OutcomePosterior):
    """An objective and its posterior. Its values are in prior deviations, and much of them is sought."""

    maximize: bool  # whether much of it is sought in its own units
    pending: Tensor  # points (k, d) of which it is not told yet
    place: int = 0  # 0 for the reward; else the number of its outcome, counted from 1
    unit: float | None = None  # of its values; None for the largest prior deviation at a point played
    rule: AcquisitionRule | None = None  # how it is scored; None: as all are

    def own_seed(self, seed: int) -> int:
        """Return the seed of its draws in a choice: that of the choice for the reward."""
        return seed_for(seed, self.place, "objective") if self.place else seed

    @cached_property
    def factor(self) -> Tensor:
        """What takes its own units to values, 0-dim: by the unit, or the largest prior deviation at a point played."""
        surrogate, played = self.surrogate, self.surrogate.played
        if self.unit is not None:
            return torch.full_like(surrogate.regularization, (1.0 if self.maximize else -1.0) / self.unit)
        with torch.no_grad():
            largest = prior_variance(surrogate.kernel, played).max() if len(played) else surrogate.kernel_bound()
            scale = largest.clamp_min(torch.finfo(largest.dtype).tiny).sqrt()
            return (1.0 if self.maximize else -1.0) / scale


@dataclass(frozen=True, eq=False)
class ObjectiveSet:
    """The objectives of a bandit as they are known at a moment."""

    scalarization: Objective
    members: Sequence[ObjectivePosterior]  # those of a weight above 0, (k,)
    reward: Surrogate  # whether it is one of them or not
    are_equal: bool = False  # whether weights that would be drawn for each choice are equal instead

    @property
    def plain(self) -> "ObjectiveSet":
        """The same by posterior means, with nothing pending."""
        zero = torch.zeros_like(self.reward.regularization)
        members = [replace(member, beta=zero, pending=member.pending[:0]) for member in self.members]
        return replace(self, members=members, are_equal=True)

    def means(self, X: Tensor) -> Tensor:
        """Return the posterior means of the objectives at points (n, d), (k, n)."""
        return torch.stack([(each.factor * each.surrogate.moments(each.own(X))[0]).to(X) for each in self.members])

    @cached_property
    def reference(self) -> Tensor:
        """What is not worth having of each objective, (k,): see ``Scalarization``. 0 where it does not matter."""
        played = self.reward.played
        if not len(played) or self.scalarization.kind == "linear":
            return played.new_zeros(len(self.members))
        means = self.means(played)
        front = means[:, is_non_dominated(means.mT)]
        return front.amin(-1) - _MARGIN * (front.amax(-1) - front.amin(-1))

    def value(self, values: Sequence[Tensor], seed: int) -> Tensor:
        """Return scalarised values (...,) of those of the objectives, (k, ...), in a choice."""
        weights = self.scalarization.sought(None if self.are_equal else seed)
        return self.scalarization.value(torch.stack([*values]), weights, self.reference)

    def value_of_own(self, values: Sequence[Tensor], X: Tensor, seed: int) -> Tensor:
        """Return ``value`` of values (k, b) in the own units of the objectives, as ``CombinedFunction`` combines."""
        scaled = [each.factor.abs().to(value) * value for each, value in zip(self.members, values, strict=True)]
        return self.value(scaled, seed)

    def best_played(self, seed: int, domain: Domain, keeps: Callable[[Tensor], Tensor]) -> Tensor | None:
        """Return the point (1, d) of the largest scalarised mean of those played that ``keeps`` returns, if any."""
        played = self.reward.played
        known = played if domain.context is None else distinct(domain.in_context(played))[0]
        known = keeps(known) if len(known) else known
        return known[self.value([*self.means(known)], seed).argmax(), None].clone() if len(known) else None


class ScalarizedFantasy:
    """Several objectives with points pending: what is added to the posterior of the reward is pending of all."""

    def __init__(self, objectives: ObjectiveSet, reward: FantasyPosterior) -> None:
        self.objectives, self.reward, self._known = objectives, reward, len(reward.pending)
        others = (member for member in objectives.members if member.place)
        self._others = {each.place: each.surrogate.fantasized(each.own(each.pending)) for each in others}

    @property
    def pending(self) -> Tensor:
        """The points pending, (k, d)."""
        return self.reward.pending

    def offered(self, domain: Domain) -> Any:
        """Return what may be played in a round, with the posterior of the reward."""
        return self.reward.offered(domain)

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Chosen:
        """Return the point of the largest scalarised score; of the reward where that alone counts."""
        members, reward = self.objectives.members, self.objectives.reward
        is_told = any(each.num_observations for each in (reward, *(member.surrogate for member in members)))
        if isinstance(rule, RandomRule) or self._is_alone or not (domain.is_listed or is_told):
            return self.reward.choose(rule, beta, seed, domain)
        if domain.is_listed:
            scores, ranks, rows = self.scores(rule, seed, domain), self.reward.tie_rank, domain.allowed
            number, every = len(scores), torch.arange(len(scores), device=scores.device) if rows is None else rows
            if rows is not None:
                scores, ranks = scores[rows], None if ranks is None else ranks[rows]
            row = every[self._best(scores, seed, ranks)]
            own = partial(shares, *self._scale, scores)
            choice = Choice(row, lambda: spread_out(own(), every, number))
            if rule.is_random or self.objectives.scalarization.is_random:
                choice = counted(self, choice, rule, beta, seed, domain)
            return Chosen(self.reward.offered(domain).chosen(row), choice)
        models = [cast(Any, ahead).model for ahead in self._aheads()]
        if domain.bounds is not None and isinstance(rule, ThompsonRule):
            points = distinct(rule.discretization(domain, seed))[0]
            with torch.no_grad():
                scores = self.function(rule, models, seed, domain)(points.unsqueeze(-2))
            return Chosen(points[scores.argmax(), None].clone())
        domain = self._searched(domain, seed)

        def score(points: Tensor) -> Tensor:
            return self.scores(rule, seed, replace(domain, arms=points, cube=None))

        function = None if rule.draws_functions else lambda: self.function(rule, models, seed, domain)
        points = found(domain, score, function, seed)
        return Chosen(points[int(self._best(score(points), seed)), None].clone())

    @torch.no_grad()
    def scores(self, rule: AcquisitionRule, seed: int, domain: Domain) -> Tensor:
        """Return the scalarised scores of the arms of a round, (A,)."""
        scores = []
        for each, ahead in zip(self.objectives.members, self._aheads(), strict=True):
            own, known, best = each.rule or rule, each.own(domain), None
            if own.needs_incumbent and isinstance(ahead, GaussianFantasy):
                best = ahead.incumbent_within(known)
            values = SomeOf(ahead.offered(known), slice(None), best, each.factor)
            scores.append(own.on_arms(values, each.beta, each.own_seed(seed)))
        return self.objectives.value(scores, seed)

    def function(
        self, rule: AcquisitionRule, models: Sequence[Model], seed: int, domain: Domain
    ) -> AcquisitionFunction:
        """Return the function that a choice maximises, on the posteriors without anything pending, one for each."""
        members = self.objectives.members
        if isinstance(rule, ThompsonRule):  # all draws at the same points
            where = domain if domain.bounds is not None else self._searched(domain, seed)
            domain = replace(domain, arms=rule.discretization(where, seed), bounds=None, cube=None)
        elif not self._is_alone:  # a box is searched point by point
            domain = replace(domain, bounds=None)
        functions = list[AcquisitionFunction]()
        for each, ahead, model in zip(members, self._aheads(), models, strict=True):
            pending = ahead.pending.to(cast(Any, model).train_inputs[0].device) if len(ahead.pending) else None
            words = model, each.beta, pending, each.own(domain), each.own_seed(seed)
            functions.append((each.rule or rule).function(*words))
            functions[-1].maximize = each.maximize  # pyright: ignore[reportArgumentType]
        return CombinedFunction(functions, partial(self.objectives.value_of_own, seed=seed), [x.own for x in members])

    @property
    def _is_alone(self) -> bool:
        """Whether the reward alone counts."""
        members = self.objectives.members
        return len(members) == 1 and members[0].place == 0 and members[0].maximize

    def _aheads(self) -> list[FantasyPosterior]:
        """Return the posterior of each objective with all that is pending by now, (k,)."""
        new = self.pending[self._known :]
        self._known += len(new)
        for member in self.objectives.members:
            for point in member.own(new).split(1) if member.place and len(new) else ():
                self._others[member.place].add(point)
        return [self._others.get(member.place, self.reward) for member in self.objectives.members]

    def _best(self, scores: Tensor, seed: int, ranks: Tensor | None = None) -> int | Tensor:
        """Return the position of the highest score (A,); equals are broken at random."""
        return best_of(scores, *self._scale, seed, ranks)[0]

    @property
    def _scale(self) -> tuple[Tensor, Tensor]:
        """The largest multiplier of σ, and the largest prior variance: weights sum to 1, of prior deviations."""
        widest = torch.stack([member.beta for member in self.objectives.members]).max()
        return widest, torch.ones_like(widest)

    def _searched(self, domain: Domain, seed: int) -> Domain:
        """Return a domain with the best point played as a start, and in the place of a box a cube."""
        if domain.is_listed:
            return domain
        cube = cube_of(domain)
        best = self.objectives.best_played(seed, domain, lambda X: X[cube.allows(X[:, -cube.dimension :])])
        return replace(domain, cube=cube, bounds=None, starts=best)
