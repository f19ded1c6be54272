"""How choices are made of what a bandit knows: its rule, objectives and limits, and how batches fill."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import (
    AcquisitionRule,
    Domain,
    EpsilonGreedy,
    SobolRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit.batches import RandomizedKrigingBeliever
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.fidelities import Levels
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.suggestions import Slate
from torch_kbandits.candidates.timed import as_told
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.outcomes import REWARD, CostObjective, Objective
from torch_kbandits.selection import (
    BelievedFantasy,
    Chosen,
    ConstrainedOutcome,
    ConstraintSet,
    FantasyPosterior,
    ObjectivePosterior,
    ObjectiveSet,
    Playable,
    ScalarizedFantasy,
    among,
)

#: Points that ``ask(None)`` returns at most.
_LARGEST_BATCH = 10_000


def rule_in(config: BanditConfig, state: State, num_pending: int = 0) -> AcquisitionRule:
    """Return how the next point is chosen when so many are pending: spread until there are priors to speak of."""
    number = state.ledger.num_learned
    is_fitted = config.is_fitted(number)
    if config.objective is not None:
        sought = _sought(config, state, config.objective)
        is_fitted = all(own.is_fitted(known.ledger.num_learned) for _, own, known in sought)
    return config.rule if is_fitted else SobolRule(number + num_pending, seed_for(config.seed, 0, "spread"))


def fantasized(config: BanditConfig, state: State) -> FantasyPosterior:
    """Return the posterior with what is outstanding pending: at its means, or at draws that the batch rule believes."""
    surrogate, ledger = state.surrogate, state.ledger
    if isinstance(config.batches, RandomizedKrigingBeliever):
        return BelievedFantasy(surrogate, ledger.outstanding, seed_for(config.seed, state.round, "believer"))
    return surrogate.fantasized(ledger.outstanding, ledger.outstanding_stages)


def playable_of(config: BanditConfig, state: State, domain: Domain, rule: AcquisitionRule) -> Playable:
    """Return what may be played in a round, within the limits on outcomes."""
    constraints = constraints_of(config, state)
    domain = domain if config.levels is None else config.levels.at_target(domain)
    if constraints is None:
        return Playable(state.surrogate.in_round(domain, rule))
    return Playable.within(domain, constraints, state.surrogate, rule)


def objectives_of(config: BanditConfig, state: State, objective: Objective) -> ObjectiveSet:
    """Return the objectives of a bandit with their posteriors; where one is the cost, after what was spent."""
    cost = objective.after(*costs_of(config, state, objective)) if isinstance(objective, CostObjective) else None
    objective = objective if cost is None else cost
    members = list[ObjectivePosterior]()
    for name, (place, own, known) in zip(objective.names, _sought(config, state, objective), strict=True):
        beta, by_mean = cast(Width, config.width)(known.surrogate), cost is not None and place and cost.seeks_best
        values = ObjectivePosterior(
            maximize=objective.objectives[name] == "maximize",
            surrogate=known.surrogate,
            beta=torch.zeros_like(beta) if by_mean else beta,
            pending=state.ledger.pending.points if place else state.ledger.outstanding,
            place=place,
            dropped=config.hidden_columns - own.hidden_columns,
            unit=None if cost is None else cost.unit(name),
            rule=UpperConfidenceRule() if by_mean else None,
        )
        members.append(values)
    return ObjectiveSet(objective, members, state.surrogate)


def costs_of(config: BanditConfig, state: State, objective: CostObjective) -> tuple[Tensor, Tensor]:
    """Return the costs told, NaN where none was, and of which the play is over, each (n,): in the order told."""
    place, told = [each.name for each in config.declared].index(objective.cost), state.ledger.told
    costs = torch.cat([cast(Tensor, part.outcomes)[:, place] for part in told])
    return costs, torch.cat([~part.Y.isnan() | part.lost for part in told])


def _sought(config: BanditConfig, state: State, objective: Objective) -> list[tuple[int, BanditConfig, State]]:
    """Return the place of each objective, 0 of the reward and 1 and on of outcomes, and what is known of it."""
    names = [REWARD, *(each.name for each in config.declared)]
    known = [(config, state), *zip(config.of_outcomes, state.outcomes, strict=True)]
    return [(place, *known[place]) for place in map(names.index, objective.names)]


def constraints_of(config: BanditConfig, state: State, *, plainly: bool = False) -> ConstraintSet | None:
    """Return the limits, with the posteriors of their outcomes, and the model of failures; None where nothing limits.

    Plainly, limits that are kept where they may be are kept where the posterior mean keeps them, and nothing waits.
    """
    if not config.constraints and state.failures is None:
        return None
    outcomes, names = [], [each.name for each in config.declared]
    for limit, safe in zip(config.constraints, config.known_safe, strict=True):
        place = names.index(limit.name)
        own, known = config.of_outcomes[place], state.outcomes[place]
        beta = limit.width(known.surrogate)
        outcomes.append(
            ConstrainedOutcome(
                limit=limit,
                surrogate=known.surrogate,
                beta=torch.zeros_like(beta) if plainly and not limit.is_safe else beta,
                known=safe,
                is_trusted=own.is_prior_known(known.last_fit),
                dropped=config.hidden_columns - own.hidden_columns,
            )
        )
    model = None if state.failures is None else replace(state.failures, round=state.round)
    if model is not None and plainly:  # what only ever failed is nothing to use
        model = model.plain(state.surrogate.played)
    return ConstraintSet(outcomes, state.surrogate.played, model)


def with_chosen(
    config: BanditConfig, state: State, domain: Domain, known: FantasyPosterior, q: int | None, slate: Slate | None
) -> FantasyPosterior:
    """Return a posterior with q more points pending, noted in a slate that was begun; of None: as a batch has."""
    first, rule, candidates = rule_in(config, state), config.batches, config.candidates
    offer, ahead = playable_of(config, state, domain, first), shallow_copy(known)
    beta, objective = cast(Width, config.width)(state.surrogate), config.objective
    sought = ahead if objective is None else ScalarizedFantasy(objectives_of(config, state, objective), ahead)
    repeats = rule is not None and rule.repeats_points
    # What failed is not played again at once.
    failures = state.failures if repeats else None
    waiting = [] if failures is None else [each.point for each in failures.waiting(state.round)]
    if q is None and rule is None:
        raise InputError("ask(q=None) lets a batch rule decide, and this bandit has none: give q.")
    # What is kept aside may be a complete batch by now, where variances grow as time passes: one more point then.
    if q is None and (number := len(state.ledger.pending.ids)) and is_batch_complete(config, known, waiting, slate):
        raise InputError(
            f"The batch of {len(known.pending)} point(s) is complete: tell the {number} pending one(s), or give q to "
            "go on without their rewards."
        )
    if slate is not None and config.levels is not None:
        slate.states = False
    size = _LARGEST_BATCH if q is None else q
    size = known.num_pending + (size if slate is None else slate.number_of(offer.domain, q, size))
    while (number := ahead.num_pending) < size:
        number_asked = state.ledger.num_asked + number - known.num_pending
        if (planned := _planned(config, state, number_asked, offer.domain, slate)) is not None:
            found, times = Chosen(planned), 1
        elif repeats and _may_repeat(config, ahead, waiting, slate) and (again := cast(Any, rule).repeats(ahead)):
            found, times = Chosen(ahead.pending[:1]), min(again, size - number)
        else:
            now = first if first is config.rule else rule_in(config, state, number)
            seed = seed_for(config.seed, state.round, f"ask {number}")
            found, times = _drawn(config, offer, sought, now, beta, seed), 1
            if config.levels is not None:
                turn = None if now is config.rule else state.ledger.num_learned + number
                found = Chosen(_at_level(config, state, domain, found.x, ahead, offer, slate, turn))
            if candidates.is_timed:
                found = found._replace(x=as_told(candidates, found.x))
        if slate is not None:
            times, offer = 1, slate.with_choice(found.x, found.choice, ahead, offer)
        ahead.add(found.x, times, found.stage)
        if q is None and is_batch_complete(config, ahead, waiting, slate):
            break
    return ahead


def _at_level(
    config: BanditConfig,
    state: State,
    domain: Domain,
    x: Tensor,
    ahead: FantasyPosterior,
    offer: Playable,
    slate: Slate | None,
    turn: int | None,
) -> Tensor:
    """Return a point (1, d) chosen at the target at the level at which it is played; see ``Levels.chosen``."""

    def may_be_played(X: Tensor) -> Tensor:
        left = torch.tensor([slate is None or not slate.is_left_out(x) for x in X.unsqueeze(1)], dtype=torch.bool)
        return left if offer.constraints is None or not len(X) else left & offer.constraints.allows(X)

    played = state.ledger.history_since(0).X
    return cast(Levels, config.levels).chosen(x, domain, ahead, state.surrogate, played, may_be_played, turn)


def _planned(
    config: BanditConfig, state: State, number_asked: int, domain: Domain, slate: Slate | None
) -> Tensor | None:
    """Return the point (1, d) that is to be asked for after so many, if one is said and may be played now."""
    initial = () if config.learning is None else config.learning.initial
    if number_asked >= len(initial):
        return None
    X = config.candidates.points(initial[number_asked : number_asked + 1], None, state.clock.now)
    return X if len(domain.eligible(X)) and not (slate is not None and slate.is_left_out(X)) else None


def _drawn(
    config: BanditConfig, offer: Playable, sought: Any, rule: AcquisitionRule, beta: Tensor, seed: int
) -> Chosen:
    """Return the point that a rule chooses, or with some probability a uniform one."""
    found, mixture = offer.chosen(sought, rule, beta, seed), config.acquisition
    if not isinstance(mixture, EpsilonGreedy):
        return found
    own = found.choice
    if mixture.explores(seed):
        found = offer.chosen(sought, UniformRule(), beta, seed_for(seed, 0, "uniform"))
    if own is None or found.choice is None:
        return found

    def mixed() -> Tensor:
        return mixture.mixed(own.probabilities(), offer.domain.allowed)

    return found._replace(choice=found.choice._replace(probabilities=mixed, is_expensive=own.is_expensive))


def is_batch_complete(
    config: BanditConfig, posterior: FantasyPosterior, waiting: Sequence[Tensor], slate: Slate | None = None
) -> bool:
    """Say whether a batch is complete, also because it would wait for repeats of what may not be played."""
    rule = config.batches
    if rule is None or (rule.repeats_points and not _may_repeat(config, posterior, waiting, slate)):
        return True
    return rule.is_complete(posterior)


def _may_repeat(
    config: BanditConfig, posterior: FantasyPosterior, waiting: Sequence[Tensor], slate: Slate | None
) -> bool:
    """Say whether a batch's first point, which others may have brought, is played again: not while it is waiting."""
    first = posterior.pending[:1]
    if len(first) != 1 or (slate is not None and slate.is_left_out(first)):
        return False
    return bool(config.candidates.offers(first)) and not bool(among(first, waiting).any())
