"""Limits on outcomes and what keeps away from failures: which candidates are allowed, and what is chosen of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, CombinedFunction, Cube, Domain, UpperConfidenceRule
from torch_kbandits.errors import EmptyHistoryError, InfeasibleError
from torch_kbandits.numerics.rows import distinct, row_keys
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import KnownSafe, Limit
from torch_kbandits.selection.base import FantasyPosterior, Surrogate
from torch_kbandits.selection.objectives import ObjectiveSet, OutcomePosterior, ScalarizedFantasy, Where, moments_at
from torch_kbandits.selection.search import BoxCube

_MOST_DOUBLED = 40  # a wait does not double more often: it would outlast any run
_ROUNDS_PER_CHANCE = 20  # of so many rounds at most one goes to second chances, while failures go on
_LARGEST_PROBABILITY = 0.5  # what fails more likely than not is not played
_ROUNDING = 1e-6  # probabilities that differ by less are equal

_LATEST = 64  # of the points played so many, the latest, are where a search of what is allowed starts
_SPREAD = 1024  # points of a cube or box that stand for all
_RADII, _NEAR = (0.3, 0.1, 0.03, 0.01), 64  # moves from an allowed point, in widths of the cube, and how many of each
_STARTS, _ROUNDS = 16, 6  # starts and rounds of a search of a small region
_GOALS = 16  # so many points that may be safe are what a safe play is to tell about
_MANY = 100  # so many plays of a point stand for all there may be
_SAME = 0.01  # an action that differs by less from one that just failed is the same, in widths of each column
_WIDTH = 2.0  # the multiplier of the deviation of rewards where the rule that chooses has none

#: The posterior of the reward, or of the objectives, with what is pending.
Ahead = FantasyPosterior | ScalarizedFantasy


def _parts(where: Where) -> Iterable[Tensor]:
    return [where] if isinstance(where, Tensor) else where.parts()


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstrainedOutcome(OutcomePosterior):
    """A limit, and the posterior of its outcome."""

    limit: Limit
    known: KnownSafe  # whatever the posterior says
    is_trusted: bool  # whether the prior is given or was fitted; else the posterior says nothing yet

    def excess(self, where: Where, *, surely: bool) -> Tensor:
        """Return by how much the worse bound, or else the better, is beyond the limit, in prior deviations, (n,)."""
        bound = self.surrogate.kernel_bound()
        excess = self.limit.excess(*moments_at(self.surrogate, self.own(where)), self.beta, surely=surely)
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
            found.append(self.feasibility.probability(X) - self.feasibility.level)
        return torch.stack(found).amax(0)

    def limited(self, function: AcquisitionFunction) -> AcquisitionFunction:
        """Return an acquisition function of single points, minus infinity where the limits do not allow a point."""

        def limited(values: list[Tensor], X: Tensor) -> Tensor:
            return values[0].masked_fill(~self.allows(X.detach().squeeze(-2)), -torch.inf)

        return CombinedFunction([function], limited)

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
        for X in _parts(where):
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


class ConstrainedCube:
    """The points of a cube that limits allow in the context of a round's domain, as a ``Cube``.

    A small allowed region is found from actions (k, d) that are likely in it; where none is known, from where the
    limits are broken the least.
    """

    is_restricted = True

    def __init__(self, cube: Cube, domain: Domain, constraints: ConstraintSet, likely: Tensor) -> None:
        self.cube, self._likely, self._joint, self._constraints = cube, likely, domain.joint, constraints
        self.dimension, self.continuous, self.has_exchanges = cube.dimension, cube.continuous, cube.has_exchanges
        self.unrolled, self.rolled = cube.unrolled, cube.rolled

    def keeps(self, points: Tensor) -> Tensor:
        """Say of points (n, d) of the cube whether they are allowed, (n,)."""
        return self._constraints.allows(self._joint(points))

    def kept(self, points: Tensor) -> Tensor:
        """Return the allowed ones (m, d) of points (n, d) of the cube."""
        return points[self.keeps(points)] if len(points) else points

    def playable(self, points: Tensor) -> Tensor:
        """Return the allowed ones (m, d) of the playable points next to points (n, d)."""
        return self.kept(self.cube.playable(points))

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) whether the nearest may be played, (n,)."""
        allowed = self.cube.allows(points)
        points = points[allowed]
        near = self.cube.playable(points)
        if len(near) == len(points):
            kept = self.keeps(near)
        else:  # of a cube that leaves some out, or takes all points to those of a list
            kept = (points.unsqueeze(1) == near).all(-1).any(-1) & self.keeps(points)
        return allowed.masked_scatter(allowed, kept)

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return allowed points (k, d), k >= 1: of an even spread, those that are likely, and near these if few are.

        Where few are wanted they are those of their number in one order of allowed points, which goes round.

        Raises:
            InfeasibleError: if none is found.
        """
        spread, likely = self.kept(self.cube.sample(max(n, _SPREAD), generator)), self.playable(self._likely)
        around = self._around(likely, generator) if len(spread) < max(n, _SPREAD) // 4 else likely[:0]
        spread = torch.cat([spread, likely, around])
        if not len(spread):
            raise self._constraints.refusal
        return spread if n >= _SPREAD else spread[torch.arange(first, first + n, device=spread.device) % len(spread)]

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return allowed points (m, d) near one, (1, d), by moves of r radii."""
        return self.kept(self.cube.near(point, radii, size, generator))

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return allowed points (k, d) that a search may try in the place of one, (1, d)."""
        return self.kept(self.cube.exchanges(point, generator))

    def _around(self, likely: Tensor, generator: torch.Generator) -> Tensor:
        """Return allowed points (m, d) around likely ones (k, d); without any what a search of the limits ends at."""
        if len(likely):
            return torch.cat([self.near(x, _RADII, _NEAR, generator) for x in likely[:_STARTS].split(1)])
        if self._constraints.is_safe:
            return likely
        best = self.cube.sample(_SPREAD, generator)
        for _ in range(_ROUNDS):
            excess = self._constraints.excess(self._joint(best))
            best = best[excess.topk(min(_STARTS, len(best)), largest=False).indices]
            best = torch.cat([best, *(self.cube.near(x, _RADII, _NEAR, generator) for x in best.split(1))])
        return self.kept(best)


def _constrained(domain: Domain, constraints: ConstraintSet) -> tuple[Domain, ConstraintSet]:
    """Return what may be played of a round's domain, and the constraints, relaxed until failures leave something of it.

    Raises:
        InfeasibleError: if limits are known to leave nothing.
    """
    if domain.is_listed:
        constraints, allowed = constraints.relaxed(domain)
        if not bool(allowed.any()):
            raise constraints.refusal
        if bool(allowed.all()):
            return domain, constraints
        return replace(domain, allowed=allowed.nonzero().squeeze(-1), allows=constraints.allows), constraints
    model, first = constraints.feasibility, 0 if domain.context is None else len(domain.context)
    if domain.cube is None and domain.bounds is None and model is not None and not constraints.outcomes:
        return replace(domain, avoided=model.avoided()), constraints  # nobody has all arms
    cube = BoxCube(cast(Tensor, domain.bounds)[:, first:]) if domain.cube is None else domain.cube
    known = [each.known.actions for each in constraints.outcomes if each.limit.is_safe]
    likely = torch.cat([*known, constraints.likely[-_LATEST:, first:].flip(0)])
    if model is not None:  # an even spread of actions and those that are likely stand for all
        spread = torch.cat([cube.playable(likely), cube.sample(_SPREAD, torch.Generator().manual_seed(0))])
        width = cube.bounds[1] - cube.bounds[0] if isinstance(cube, BoxCube) else torch.ones_like(spread[0])
        reach = torch.cat([width.new_zeros(model.context_dim - model.own_columns), _SAME * width])
        constraints = replace(constraints, feasibility=replace(model, reach=reach))
        constraints, allowed = constraints.relaxed(domain.joint(spread))
        likely = torch.cat([likely, spread[allowed][:_LATEST]])
    around = ConstrainedCube(cube, domain, constraints, likely)
    return replace(domain, cube=around, bounds=None, allows=constraints.allows), constraints


@dataclass(frozen=True, eq=False)
class Playable:
    """What may be played in a round."""

    domain: Domain  # within the limits, with what is to be improved on
    constraints: ConstraintSet | None = None
    beyond: Domain = field(default_factory=Domain)  # without them

    @classmethod
    def within(cls, domain: Domain, constraints: ConstraintSet, surrogate: Surrogate, rule: AcquisitionRule) -> Self:
        """Return what a rule may play in a round's domain, with the allowed point of the largest mean to improve on.

        Raises:
            InfeasibleError: if limits leave nothing.
        """
        within, constraints = _constrained(domain, constraints)
        cube, is_in_context = within.cube, within.context is not None
        if not surrogate.num_observations or (cube is None and (is_in_context or not rule.needs_incumbent)):
            return cls(surrogate.in_round(within, rule), constraints, domain)
        known = distinct(within.in_context(surrogate.played))[0]
        known = known[constraints.allows(known)]
        if len(known):
            best = known[surrogate.moments(known)[0].argmax(), None].clone()
        elif cube is not None and is_in_context and rule.needs_incumbent:
            best = surrogate.recommend_in(within.spread())
        else:
            return cls(within, constraints, domain)
        return cls(replace(within, incumbent=best, starts=within.starts if cube is None else best), constraints, domain)

    def chosen(self, ahead: Ahead, rule: AcquisitionRule, beta: Tensor, seed: int) -> Tensor:
        """Return the point (1, d) that a rule chooses, or that shows whether more is safe; see ``FantasyPosterior``."""
        if self.constraints is not None and self.constraints.is_safe and rule.needs_observations:
            width = beta if rule.uses_width else torch.full_like(beta, _WIDTH)
            with torch.no_grad():
                found = self._safe_expansion(ahead, self.constraints, width, seed)
            if found is not None:
                return found
        return ahead.choose(rule, beta, seed, self.domain)

    def _safe_expansion(self, ahead: Ahead, constraints: ConstraintSet, beta: Tensor, seed: int) -> Tensor | None:
        """Return a safe point (1, d) that shows whether more is safe; None where what is safe is as promising.

        Points that may be safe promise more where the upper bound of their reward is above those of all safe points. Of
        these the ones that lack the least to be safe are the goals. The safe point whose outcome the goals would
        explain best tells most about them. It is played if the goals were not all beyond the limit once its outcome
        were known to be as expected, unless that is known already, within the noise. Source: see ``Limit``.

        Cost: that of the reward's posterior at all candidates, and of each limited outcome's twice; of the one that
        decides three times more, with up to sixteen points pending.
        """
        outcomes = [each for each in constraints.outcomes if each.limit.is_safe]
        is_all = self.domain.cube is None and self.domain.allowed is None
        if is_all or not all(each.is_trusted for each in outcomes):
            return None
        domain, allowed = self._listed(seed)
        maybe = constraints.allows(domain, hopefully=True) & ~allowed
        if not bool(maybe.any()):
            return None
        offer = ahead.offered(domain)
        if isinstance(ahead, ScalarizedFantasy):
            upper = ahead.scores(UpperConfidenceRule(), seed, domain)
        else:
            upper = offer.mean + beta * offer.variance.clamp_min(0.0).sqrt()
        goals = (maybe & (upper > upper[allowed].max())).nonzero().squeeze(-1)
        if not len(goals):
            return None
        missing = torch.stack([each.excess(domain, surely=True) for each in outcomes])
        goals = goals[missing.amax(0)[goals].topk(min(_GOALS, len(goals)), largest=False).indices]
        outcome = outcomes[int(missing[:, goals[0]].argmax())]
        surrogate, own, pending = outcome.surrogate, outcome.own(domain), outcome.own(ahead.pending)
        explained = surrogate.fantasized(pending)
        before = explained.offered(own).variance.clone()
        for goal in goals:
            explained.add(outcome.own(offer.chosen(goal)))
        fallen = (before - explained.offered(own).variance).clamp_min(0.0) / (before + surrogate.regularization)
        row = int(fallen.masked_fill(~allowed, -torch.inf).argmax())
        if float(outcome.beta) ** 2 * float(before[row]) <= float(surrogate.regularization):
            return None
        known = surrogate.fantasized(pending)
        known.add(outcome.own(offer.chosen(row)), _MANY)
        after = known.offered(own)
        excess = outcome.limit.excess(after.mean[goals], after.variance[goals], outcome.beta, surely=True)
        return offer.chosen(row) if bool((excess <= 0.0).any()) else None

    def _listed(self, seed: int) -> tuple[Domain, Tensor]:
        """Return a domain of arms alone, of which not all are allowed, and which of them are, (A,)."""
        if self.domain.cube is None:
            rows = cast(Tensor, self.domain.allowed)
            allowed = torch.zeros(sum(map(len, self.beyond.parts())), dtype=torch.bool, device=rows.device)
            return self.beyond, allowed.index_fill(0, rows, True)
        around, generator = cast(ConstrainedCube, self.domain.cube), torch.Generator().manual_seed(seed)
        inside, spread = around.sample(_SPREAD, generator), around.cube.sample(_SPREAD, generator)
        starts = inside[:: max(len(inside) // 32, 1)].split(1)  # what is next to the safe points may become safe first
        outside = torch.cat([spread, *(around.cube.near(x, _RADII[:3], 8, generator) for x in starts)])
        arms = self.domain.joint(torch.cat([inside, outside[~around.keeps(outside)]]))
        return replace(self.domain, arms=arms, cube=None), torch.arange(len(arms), device=arms.device) < len(inside)


def recommended(
    objectives: ObjectiveSet, domain: Domain, constraints: ConstraintSet | None, keeps: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the point (1, d) of the largest scalarised mean: of a round's arms or box, or of those played.

    Without a context, on a cube, or within limits on a box, it is one that was played, in whatever context, of those
    that ``keeps`` says may be, (n, d) to (n,) bool. Where there are none, and no limits, it is the best of the domain.

    Raises:
        EmptyHistoryError: if there is no observation.
        InfeasibleError: if the limits leave none.
    """
    reward, plain = objectives.reward, objectives.plain
    if reward.num_observations == 0:
        raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")

    def kept(X: Tensor) -> Tensor:
        X = X[keeps(X)]
        return X if constraints is None or not len(X) else X[constraints.relaxed(X)[1]]

    if domain.context is None or not (domain.is_listed or (domain.bounds is not None and constraints is None)):
        best = plain.best_played(0, domain, kept)
        if best is not None:
            return best
        if constraints is not None:
            raise InfeasibleError(
                f"Nothing can be recommended: of the points played none is within the limits on {constraints.names} "
                "and may be played. Tell more plays, or relax a limit."
            )
        domain = domain if domain.cube is None else domain.spread()
    if constraints is not None:
        domain, _ = _constrained(domain, constraints)
    leading = reward.leading or reward
    ahead = ScalarizedFantasy(plain, leading.fantasized(leading.inducing_points[:0]))
    return ahead.choose(UpperConfidenceRule(), torch.zeros_like(leading.regularization), 0, domain)
