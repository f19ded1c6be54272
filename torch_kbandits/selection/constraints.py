"""Which candidates are allowed: those within limits on outcomes, unless they are likely to fail or failed just now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from torch_kbandits.acquisition import CombinedFunction, Domain
from torch_kbandits.errors import InfeasibleError
from torch_kbandits.numerics.rows import row_keys
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import KnownSafe, Limit
from torch_kbandits.selection.base import Offered, Surrogate

#: A wait does not double more often: it would outlast any run.
_MOST_DOUBLED = 40
#: Of so many rounds at most one goes to second chances, while failures go on.
_ROUNDS_PER_CHANCE = 20
#: What fails more likely than not is not played.
_LARGEST_PROBABILITY = 0.5
#: Probabilities that differ by less are equal.
_ROUNDING = 1e-6
#: Points (n, d), or a round's domain of n arms.
Where = Tensor | Domain


def _offered(surrogate: Surrogate, domain: Domain) -> Offered:
    """Return the posterior without points pending at the arms of a round."""
    return surrogate.fantasized(surrogate.inducing_points[:0]).offered(domain)


def _parts(where: Where) -> Iterable[Tensor]:
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
class ConstrainedOutcome(OutcomePosterior):
    """A limit, and the posterior of its outcome."""

    limit: Limit
    known: KnownSafe  # whatever the posterior says
    is_trusted: bool  # whether the prior is given or was fitted; else the posterior says nothing yet

    def excess(self, where: Where, *, surely: bool) -> Tensor:
        """Return by how much the worse bound, or else the better, is beyond the limit, in prior deviations, (n,)."""
        own, bound = self.own(where), self.surrogate.kernel_bound()
        if isinstance(own, Tensor):
            mean, variance = self.surrogate.moments(own)
        else:
            offer = _offered(self.surrogate, own)
            mean, variance = offer.mean, offer.variance
        excess = self.limit.excess(mean, variance, self.beta, surely=surely)
        return excess / bound.clamp_min(torch.finfo(bound.dtype).tiny).sqrt()

    def allows(self, where: Where, *, surely: bool) -> Tensor:
        """Say which are within the limit by that bound, (n,)."""
        within = self.excess(where, surely=surely) <= 0.0
        within = within if self.is_trusted else torch.full_like(within, not surely)
        return within | torch.cat([self.known.contains(part) for part in _parts(where)]) if surely else within


@dataclass(frozen=True, eq=False)
class ConstraintSet:
    """All limits at once, and what keeps away from failures."""

    outcomes: Sequence[ConstrainedOutcome]  # at least one, unless there is a model of failures
    likely: Tensor  # points (n, d) that were played, near which a search looks for what is allowed
    feasibility: "FeasibilityModel | None" = None  # None while no play failed

    @property
    def is_safe(self) -> bool:
        """Whether a limit allows only what is surely within it."""
        return any(each.limit.is_safe for each in self.outcomes)

    @property
    def names(self) -> str:
        """The names of the outcomes that have limits."""
        return " and ".join(sorted({each.limit.name for each in self.outcomes}))

    def allows(self, where: Where, *, hopefully: bool = False) -> Tensor:
        """Say which may be played, (n,); hopefully: also what is not surely within a limit, and may be."""
        if isinstance(where, Tensor) and not where.is_cpu:
            return self.allows(where.cpu(), hopefully=hopefully).to(where.device)
        within = self._within(where, hopefully=hopefully)
        return within if self.feasibility is None else within & self.feasibility.allows(where)

    def relaxed(self, where: Where) -> tuple[Self, Tensor]:
        """Return the constraints, relaxed until failures leave some of what limits do, and what may be played, (n,)."""
        within = self._within(where)
        if self.feasibility is None or not bool(within.any()):
            return self, within
        model = self.feasibility.relaxed(where, within)
        return replace(self, feasibility=model), within & model.allows(where)

    def excess(self, X: Tensor) -> Tensor:
        """Return by how much points (n, d) are beyond the limits by the better bounds, the largest of each, (n,)."""
        found = [each.excess(X, surely=False) for each in self.outcomes]
        if self.feasibility is not None:
            found.append(failure_probability(self.feasibility.surrogate, X) - self.feasibility.level)
        return torch.stack(found).amax(0)

    def _within(self, where: Where, *, hopefully: bool = False) -> Tensor:
        """Say which are within all limits, (n,)."""
        with torch.no_grad():
            kept = [each.allows(where, surely=each.limit.is_safe and not hopefully) for each in self.outcomes]
        if not kept:
            return torch.cat([part.new_ones(len(part), dtype=torch.bool) for part in _parts(where)])
        return torch.stack(kept).all(0)

    @property
    def refusal(self) -> InfeasibleError:
        """What to raise where nothing may be played."""
        if self.is_safe:
            return InfeasibleError(
                f"No candidate is known to be safe by what was told of {self.names}. Give the limit safe_seed=, tell "
                "plays that were made elsewhere, or give the outcome a prior whose mean is within the limit."
            )
        betas = " and ".join(f"{float(each.beta):.3g}" for each in self.outcomes)
        return InfeasibleError(
            f"No candidate can be within the limits on {self.names}, with a confidence of {betas} deviations: the "
            "problem is infeasible. Relax a limit, offer other candidates, or widen the band with beta=."
        )


class ConstrainedAcquisition(CombinedFunction):
    """An acquisition function of single points that is minus infinity where the limits do not allow a point."""

    def __init__(self, function: AcquisitionFunction, constraints: ConstraintSet) -> None:
        super().__init__([function])
        self._constraints = constraints

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]  (it declares self as the base class)
    def forward(self, X: Tensor) -> Tensor:
        """Return the values at points X (b, 1, d), (b,)."""
        allowed = self._constraints.allows(X.detach().reshape(-1, X.shape[-1])).reshape(X.shape[:-2])
        return self.functions[0](X).masked_fill(~allowed, -torch.inf)


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

    def _at(self, where: Where) -> tuple[Tensor, Tensor]:
        """Return the rounds until each may be played, and its probability of failure, 0 with a chance, both (n,)."""
        waits, have_chances, least = [], [], _ROUNDS_PER_CHANCE * len(self.actions)
        ages = [(each, self.round - each.round) for each in self.actions.values()]
        chances = [each.point for each, age in ages if age >= least * 2 ** min(each.count - 1, _MOST_DOUBLED)]
        for X in _parts(where):
            wait = torch.zeros(len(X), dtype=torch.long, device=X.device)
            for each in self.waiting(self.round):
                is_it = among(X[:, self.own_columns :], [each.point], self.reach)
                wait = torch.maximum(wait, is_it * (each.over - self.round))
            waits.append(wait)
            have_chances.append(among(X[:, self.context_dim :], chances))
        return torch.cat(waits), failure_probability(self.surrogate, where).masked_fill(torch.cat(have_chances), 0.0)


def failure_probability(surrogate: Surrogate, where: Where) -> Tensor:
    """Return the posterior means of failures, cut off to [0, 1], (n,)."""
    with torch.no_grad():
        is_points = isinstance(where, Tensor)
        return (surrogate.moments(where)[0] if is_points else _offered(surrogate, where).mean).clamp(0.0, 1.0)


def among(X: Tensor, points: Sequence[Tensor], reach: Tensor | None = None) -> Tensor:
    """Say of points (n, d) whether one of others, (d,) each, is the same but for so much in each column, (n,)."""
    found = torch.zeros(len(X), dtype=torch.bool, device=X.device)
    for point in (each.to(X.device) for each in points):
        found |= ((point == X) if reach is None else ((X - point).abs() <= reach)).all(-1)
    return found
