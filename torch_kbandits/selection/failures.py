"""What keeps away from failures: a model of how likely points are to fail, and waits after those that did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.observations.history import History
from torch_kbandits.selection.base import Surrogate
from torch_kbandits.selection.objectives import Where, moments_at, parts_of

_MOST_DOUBLED = 40  # a wait does not double more often: it would outlast any run
_ROUNDS_PER_CHANCE = 20  # of so many rounds at most one goes to second chances, while failures go on
_LARGEST_PROBABILITY = 0.5  # what fails more likely than not is not played
_ROUNDING = 1e-6  # probabilities that differ by less are equal


class FailureStreak(NamedTuple):
    """Failures in a row at one point, the latest of its plays."""

    point: Tensor  # (d,)
    count: int  # at least 1
    round: int  # of the latest

    @property
    def over(self) -> int:
        """The first round in which the point may be asked for again: 2^k − 1 are left out after k failures."""
        return self.round + 2 ** min(self.count, _MOST_DOUBLED)


#: The streak of each point whose latest play failed, by its key.
FailureStreaks = Mapping[bytes, FailureStreak]


def _followed(streaks: FailureStreaks, X: Tensor, failed: Tensor, rounds: Tensor) -> FailureStreaks:
    """Return the streaks after more plays at points (q, d) that failed or did not, (q,), in rounds (q,)."""
    known = dict(streaks)
    for point, key, lost, number in zip(X, row_keys(X), failed.tolist(), rounds.tolist(), strict=True):
        before = known.pop(key, None)
        if lost:
            known[key] = FailureStreak(point, 1 if before is None else before.count + 1, number)
    return known


@dataclass(frozen=True, eq=False)
class FeasibilityModel:
    """Keeps away from points that are likely to fail, and for a while from those that failed. A value.

    The probability of failure is the posterior mean of a Gaussian process regression of 1 for a play that failed and 0
    for another, cut off to [0, 1]. It has the kernel of the reward in force: where rewards are alike, so is what fails.
    With B streaks a second chance comes 20 B 2^(k − 1) rounds after the k-th failure: to what always fails one round in
    20 at most is lost, and fewer and fewer; and what failed by chance comes back.

    Source: a constraint that is only seen as kept or broken is learned beside the objective by Gelbart et al.,
    "Bayesian optimization with unknown constraints", UAI 2014, and Lindberg and Lee, "Optimization under constraints by
    applying an asymmetric entropy measure", 2015. Differs: both classify; a regression has the closed form, memory and
    dictionary of the other posteriors, and says as well on which side of 1/2 a point is.
    """

    surrogate: Surrogate  # of failures
    own_columns: int  # columns of points before what ``points`` know, of the time
    context_dim: int  # columns of points before the action
    points: FailureStreaks = field(default_factory=dict)  # without a time
    actions: FailureStreaks = field(default_factory=dict)  # whatever the context
    round: int = 0  # the current one
    reach: Tensor | None = None  # by how much the same points may differ in each column of ``points``; None: not at all
    level: float = _LARGEST_PROBABILITY  # below which points are allowed
    patience: int = 0  # rounds of waiting that are left out since nothing else may be played

    def at(self, now: float) -> Self:
        """Return the model at a time."""
        surrogate = self.surrogate.at(now)
        return self if surrogate is self.surrogate else replace(self, surrogate=surrogate)

    def told(self, new: History, surrogate: Surrogate) -> Self:
        """Return the model once more plays are over, which a surrogate has learned already."""
        new = new.over
        points, actions = (
            _followed(known, new.X[:, first:], new.lost, new.rounds)
            for known, first in ((self.points, self.own_columns), (self.actions, self.context_dim))
        )
        return replace(self, surrogate=surrogate, points=points, actions=actions)

    def plain(self, played: Tensor) -> Self:
        """Return what keeps away from points that only failed, and did not do well (n, d) as well, at any time."""
        good = {*row_keys(played[:, self.own_columns :])}
        failing = {key: each._replace(round=self.round) for key, each in self.points.items() if key not in good}
        return replace(self, points=failing, actions={})

    def waiting(self, now: int) -> list[FailureStreak]:
        """Return the streaks whose points are not to be asked for in a round."""
        return [each for each in self.points.values() if each.over > now]

    def allows(self, where: Where) -> Tensor:
        """Say which may be played, (n,)."""
        wait, probability = self._at(where)
        return (wait <= self.patience) & (probability < self.level)

    def relaxed(self, where: Where, within: Tensor) -> Self:
        """Return the model that allows some of those that nothing else forbids, (n,).

        They are those that wait the least, and of these the least likely to fail.
        """
        (wait, probability), patience, level = self._at(where), self.patience, self.level
        if not bool((within & (wait <= patience) & (probability < level)).any()):
            patience = int(wait[within].min())
        least = float(probability[within & (wait <= patience)].min())
        return replace(self, patience=patience, level=level if least < level else least + _ROUNDING)

    def avoided(self) -> Tensor:
        """Return the points (k, d) whose latest play failed and that are not allowed; of points without contexts."""
        known = [each.point for each in self.points.values()]
        points = torch.stack(known) if known else self.surrogate.inducing_points[:0]
        return points[~self.allows(points)] if len(points) else points

    def probability(self, where: Where) -> Tensor:
        """Return the posterior means of failures, cut off to [0, 1], (n,)."""
        with torch.no_grad():
            return moments_at(self.surrogate, where)[0].clamp(0.0, 1.0)

    def _at(self, where: Where) -> tuple[Tensor, Tensor]:
        """Return the rounds until each may be played, and its probability of failure, 0 with a chance, both (n,)."""
        waits, have_chances, least = [], [], _ROUNDS_PER_CHANCE * len(self.actions)
        ages = [(each, self.round - each.round) for each in self.actions.values()]
        chances = [each.point for each, age in ages if age >= least * 2 ** min(each.count - 1, _MOST_DOUBLED)]
        for X in parts_of(where):
            wait = torch.zeros(len(X), dtype=torch.long, device=X.device)
            for each in self.waiting(self.round):
                is_it = among(X[:, self.own_columns :], [each.point], self.reach)
                wait = torch.maximum(wait, is_it * (each.over - self.round))
            waits.append(wait)
            have_chances.append(among(X[:, self.context_dim :], chances))
        return torch.cat(waits), self.probability(where).masked_fill(torch.cat(have_chances), 0.0)


def among(X: Tensor, points: Sequence[Tensor], reach: Tensor | None = None) -> Tensor:
    """Say of points (n, d) whether one of others, (d,) each, is the same but for so much in each column, (n,)."""
    found = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for point in (each.to(X.device) for each in points):
        found |= ((point == X) if reach is None else ((X - point).abs() <= reach)).all(-1)
    return found
