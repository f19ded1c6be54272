"""What is chosen next for several objectives, with points pending."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from torch_kbandits.acquisition import (
    AcquisitionRule,
    ArmPosterior,
    Domain,
    OptimisticRule,
    ThompsonRule,
    UpperConfidenceRule,
)
from torch_kbandits.beliefs.base import FantasyPosterior, best_of
from torch_kbandits.beliefs.constrained import constrained, kept_within, refused
from torch_kbandits.beliefs.constrained_cube import BoxCube
from torch_kbandits.beliefs.constraint_set import ConstraintSet
from torch_kbandits.beliefs.cube_search import found
from torch_kbandits.beliefs.fantasies import GaussianFantasy
from torch_kbandits.beliefs.objectives import ObjectivePosterior, ObjectiveSet, ScalarizedAcquisition
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.numerics.rows import distinct

#: A multiplier of deviations below this counts as this where it is divided by.
_LEAST = 1e-6


class ObjectiveFantasies:
    """The objectives with what is pending, which grows while points are asked for.

    Args:
        objectives: the objectives.
        ahead: the posterior of the reward with all that is pending.
    """

    def __init__(self, objectives: ObjectiveSet, ahead: FantasyPosterior) -> None:
        self._objectives, self._known = objectives, len(ahead.pending)
        self._others = {
            member.place: member.belief.fantasized(member.own_points(member.pending))
            for member in objectives.members
            if member.place
        }

    def scalarized(self, ahead: FantasyPosterior, beta: Tensor, seed: int) -> "ScalarizedFantasy":
        """Return the objectives with the weights of a choice.

        Args:
            ahead: of the reward, with all that is pending by now.
            beta: the multiplier of the deviation of the reward, 0-dim.
            seed: of the choice.
        """
        new = ahead.pending[self._known :]
        self._known += len(new)
        for member in self._objectives.members:
            for point in member.own_points(new) if member.place else ():
                self._others[member.place].add(point.unsqueeze(0))
        aheads = [self._others[member.place] if member.place else ahead for member in self._objectives.members]
        return ScalarizedFantasy(self._objectives, ahead, aheads, self._objectives.scalarization.sought(seed), beta)


@dataclass(frozen=True, eq=False)
class ScalarizedFantasy:
    """Several objectives with points pending, and what each is worth in a choice. Values are in prior deviations.

    Attributes:
        objectives: the objectives.
        reward: the posterior of the reward with what is pending.
        aheads: that of each objective, (k,).
        weights: (k,).
        beta: the multiplier of the deviation of the reward, 0-dim.
    """

    objectives: ObjectiveSet
    reward: FantasyPosterior
    aheads: Sequence[FantasyPosterior]
    weights: Tensor
    beta: Tensor

    @property
    def pending(self) -> Tensor:
        """The points pending, (k, d)."""
        return self.reward.pending

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Tensor:
        """Return the point (1, d) of the largest scalarised score; that of the reward alone where nothing else counts.

        Args:
            rule: how to choose.
            beta: the multiplier of the deviation of the reward, 0-dim.
            seed: all randomness of the choice.
            domain: what may be played.
        """
        is_listed = domain.arms is not None or domain.blocks is not None
        is_first = not is_listed and not self.objectives.is_told
        if not isinstance(rule, OptimisticRule) or self.objectives.is_reward_alone or is_first:
            return self.reward.choose(rule, beta, seed, domain)
        if domain.bounds is not None and isinstance(rule, ThompsonRule):
            return self._on_spread(rule, seed, domain)
        domain = self._searched(domain)
        if domain.cube is not None:
            return self._on_cube(rule, seed, domain)
        with torch.no_grad():
            scores, rows = self._scores(rule, seed, domain), domain.allowed
            lots = self.reward.tie_rank
            if rows is not None:
                scores, lots = scores[rows], None if lots is None else lots[rows]
            row = self._best(scores, seed, lots)
            return self.reward.offered(domain).chosen(row if rows is None else rows[row])

    def function(self, rule: OptimisticRule, models: Sequence[Model], seed: int, domain: Domain) -> AcquisitionFunction:
        """Return the function that a choice maximises, on the posteriors without anything pending, one for each."""
        if isinstance(rule, ThompsonRule):  # all draws at the same points
            where = domain if domain.bounds is not None else self._searched(domain)
            domain = replace(domain, arms=rule.discretization(where, seed), bounds=None, cube=None)
        functions = list[AcquisitionFunction]()
        for member, ahead, model in zip(self.objectives.members, self.aheads, models, strict=True):
            pending = ahead.pending.to(cast(Any, model).train_inputs[0].device) if len(ahead.pending) else None
            own, own_seed = member.own_domain(domain), member.own_seed(seed)
            functions.append(rule.function(model, member.beta, pending, own, own_seed))
            functions[-1].maximize = member.maximize  # pyright: ignore[reportArgumentType]
        return ScalarizedAcquisition(functions, self.objectives, self.weights)

    def offered(self, domain: Domain | None) -> "_ScalarizedBounds":
        """Return between what the scalarised value lies at the arms of a round, (A,), by the bounds of each."""
        return _ScalarizedBounds(self, cast(Domain, domain))

    def _scores(self, rule: OptimisticRule, seed: int, domain: Domain) -> Tensor:
        """Return the scalarised scores of the arms, (A,)."""
        values = [
            rule.on_arms(_Scaled(ahead, member, domain), member.beta, member.own_seed(seed))
            for member, ahead in zip(self.objectives.members, self.aheads, strict=True)
        ]
        return self.objectives.value(torch.stack(values), self.weights)

    def _best(self, scores: Tensor, seed: int, lots: Tensor | None = None) -> int | Tensor:
        """Return the position of the highest score (A,); equals are broken at random."""
        widest = torch.stack([member.beta for member in self.objectives.members]).max()
        return best_of(scores, widest, torch.ones_like(widest), seed, lots)[0]  # weights sum to 1, of prior deviations

    def _models(self) -> list[Model]:
        return [cast(GaussianFantasy, ahead).model for ahead in self.aheads]

    def _on_spread(self, rule: ThompsonRule, seed: int, domain: Domain) -> Tensor:
        """Return the point (1, d) of a box that is the best, in a draw, of those at which it is drawn."""
        points = distinct(rule.discretization(domain, seed))[0]
        with torch.no_grad():
            scores = self.function(rule, self._models(), seed, domain)(points.unsqueeze(-2))
        return points[scores.argmax(), None].clone()

    def _searched(self, domain: Domain) -> Domain:
        """Return a domain with the best point played as a start, and in the place of a box a cube."""
        if domain.bounds is not None:
            first = 0 if domain.context is None else len(domain.context)
            domain = replace(domain, cube=BoxCube(domain.bounds[:, first:]), bounds=None)
        if domain.cube is None:
            return domain
        cube = domain.cube
        best = self.objectives.best_played(self.weights, domain, lambda X: cube.allows(X[:, -cube.dimension :]))
        return replace(domain, starts=best)

    def _on_cube(self, rule: OptimisticRule, seed: int, domain: Domain) -> Tensor:
        """Return the joint point (1, d) that is found on a cube: at least as good as all that is evaluated first."""

        def score(points: Tensor) -> Tensor:
            with torch.no_grad():
                return self._scores(rule, seed, replace(domain, arms=points, cube=None))

        def function() -> AcquisitionFunction:
            return self.function(rule, self._models(), seed, domain)

        points = found(domain, score, None if rule.draws_functions else function, seed)
        return points[int(self._best(score(points), seed)), None].clone()


class _Scaled:
    """The posterior of an objective at the arms of a round, in prior deviations, much of which is sought.

    Args:
        ahead: with points pending.
        member: the objective.
        domain: of the round.
    """

    def __init__(self, ahead: FantasyPosterior, member: ObjectivePosterior, domain: Domain) -> None:
        self._offer = cast(ArmPosterior, ahead.offered(member.own_domain(domain)))
        self._factor, self._scale = member.sign / member.scale, member.scale

    @property
    def mean(self) -> Tensor:
        """Posterior means (A,)."""
        return self._factor * self._offer.mean

    @property
    def variance(self) -> Tensor:
        """Posterior variances (A,), with pending points hallucinated."""
        return self._offer.variance / self._scale.square()

    @property
    def incumbent(self) -> Tensor:
        """The largest mean, 0-dim."""
        return self.mean.max()

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,)."""
        return self._factor * self._offer.deviation(seed)


class _ScalarizedBounds:
    """What the scalarised value is between at the arms of a round, as mean and variance.

    Args:
        weighed: the objectives.
        domain: of the round.
    """

    def __init__(self, weighed: ScalarizedFantasy, domain: Domain) -> None:
        objectives, self._offer = weighed.objectives, weighed.reward.offered(domain)
        offers = [
            _Scaled(ahead, member, domain) for member, ahead in zip(objectives.members, weighed.aheads, strict=True)
        ]
        means = torch.stack([offer.mean for offer in offers])
        widths = torch.stack(
            [
                member.beta * offer.variance.clamp_min(0.0).sqrt()
                for member, offer in zip(objectives.members, offers, strict=True)
            ]
        )
        upper, lower = (
            objectives.value(means + widths, weighed.weights),
            objectives.value(means - widths, weighed.weights),
        )
        beta = weighed.beta.clamp_min(_LEAST)
        self.mean, self.variance = (upper + lower) / 2.0, ((upper - lower) / 2.0 / beta).square()

    def chosen(self, row: int | Tensor) -> Tensor:
        """Return the arm of a row, (1, d)."""
        return self._offer.chosen(row)


def recommended_for(
    objectives: ObjectiveSet, domain: Domain, constraints: ConstraintSet | None, keeps: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the point (1, d) of the largest scalarised mean: of a round's arms or box, or of those played.

    Without a context, on a cube, or within limits on a box, it is one that was played, in whatever context.

    Args:
        objectives: the objectives.
        domain: of the round.
        constraints: limits on outcomes; None for none.
        keeps: says of points played (n, d) which may be recommended, (n,) bool; where none may be and there are no
            limits, it is the best of the domain.

    Raises:
        EmptyHistoryError: if there is no observation.
        InfeasibleError: if the limits leave none.
    """
    if objectives.reward.num_observations == 0:
        raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")
    weights = objectives.scalarization.sought()
    is_searched = (
        domain.arms is not None or domain.blocks is not None or (domain.bounds is not None and constraints is None)
    )
    if domain.context is None or not is_searched:
        best = objectives.best_played(
            weights, domain, keeps if constraints is None else lambda X: kept_within(X, constraints, keeps)
        )
        if best is not None:
            return best
        if constraints is not None:
            raise refused(constraints, domain)
        domain = domain if domain.cube is None else domain.spread()
    zero = torch.zeros_like(objectives.reward.regularization)
    plain = replace(
        objectives, members=[replace(member, beta=zero, pending=member.pending[:0]) for member in objectives.members]
    )
    ahead = objectives.reward.fantasized(objectives.reward.played[:0])
    weighed = replace(ObjectiveFantasies(plain, ahead).scalarized(ahead, zero, 0), weights=weights)
    if constraints is not None:
        if constraints.limits is not None and not bool(constraints.limits.rows(domain).any()):
            raise refused(constraints, domain)
        domain, _ = constrained(domain, constraints)
    return weighed.choose(UpperConfidenceRule(), zero, 0, domain)
