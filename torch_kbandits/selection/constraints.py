"""Limits on outcomes: which candidates they and what keeps away from failures allow, and what is chosen of these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, CombinedFunction, Cube, Domain, UpperConfidenceRule
from torch_kbandits.errors import EmptyHistoryError, InfeasibleError
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.outcomes import KnownSafe, Limit
from torch_kbandits.selection.base import FantasyPosterior, Surrogate
from torch_kbandits.selection.failures import FeasibilityModel
from torch_kbandits.selection.objectives import (
    ObjectiveSet,
    OutcomePosterior,
    ScalarizedFantasy,
    Where,
    moments_at,
    parts_of,
)
from torch_kbandits.selection.propensities import Choice, Chosen
from torch_kbandits.selection.search import BoxCube, cube_of

_LATEST = 64  # of the points played so many, the latest, are where a search of what is allowed starts
_SPREAD = 1024  # points of a cube or box that stand for all
_RADII, _NEAR = (0.3, 0.1, 0.03, 0.01), 64  # moves from an allowed point, in widths of the cube, and how many of each
_STARTS, _ROUNDS = 16, 6  # starts and rounds of a search of a small region
_GOALS = 16  # so many points that may be safe are what a safe play is to tell about
_MANY = 100  # so many plays of a point stand for all there may be
_SAME = 0.01  # an action that differs by less from one that just failed is the same, in widths of each column
_ALL = Domain()  # what is beyond no limits
_WIDTH = 2.0  # the multiplier of the deviation of rewards where the rule that chooses has none

#: The posterior of the reward, or of the objectives, with what is pending.
Ahead = FantasyPosterior | ScalarizedFantasy


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
        return within | torch.cat([self.known.contains(part) for part in parts_of(where)]) if surely else within


@dataclass(frozen=True, eq=False)
class ConstraintSet:
    """All limits at once, and what keeps away from failures."""

    outcomes: Sequence[ConstrainedOutcome]  # at least one, unless there is a model of failures
    likely: Tensor  # points (n, d) that were played, near which a search looks for what is allowed
    feasibility: FeasibilityModel | None = None  # None while no play failed

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
        if isinstance(where, Domain) and where.allowed is not None:
            within = within & torch.zeros_like(within).index_fill(0, where.allowed, True)
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
        return CombinedFunction([function], self._limited)

    def _limited(self, values: Sequence[Tensor], X: Tensor) -> Tensor:
        """Return values (1, b) of points (b, 1, d), minus infinity where the limits do not allow them, (b,)."""
        return values[0].masked_fill(~self.allows(X.detach().squeeze(-2)), -torch.inf)

    def _within(self, where: Where, *, hopefully: bool = False) -> Tensor:
        """Say which are within all limits, (n,)."""
        with torch.no_grad():
            kept = [each.allows(where, surely=each.limit.is_safe and not hopefully) for each in self.outcomes]
        if not kept:
            return torch.cat([part.new_ones(len(part), dtype=torch.bool) for part in parts_of(where)])
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


class ConstrainedCube:
    """The points of a cube that limits allow in a round; actions ``likely``, (k, d), help to find them."""

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

    def exchanges(self, points: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return allowed points (k, d) that a search may try in the place of one of (n, d), and of which, (k,)."""
        found, owners = self.cube.exchanges(points, generator)
        kept = self.keeps(found)
        return found[kept], owners[kept]

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
    """Return what may be played of a round's domain, and the constraints, relaxed until failures leave some of it."""
    if domain.is_listed:
        constraints, allowed = constraints.relaxed(domain)
        if not bool(allowed.any()):
            if domain.allowed is None:
                raise constraints.refusal
            raise InfeasibleError(f"The limits on {constraints.names} allow nothing that exclude= leaves.")
        if bool(allowed.all()):
            return domain, constraints
        return replace(domain, allowed=allowed.nonzero().squeeze(-1), allows=constraints.allows), constraints
    model, first = constraints.feasibility, 0 if domain.context is None else len(domain.context)
    if domain.cube is None and domain.bounds is None and model is not None and not constraints.outcomes:
        return replace(domain, avoided=model.avoided()), constraints  # nobody has all arms
    cube = cube_of(domain)
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
    beyond: Domain = _ALL  # without them

    @classmethod
    def within(cls, domain: Domain, constraints: ConstraintSet, surrogate: Surrogate, rule: AcquisitionRule) -> Self:
        """Return what a rule may play in a round's domain, with the allowed point of the largest mean to improve on."""
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

    def chosen(self, ahead: Ahead, rule: AcquisitionRule, beta: Tensor, seed: int) -> Chosen:
        """Return the point that a rule chooses, or that shows whether more is safe; see ``FantasyPosterior``."""
        if self.constraints is not None and self.constraints.is_safe and rule.needs_observations:
            width = beta if rule.uses_width else torch.full_like(beta, _WIDTH)
            with torch.no_grad():
                found = self._safe_expansion(ahead, self.constraints, width, seed)
            if found is not None:
                return found
        return ahead.choose(rule, beta, seed, self.domain)

    def _safe_expansion(self, ahead: Ahead, constraints: ConstraintSet, beta: Tensor, seed: int) -> Chosen | None:
        """Return a safe point that shows whether more is safe; None where what is safe is as promising.

        Points that may be safe promise more where the upper bound of their reward is above those of all safe points. Of
        these the ones that lack the least to be safe are the goals. The safe point whose outcome the goals would
        explain best tells most about them. It is played if the goals were not all beyond the limit once its outcome
        were known to be as expected, unless that is known already, within the noise. Source: see ``Limit``.
        """
        outcomes = [each for each in constraints.outcomes if each.limit.is_safe]
        is_all = self.domain.cube is None and self.domain.allowed is None
        if is_all or not all(each.is_trusted for each in outcomes):
            return None
        domain, allowed = self._listed(seed)
        maybe = constraints.allows(domain, hopefully=True) & ~allowed
        if domain.allowed is not None:
            maybe = maybe & torch.zeros_like(maybe).index_fill(0, domain.allowed, True)
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
        if not bool((excess <= 0.0).any()):
            return None
        surely = torch.arange(len(allowed)) == row
        return Chosen(offer.chosen(row), Choice(row, surely.double) if self.domain.is_listed else None)

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
    return ahead.choose(UpperConfidenceRule(), torch.zeros_like(leading.regularization), 0, domain).x
