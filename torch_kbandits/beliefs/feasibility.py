"""Which candidates are likely to fail, or failed just now, so that others are played."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits.acquisition import Domain
from torch_kbandits.beliefs.base import Belief
from torch_kbandits.outcomes.consecutive_failures import ConsecutiveFailures, among

#: What fails more likely than not is not played.
LARGEST_PROBABILITY = 0.5

#: Probabilities that differ by less are equal.
_ROUNDING = 1e-6


class Feasibility(NamedTuple):
    """What speaks against points.

    Attributes:
        wait: the rounds (n,) until each may be asked for, 0 for now.
        probability: of failure, (n,).
        has_chance: whether each may be tried however likely it fails, (n,).
    """

    wait: Tensor
    probability: Tensor
    has_chance: Tensor


@dataclass(frozen=True, eq=False)
class FeasibilityModel:
    """Keeps away from points that are likely to fail, and for a while from those that failed.

    Attributes:
        belief: the posterior of failures, 1 for a play that failed and 0 for another.
        points: failures in a row by point, without a time.
        actions: the same by action, whatever the context.
        round: the current one.
        own_columns: columns of points before what ``points`` know.
        context_dim: columns of points before the action.
        reach: by how much the same points may differ in each column that ``points`` know; None: not at all.
        level: points whose probability is below are kept.
        patience: the rounds of waiting that are left out since nothing else may be played.
        seen: the feasibility of the arms of the domain that was evaluated last.
    """

    belief: Belief
    points: ConsecutiveFailures
    actions: ConsecutiveFailures
    round: int
    own_columns: int = 0
    context_dim: int = 0
    reach: Tensor | None = None
    level: float = LARGEST_PROBABILITY
    patience: int = 0
    seen: tuple[Domain, Feasibility] | None = None

    def keeps(self, X: Tensor) -> Tensor:
        """Say of points (n, d) whether they may be played, (n,)."""
        return self._kept(self.feasibility_at(X))

    def rows(self, domain: Domain) -> Tensor:
        """Say the same of the arms of a round, (A,)."""
        if self.seen is not None and self.seen[0] is domain:
            return self._kept(self.seen[1])
        return self._kept(self._feasibility_on(domain))

    def excess(self, X: Tensor) -> Tensor:
        """Return by how much points (n, d) are too likely to fail, (n,)."""
        return failure_probability(self.belief, X) - self.level

    def relaxed(self, found: Feasibility, within: Tensor) -> Self:
        """Return the model that keeps one of some points at least: those that wait the least, the least likely to fail.

        Args:
            found: their feasibility.
            within: which of them nothing else forbids, (n,), one at least.
        """
        if bool((self._kept(found) & within).any()):
            return self
        patience = int(found.wait[within].min())
        free = within & (found.wait <= patience)
        other = replace(self, patience=patience)
        if not bool((other._kept(found) & within).any()):
            other = replace(other, level=float(found.probability[free].min()) + _ROUNDING)
        return other

    def relaxed_on(self, domain: Domain, within: Tensor | None) -> Self:
        """Return the same for the arms of a round, of which it remembers what it saw; None: nothing forbids any."""
        found = self._feasibility_on(domain)
        within = torch.ones_like(found.has_chance) if within is None else within
        return replace(self.relaxed(found, within), seen=(domain, found))

    def avoided(self) -> Tensor:
        """Return the points (k, d) whose latest play failed and that are not kept; of points without contexts."""
        known = [each.point for each in self.points.known.values()]
        points = torch.stack(known) if known else self.belief.inducing_points[:0]
        return points[~self.keeps(points)] if len(points) else points

    def feasibility_at(self, X: Tensor) -> Feasibility:
        """Return the feasibility of points (n, d)."""
        wait, has_chance = self._of_streaks(X)
        return Feasibility(wait, failure_probability(self.belief, X), has_chance)

    def _kept(self, found: Feasibility) -> Tensor:
        return (found.wait <= self.patience) & ((found.probability < self.level) | found.has_chance)

    def _feasibility_on(self, domain: Domain) -> Feasibility:
        """Return that of the arms of a round, (A,)."""
        with torch.no_grad():
            offer = self.belief.fantasized(self.belief.inducing_points[:0]).offered(domain)
            parts = [self._of_streaks(block) for block in domain.parts()]
            wait, has_chance = (torch.cat(column) for column in zip(*parts, strict=True))
            return Feasibility(wait, offer.mean.clamp(0.0, 1.0), has_chance)

    def _of_streaks(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rounds (n,) until points (n, d) may be asked for, and whether they have a second chance, (n,)."""
        wait = torch.zeros(len(X), dtype=torch.long, device=X.device)
        own, actions = X[:, self.own_columns :], X[:, self.context_dim :]
        for each in self.points.waiting(self.round):
            left = among(own, [each.point], self.reach) * (each.over - self.round)
            wait = torch.maximum(wait, left)
        chances = [each.point for each in self.actions.second_chances(self.round)]
        return wait, among(actions, chances)


def failure_probability(belief: Belief, X: Tensor) -> Tensor:
    """Return the posterior means of failures at points (n, d), cut off to [0, 1], (n,)."""
    with torch.no_grad():
        return belief.moments(X)[0].clamp(0.0, 1.0)
