"""What is chosen where outcomes have limits: among what they allow, or what shows whether they allow more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Cube, Domain, UpperConfidenceRule
from torch_kbandits.errors import EmptyHistoryError, InfeasibleError
from torch_kbandits.numerics.rows import distinct
from torch_kbandits.selection.base import FantasyPosterior, Surrogate
from torch_kbandits.selection.constraints import ConstrainedOutcome, ConstraintSet
from torch_kbandits.selection.objectives import ObjectiveSet, ScalarizedFantasy
from torch_kbandits.selection.search import BoxCube

#: So many of the points played last a search of what is allowed starts from, and all that are known to be safe.
_LATEST = 64
#: Points of a cube or box that stand for all.
_SPREAD = 1024
#: Moves from a point that is allowed, in widths of the cube, so that a small region is found; and how many of each.
_RADII, _NEAR = (0.3, 0.1, 0.03, 0.01), 64
#: Of the points where a search of a small region starts so many are taken, and so many rounds approach it.
_STARTS, _ROUNDS = 16, 6
#: So many points that may be safe are what a safe play is to tell about.
_GOALS = 16
#: So many plays of a point stand for all there may be.
_MANY = 100
#: An action that differs from one that just failed by less, in shares of the width of each column, is the same.
_SAME = 0.01
#: The multiplier of the deviation of rewards where the rule that chooses has none.
_WIDTH = 2.0

#: The posterior of the reward, or of the objectives, with what is pending.
Ahead = FantasyPosterior | ScalarizedFantasy


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

    def playable(self, points: Tensor) -> Tensor:
        """Return the allowed ones (m, d) of the playable points next to points (n, d)."""
        return self._kept(self.cube.playable(points))

    def allows(self, points: Tensor) -> Tensor:
        """Say of points (n, d) whether the nearest may be played, (n,)."""
        kept = self.cube.allows(points).clone()
        possible = points[kept]
        near = self.cube.playable(possible)
        if len(near) == len(possible):
            kept[kept.clone()] = self.keeps(near)
        else:  # of a cube that leaves some out, or takes all points to those of a list
            kept[kept.clone()] = (possible.unsqueeze(1) == near).all(-1).any(-1) & self.keeps(possible)
        return kept

    def sample(self, n: int, generator: torch.Generator, *, first: int = 0) -> Tensor:
        """Return allowed points (k, d), k >= 1: of an even spread, those that are likely, and near these if few are.

        Where few are wanted they are those of their number in one order of allowed points, which goes round.

        Raises:
            InfeasibleError: if none is found.
        """
        spread, likely = self._kept(self.cube.sample(max(n, _SPREAD), generator)), self.playable(self._likely)
        is_small = len(spread) < max(n, _SPREAD) // 4
        spread = torch.cat([spread, likely, *([self._around(likely, generator)] if is_small else [])])
        if not len(spread):
            raise self._constraints.refusal
        return spread if n >= _SPREAD else spread[torch.arange(first, first + n, device=spread.device) % len(spread)]

    def near(self, point: Tensor, radii: Sequence[float], size: int, generator: torch.Generator) -> Tensor:
        """Return allowed points (m, d) near one, (1, d), by moves of r radii."""
        return self._kept(self.cube.near(point, radii, size, generator))

    def exchanges(self, point: Tensor, generator: torch.Generator) -> Tensor:
        """Return allowed points (k, d) that a search may try in the place of one, (1, d)."""
        return self._kept(self.cube.exchanges(point, generator))

    def _kept(self, points: Tensor) -> Tensor:
        return points[self.keeps(points)] if len(points) else points

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
        return self._kept(best)


def _constrained(domain: Domain, constraints: ConstraintSet) -> tuple[Domain, ConstraintSet]:
    """Return what may be played of a round's domain, and the constraints, relaxed until failures leave something of it.

    Raises:
        InfeasibleError: if limits are known to leave nothing.
    """
    if domain.arms is not None or domain.blocks is not None:
        constraints, allowed = constraints.relaxed(domain)
        if not bool(allowed.any()):
            raise constraints.refusal
        if bool(allowed.all()):
            return domain, constraints
        return replace(domain, allowed=allowed.nonzero().squeeze(-1), allows=constraints.allows), constraints
    model = constraints.feasibility
    if domain.cube is None and domain.bounds is None and model is not None and not constraints.outcomes:
        return replace(domain, avoided=model.avoided()), constraints  # nobody has all arms
    context_dim = 0 if domain.context is None else len(domain.context)
    cube = BoxCube(cast(Tensor, domain.bounds)[:, context_dim:]) if domain.cube is None else domain.cube
    known = [each.known.actions for each in constraints.outcomes if each.limit.is_safe]
    likely = torch.cat([*known, constraints.likely[-_LATEST:, context_dim:].flip(0)])
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
    def within(
        cls, domain: Domain, constraints: ConstraintSet, surrogate: Surrogate, rule: AcquisitionRule
    ) -> "Playable":
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
        within = replace(within, incumbent=best, starts=within.starts if cube is None else best)
        return cls(within, constraints, domain)

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
        row = _telling(outcome, ahead.pending, domain, allowed, goals, offer.chosen)
        return None if row is None else offer.chosen(row)

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
        outside = outside[~around.keeps(outside)]
        arms = self.domain.joint(torch.cat([inside, outside]))
        return replace(self.domain, arms=arms, cube=None), torch.arange(len(arms), device=arms.device) < len(inside)


def _telling(
    outcome: ConstrainedOutcome,
    pending: Tensor,
    domain: Domain,
    allowed: Tensor,
    goals: Tensor,
    arm: Callable[[int | Tensor], Tensor],
) -> int | None:
    """Return the allowed row that tells most about rows (g,); None where it is known, or would make none safe."""
    own, pending, noise = outcome.own(domain), outcome.own(pending), outcome.surrogate.regularization
    ahead = outcome.surrogate.fantasized(pending)
    before = ahead.offered(own).variance.clone()
    for goal in goals:
        ahead.add(outcome.own(arm(goal)))
    fallen = (before - ahead.offered(own).variance).clamp_min(0.0) / (before + noise)
    row = int(fallen.masked_fill(~allowed, -torch.inf).argmax())
    if float(outcome.beta) ** 2 * float(before[row]) <= float(noise):
        return None
    ahead = outcome.surrogate.fantasized(pending)
    ahead.add(outcome.own(arm(row)), _MANY)
    offer = ahead.offered(own)
    excess = outcome.limit.excess(offer.mean[goals], offer.variance[goals], outcome.beta, surely=True)
    return row if bool((excess <= 0.0).any()) else None


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
    if objectives.reward.num_observations == 0:
        raise EmptyHistoryError("Nothing was learned that counts, so there is no point to recommend: tell first.")

    def kept(X: Tensor) -> Tensor:
        X = X[keeps(X)]
        return X if constraints is None or not len(X) else X[constraints.relaxed(X)[1]]

    plain, is_listed = objectives.plain, domain.arms is not None or domain.blocks is not None
    if domain.context is None or not (is_listed or (domain.bounds is not None and constraints is None)):
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
    surrogate = objectives.reward.leading or objectives.reward
    zero, ahead = torch.zeros_like(surrogate.regularization), surrogate.fantasized(surrogate.played[:0])
    return ScalarizedFantasy(plain, ahead).choose(UpperConfidenceRule(), zero, 0, domain)
