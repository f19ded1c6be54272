"""What is chosen where outcomes have limits: among what they allow, or what shows whether they allow more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Cube, Domain
from torch_kbandits.beliefs.base import Belief, Offered
from torch_kbandits.beliefs.constrained_cube import BoxCube, ConstrainedCube
from torch_kbandits.beliefs.constraint_set import ConstrainedOutcome, ConstraintSet
from torch_kbandits.beliefs.feasibility import FeasibilityModel
from torch_kbandits.errors import InfeasibleError
from torch_kbandits.numerics.rows import distinct

#: So many of the points played last a search of what is allowed starts from, and all that are known to be safe.
_LATEST = 64

#: Points of a cube or box that stand for all where it is asked what lies beyond those that are safe.
_SPREAD = 1024

#: So many points that may be safe are what a safe play is to tell about.
_GOALS = 16

#: So many plays of a point stand for all there may be.
_MANY = 100

#: An action that differs from one that just failed by less, in shares of the width of each column, is the same.
_NEAR = 0.01

#: The multiplier of the deviation of rewards where the rule that chooses has none.
_WIDTH = 2.0


class Chooser(Protocol):
    """What chooses a point, given what is pending. A ``FantasyPosterior`` is one."""

    @property
    def pending(self) -> Tensor:
        """The points pending, (k, d)."""
        ...

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain) -> Tensor:
        """Return the point (1, d) that a rule chooses."""
        ...

    def offered(self, domain: Domain | None) -> Offered:
        """Return what is known of the arms of a round."""
        ...


_NOWHERE = Domain()


@dataclass(frozen=True, eq=False)
class Playable:
    """What may be played in a round.

    Attributes:
        domain: within the limits, with what is to be improved on.
        constraints: the limits; None without any.
        beyond: the domain without them.
    """

    domain: Domain
    constraints: ConstraintSet | None = None
    beyond: Domain = _NOWHERE

    def chosen(self, ahead: Chooser, rule: AcquisitionRule, beta: Tensor, seed: int) -> Tensor:
        """Return the point (1, d) that a rule chooses, or that shows whether more is safe.

        Args:
            ahead: the posterior of the reward, or of what is sought in its place, with what is pending.
            rule: how to choose.
            beta: the multiplier of the deviation, 0-dim.
            seed: all randomness of the choice.
        """
        if self.constraints is not None and self.constraints.is_safe and rule.needs_observations:
            width = beta if rule.uses_width else torch.full_like(beta, _WIDTH)
            found = safe_expansion(ahead, self.constraints, self.beyond, self.domain, width, seed)
            if found is not None:
                return found
        return ahead.choose(rule, beta, seed, self.domain)


def playable_in(belief: Belief, domain: Domain, rule: AcquisitionRule, constraints: ConstraintSet) -> Playable:
    """Return what may be played in a round's domain by a rule, within limits.

    Raises:
        InfeasibleError: if they leave nothing.
    """
    within, constraints = constrained(domain, constraints)
    return Playable(improving(belief, within, constraints, rule), constraints, domain)


def constrained(domain: Domain, constraints: ConstraintSet) -> tuple[Domain, ConstraintSet]:
    """Return what may be played of a round's domain, and the constraints, relaxed until failures leave something of it.

    Raises:
        InfeasibleError: if limits are known to leave nothing.
    """
    if domain.arms is not None or domain.blocks is not None:
        return _constrained_arms(domain, constraints)
    if (
        domain.cube is None
        and domain.bounds is None
        and constraints.feasibility is not None
        and constraints.limits is None
    ):
        # Nobody has all arms: of these only those that failed are known here.
        return replace(domain, avoided=constraints.feasibility.avoided()), constraints
    context_dim = 0 if domain.context is None else len(domain.context)
    cube = BoxCube(cast(Tensor, domain.bounds)[:, context_dim:]) if domain.cube is None else domain.cube
    known = [each.known.actions for each in constraints.outcomes if each.limit.is_safe]
    likely = torch.cat([*known, constraints.likely[-_LATEST:, context_dim:].flip(0)])
    if constraints.feasibility is not None:
        constraints, found = _relaxed_on_cube(domain, cube, likely, constraints, constraints.feasibility)
        likely = torch.cat([likely, found])
    around = ConstrainedCube(
        cube,
        lambda actions: constraints.allows(domain.joint(actions)),
        None if constraints.is_safe else lambda actions: constraints.excess(domain.joint(actions)),
        likely,
        refusal(constraints),
    )
    return replace(domain, cube=around, bounds=None, allows=constraints.allows), constraints


def _constrained_arms(domain: Domain, constraints: ConstraintSet) -> tuple[Domain, ConstraintSet]:
    """Return the same of arms."""
    allowed, limits = None, constraints.limits
    if limits is not None:
        allowed = limits.rows(domain)
        if not bool(allowed.any()):
            raise InfeasibleError(refusal(constraints))
    if constraints.feasibility is not None:
        feasibility = constraints.feasibility.relaxed_on(domain, allowed)
        kept = feasibility.rows(domain)
        allowed, constraints = (
            kept if allowed is None else kept & allowed,
            replace(constraints, feasibility=feasibility),
        )
    if allowed is None or bool(allowed.all()):
        return domain, constraints
    return replace(domain, allowed=allowed.nonzero().squeeze(-1), allows=constraints.allows), constraints


def _relaxed_on_cube(
    domain: Domain, cube: Cube, likely: Tensor, constraints: ConstraintSet, feasibility: FeasibilityModel
) -> tuple[ConstraintSet, Tensor]:
    """Return the constraints, relaxed to leave some actions of a cube, and some of these, (k, a), k <= ``_LATEST``.

    An even spread of actions and those that are likely stand for all.
    """
    spread = torch.cat([cube.playable(likely), cube.sample(_SPREAD, torch.Generator().manual_seed(0))])
    width = cube.bounds[1] - cube.bounds[0] if isinstance(cube, BoxCube) else torch.ones_like(spread[0])
    reach = torch.cat([width.new_zeros(feasibility.context_dim - feasibility.own_columns), _NEAR * width])
    X = domain.joint(spread)
    constraints = relaxed_at(X, replace(constraints, feasibility=replace(feasibility, reach=reach)))
    return constraints, spread[constraints.allows(X)][:_LATEST]


def relaxed_at(X: Tensor, constraints: ConstraintSet) -> ConstraintSet:
    """Return the constraints, relaxed until failures leave one of points (n, d), if limits leave any."""
    if constraints.feasibility is None:
        return constraints
    within = (
        torch.ones(len(X), dtype=torch.bool, device=X.device)
        if constraints.limits is None
        else constraints.limits.allows(X)
    )
    return (
        replace(
            constraints, feasibility=constraints.feasibility.relaxed(constraints.feasibility.feasibility_at(X), within)
        )
        if bool(within.any())
        else constraints
    )


def safe_expansion(
    ahead: Chooser,
    constraints: ConstraintSet,
    domain: Domain,
    within: Domain,
    beta: Tensor,
    seed: int,
) -> Tensor | None:
    """Return a safe point (1, d) that shows whether more is safe; None where what is safe is as promising.

    Points that may be safe promise more where the upper bound of their reward is above those of all safe points. Of
    these the ones that lack the least to be safe are the goals. The safe point whose outcome the goals would explain
    best tells most about them. It is played if the goals were not all beyond the limit once its outcome were known to
    be as expected, unless that is known already, within the noise.

    Source: SafeOpt plays expanders, points that may enlarge the safe set (Sui et al., ICML 2015); to do so only while
    an unsafe point looks best, and by what tells about that one, is GoOSE's way (Turchetta et al., "Safe exploration
    for interactive machine learning", NeurIPS 2019). Differs: variances in the place of a Lipschitz constant; a point
    expands by the outcome that is expected of it, not by the best possible one; on a box or a cube the points of a
    spread set stand for all.

    Args:
        ahead: the posterior of the reward with what is pending.
        constraints: the limits.
        domain: what may be played in a round without them.
        within: what may be with them, as ``constrained`` returns it.
        beta: the multiplier of the deviation of rewards, 0-dim.
        seed: of the spread set.

    Cost: that of the reward's posterior at all candidates, and of each limited outcome's twice; of the one that decides
    three times more, with up to sixteen points pending.
    """
    outcomes = [each for each in constraints.outcomes if each.limit.is_safe]
    is_all = within.cube is None and within.allowed is None
    if is_all or not all(each.is_trusted for each in outcomes):
        return None
    domain, allowed = _listed(domain, within, seed)
    maybe = constraints.rows(domain, hopefully=True) & ~allowed
    if not bool(maybe.any()):
        return None
    with torch.no_grad():
        offer = ahead.offered(domain)
        upper = offer.mean + beta * offer.variance.clamp_min(0.0).sqrt()
        goals = (maybe & (upper > upper[allowed].max())).nonzero().squeeze(-1)
        if not len(goals):
            return None
        missing = torch.stack([each.missing(domain) for each in outcomes])
        goals = goals[missing.amax(0)[goals].topk(min(_GOALS, len(goals)), largest=False).indices]
        outcome = outcomes[int(missing[:, goals[0]].argmax())]
        row = _telling(outcome, ahead.pending, domain, allowed, [offer.chosen(goal) for goal in goals.tolist()])
        if row is None or not _would_become_safe(outcome, ahead.pending, domain, offer.chosen(row), goals):
            return None
        return offer.chosen(row)


def _listed(domain: Domain, within: Domain, seed: int) -> tuple[Domain, Tensor]:
    """Return a domain of arms alone, of which not all are allowed, and which of them are, (A,)."""
    if within.cube is None:
        rows = cast(Tensor, within.allowed)
        allowed = torch.zeros(sum(map(len, domain.parts())), dtype=torch.bool, device=rows.device)
        allowed[rows] = True
        return domain, allowed
    around = cast(ConstrainedCube, within.cube)
    generator = torch.Generator().manual_seed(seed)
    inside, spread = around.sample(_SPREAD, generator), around.cube.sample(_SPREAD, generator)
    # What is next to the safe points may become safe first.
    steps = [around.cube.near(x, (0.3, 0.1, 0.03), 8, generator) for x in inside[:: max(len(inside) // 32, 1)].split(1)]
    outside = torch.cat([spread, *steps])
    outside = outside[~around.keeps(outside)]
    arms = within.joint(torch.cat([inside, outside]))
    allowed = torch.arange(len(arms), device=arms.device) < len(inside)
    return replace(within, arms=arms, cube=None, bounds=None), allowed


def _telling(
    outcome: ConstrainedOutcome, pending: Tensor, domain: Domain, allowed: Tensor, goals: list[Tensor]
) -> int | None:
    """Return the allowed row that tells most about points (1, d); None where its outcome is known within the noise."""
    own, noise = outcome.own_domain(domain), outcome.belief.regularization
    ahead = outcome.belief.fantasized(outcome.own_points(pending))
    before = ahead.offered(own).variance.clone()
    for goal in goals:
        ahead.add(outcome.own_points(goal))
    fallen = (before - ahead.offered(own).variance).clamp_min(0.0) / (before + noise)
    row = int(fallen.masked_fill(~allowed, -torch.inf).argmax())
    return row if float(outcome.beta) ** 2 * float(before[row]) > float(noise) else None


def _would_become_safe(outcome: ConstrainedOutcome, pending: Tensor, domain: Domain, x: Tensor, goals: Tensor) -> bool:
    """Say whether one of the rows (g,) would be safe if the outcome of a point (1, d) were known to be as expected."""
    own, ahead = outcome.own_domain(domain), outcome.belief.fantasized(outcome.own_points(pending))
    ahead.add(outcome.own_points(x), _MANY)
    offer = ahead.offered(own)
    return bool(
        (outcome.limit.excess(offer.mean[goals], offer.variance[goals], outcome.beta, surely=True) <= 0.0).any()
    )


def refusal(constraints: ConstraintSet) -> str:
    """Return what to say where nothing may be played."""
    names = _names(constraints)
    if constraints.is_safe:
        return (
            f"No candidate is known to be safe: nothing that was told says so of {names} with enough confidence. Give "
            "the limit safe_seed=, points that are known to be safe, or tell plays that were made elsewhere, or give "
            "the outcome a prior whose mean is within the limit."
        )
    return (
        f"No candidate can be within the limits on {names}, {_confidence(constraints)}: the problem is infeasible. "
        "Relax a limit, offer other candidates, or widen the band with beta=."
    )


def _names(constraints: ConstraintSet) -> str:
    return " and ".join(sorted({each.limit.name for each in constraints.outcomes}))


def _confidence(constraints: ConstraintSet) -> str:
    """Return with what confidence a bound holds."""
    said = []
    for each in constraints.outcomes:
        share = getattr(each.limit.beta, "failure_probability", None)
        said.append(f"{float(each.beta):.3g} deviations" if share is None else f"probability {1.0 - share:.3g}")
    return "with a confidence of " + " and ".join(said)


def improving(belief: Belief, within: Domain, constraints: ConstraintSet, rule: AcquisitionRule) -> Domain:
    """Return what may be played with the allowed point that is to be improved on, and where a search starts.

    Args:
        belief: of the reward.
        within: as ``constrained`` returns it.
        constraints: the limits.
        rule: that chooses.
    """
    cube, is_in_context = within.cube, within.context is not None
    if not belief.num_observations or (cube is None and (is_in_context or not rule.needs_incumbent)):
        return belief.in_round(within, rule)
    known = distinct(within.in_context(belief.played))[0]
    best = _best_of(belief, known[constraints.allows(known)])
    if best is None and cube is not None and is_in_context and rule.needs_incumbent:
        best = belief.recommend_in(within.spread())
    if best is None:
        return within
    return replace(within, incumbent=best) if cube is None else replace(within, incumbent=best, starts=best)


def recommended(
    belief: Belief, domain: Domain, constraints: ConstraintSet, keeps: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the allowed point (1, d) of the largest posterior mean: of a round's domain, or of those played without.

    Without a context, and on a cube or a box, it is one that was played, in whatever context.

    Args:
        belief: of the reward.
        domain: of the round.
        constraints: the limits.
        keeps: says of points played (n, d) which may be recommended, (n,) bool.

    Raises:
        EmptyHistoryError: if there is no observation.
        InfeasibleError: if there is none.
    """
    if belief.num_observations == 0:
        return belief.recommend_in(domain)
    best = None
    if domain.context is None or (domain.arms is None and domain.blocks is None):
        known = distinct(domain.in_context(belief.played))[0]
        best = _best_of(belief, known[kept_within(known, constraints, keeps)])
    elif constraints.limits is None or bool(constraints.limits.rows(domain).any()):
        return belief.recommend_in(constrained(domain, constraints)[0])
    if best is None:
        raise refused(constraints, domain)
    return best


def refused(constraints: ConstraintSet, domain: Domain) -> InfeasibleError:
    """Return the error of there being nothing to recommend: of a round, or of what was played without one."""
    which, may = ("played", " and may be played") if domain.context is None else ("offered", "")
    return InfeasibleError(
        f"Nothing can be recommended: of the points {which} none is within the limits on {_names(constraints)}, surely "
        f"where it must be, and by the posterior mean where it may be{may}. Tell more plays, or relax a limit."
    )


def kept_within(X: Tensor, constraints: ConstraintSet, keeps: Callable[[Tensor], Tensor]) -> Tensor:
    """Say of points (n, d) which are kept and within limits, (n,) bool; failures leave one of these if any."""
    kept = keeps(X).nonzero().squeeze(-1)
    left = kept[relaxed_at(X[kept], constraints).allows(X[kept])]
    return torch.zeros(len(X), dtype=torch.bool, device=X.device).index_fill(0, left, True)


def _best_of(belief: Belief, known: Tensor) -> Tensor | None:
    """Return the point (1, d) of the largest posterior mean of points (n, d); None of none."""
    return known[belief.moments(known)[0].argmax(), None].clone() if len(known) else None
