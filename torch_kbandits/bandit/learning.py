"""How what a bandit knows changes with each round: functions from one state to the next."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.bandit.adaptation import Prediction
from torch_kbandits.bandit.choices import is_batch_complete
from torch_kbandits.bandit.config import BanditConfig
from torch_kbandits.bandit.relearning import (
    failures_after,
    relearned,
    with_chosen_memory,
    with_fit_underway,
    with_prior,
)
from torch_kbandits.bandit.residuals import MOST_JUDGED, Predictions, standardized
from torch_kbandits.bandit.state import State
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.history import (
    History,
    checked_history,
    joined,
    measured,
    rewards,
    told_noise,
    told_rewards,
)
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.outcomes import CostObjective
from torch_kbandits.selection import FantasyPosterior, Surrogate, over_arms

#: Of the points of a batch that are told at once so many are evaluated first, to see whether it is complete.
_FIRST_LOOKED_AT = 256


def before_any(config: BanditConfig) -> State:
    """Return what is known before anything is asked or told."""
    kind = {"staged": config.num_stages > 0, "timed": config.has_clock, "num_outcomes": len(config.of_outcomes)}
    ledger = Ledger.empty(config.candidates.example, **kind)
    spec, _, _ = with_chosen_memory(config, config.spec, ledger.told[0])
    outcomes = tuple(before_any(own) for own in config.of_outcomes)
    return State(ledger, config.clock, config.surrogate(spec), spec, outcomes=outcomes)


def without_expired(config: BanditConfig, state: State) -> State:
    """Return what is known once points that are pending for too long are given up, which may be a round of its own."""
    expiry, pending = config.expire_after, state.ledger.pending
    if expiry is None or not (rows := expiry.rows(pending, state.now)):
        return state
    left, X = pending.without_rows(rows), pending.points[rows]
    if expiry.then == "drop":
        return replace(state, ledger=replace(state.ledger, pending=left))
    measured = X.new_full((len(X), len(config.declared)), torch.nan) if config.declared else None
    failed = torch.ones(len(X), dtype=torch.bool) if config.declared else None
    times = torch.tensor(pending.times_of(rows), dtype=torch.float64) if config.has_clock else None
    told = X, X.new_full((len(X),), torch.nan), times, measured, failed
    return learned(config, state, state.clock, _as_asked(state, state.clock, rows, *told), left)


def _as_asked(
    state: State,
    clock: Clock,
    rows: Sequence[int],
    X: Tensor,
    Y: Tensor,
    times: Tensor | None,
    measured: Tensor | None,
    failed: Tensor | None,
    noise: Tensor | None = None,
) -> History:
    """Return what is told now with what is known of how its points were asked for, rows of what is pending or -1."""
    pending, told_at = state.ledger.pending, None if times is None else torch.full_like(times, clock.now)
    stages, propensities = pending.stages_of(rows), pending.propensities_of(rows)
    rounds = torch.full(Y.shape, state.round)
    return History(X, Y, rounds, stages, times, measured, told_at, failed, propensities, noise)


def round_of(
    config: BanditConfig,
    state: State,
    X: Tensor,
    rows: Sequence[int],
    *,
    y: Any = None,
    outcomes: Mapping[str, Any] | None = None,
    failed: Any = False,
    time: Any = None,
    noise: Any = None,
    sem: Any = None,
) -> tuple[Clock, History, bool]:
    """Return the clock then, what is told of points X (q, d), rows of what is pending or -1, and whether it is all."""
    asked, columns = state.ledger.pending, None
    if outcomes is not None or config.declared:
        columns = measured(outcomes, [each.name for each in config.declared], X)
        _check_costs(config, columns)
    is_rewarded = failed is False and y is not None
    is_over = is_rewarded or failed is not False or columns is None or not bool(columns.isfinite().any())
    clock, times = state.clock.at_rewards(time, state.round, asked.times_of(rows))
    if times is not None and config.own_columns:
        X = torch.cat([times.to(X).unsqueeze(-1), X[:, 1:]], dim=-1)
    if is_over:
        Y = rewards(y, X) if is_rewarded else told_rewards(y, failed, X)
    else:
        Y = torch.full_like(X[:, 0], torch.nan)
    lost = None if columns is None else Y.isnan() & is_over
    if noise is not None or sem is not None:
        if not is_over:
            raise InputError("noise and sem are of rewards, and only outcomes are told: give them with y.")
        noise = told_noise(noise, sem, Y)
    return clock, _as_asked(state, clock, rows, X, Y, times, columns, lost, noise), is_over


def _check_costs(config: BanditConfig, outcomes: Tensor | None) -> None:
    """Refuse outcomes told (q, k) of which the cost is below 0: what was spent would fall."""
    if isinstance(config.objective, CostObjective) and outcomes is not None:
        name = config.objective.cost
        costs = outcomes[:, [each.name for each in config.declared].index(name)]
        if bool((costs < 0.0).any()):
            least = float(costs[costs < 0.0][0])
            raise InputError(f"{name!r} is a cost and must be at least 0, got {least:g}: tell earnings with y.")


def restarted(config: BanditConfig, state: State) -> State:
    """Return what is known once all that was told is forgotten; points stay pending."""
    told = config.surrogate(state.spec).at(state.clock.now)
    outcomes = tuple(restarted(*each) for each in zip(config.of_outcomes, state.outcomes, strict=True))
    ledger = replace(state.ledger, held=(), num_forgotten=state.ledger.num_observations)
    after = replace(state, ledger=ledger, told=told, answers=(), outcomes=outcomes)
    return replace(after, predictions=Predictions(state.round), failures=None, underway=None)


def learned(
    config: BanditConfig,
    state: State,
    clock: Clock,
    told: History,
    pending: Pending,
    ahead: FantasyPosterior | None = None,
) -> State:
    """Return what is known after a round, given what stays pending and, if known, the posterior with the batch."""
    after = _with_rewards(config, state, clock, told, pending, ahead)
    if not config.of_outcomes:
        return after
    outcomes = list[State]()
    for number, (own, known) in enumerate(zip(config.of_outcomes, after.outcomes, strict=True)):
        known, part = replace(known, round=state.round), measured_of(config, own, told, number)
        if len(part.X):
            known = _with_rewards(own, known, clock if own.has_clock else own.clock, part, known.ledger.pending)
        outcomes.append(replace(known.at(after.clock if own.has_clock else own.clock), round=after.round))
    return replace(after, outcomes=tuple(outcomes))


def measured_of(config: BanditConfig, own: BanditConfig, told: History, number: int) -> History:
    """Return what was measured of an outcome of a number, as if it were the reward."""
    there = (Y := cast(Tensor, told.outcomes)[:, number]).isfinite()
    times = (told.times, told.told_at) if own.has_clock else (None, None)
    X = told.X[:, config.hidden_columns - own.hidden_columns :].to(own.candidates.example.dtype)  # as it knows them
    return History(X, Y, told.rounds, None, times[0], None, times[1]).rows(there)


def _with_rewards(
    config: BanditConfig,
    state: State,
    clock: Clock,
    told: History,
    pending: Pending,
    ahead: FantasyPosterior | None = None,
) -> State:
    """Return what is known of rewards after a round; see ``learned``."""
    known, state = state.told, state.at(clock)
    is_rewarded = not np.isnan(told.Y.numpy()).any()  # whose calls cost a third of PyTorch's
    new = told if is_rewarded else told.rewarded
    Y, floor = new.Y, state.spec.prior.floor
    if floor > -math.inf:
        Y = Y.clamp_min(floor)
    # Under a prior that is learned nothing triggers before it was fitted to rewards since the last restart.
    trigger = config.trigger
    if trigger is not None and not config.is_prior_known(state.last_fit, state.ledger.num_forgotten):
        trigger = None
    before = _predicted(config, state, new, judges_all=trigger is not None)
    residuals = [] if before is None else standardized(Y, before.mean, before.variance, before.noise)
    if trigger is not None and before is not None and trigger.is_triggered(Y, before):
        state, residuals = restarted(config, state), []
    ahead = ahead if state.told is known else None
    parts = joined([*state.ledger.held, told]) if state.ledger.held else told
    is_complete = config.batches is None or _is_complete(config, told, parts.over, state.told, ahead)
    held = () if is_complete else (parts,)
    after = _noted(state, told, held, pending, clock)
    ledger, number = after.ledger, after.round
    if config.memories is not None and number % config.memories.block_size == 0:
        # Blocks may be judged by the whole history, in which rewards count that a batch rule keeps aside.
        ledger, known_blocks = after.ledger.in_one_part, (after.summaries, after.compared)
        spec, summaries, compared = with_chosen_memory(config, after.spec, ledger.told[0], *known_blocks)
        after = changed(after, ledger=ledger, summaries=summaries, spec=spec, compared=compared)
    if not held and config.learning is not None:
        in_background = config.learning.background and after.last_fit.number  # before the first nothing is known
        after = (with_fit_underway if in_background else with_prior)(config, after)
        if after.told is not state.told:
            return after
    judged = state.predictions.told(residuals, state.round, is_learned=not held)
    if after.spec is not state.spec:
        is_refitted = after.spec.prior is not state.spec.prior
        return relearned(config, changed(after, predictions=Predictions(number) if is_refitted else judged))
    surrogate, now, failures = state.told, after.clock.now, state.failures
    is_whole = is_rewarded and parts is told and floor == -math.inf
    if not held and (counted := parts if is_whole else state.spec.counted(parts)).X.shape[0]:
        generator = config.dictionary_generator(state.ledger.num_learned)
        surrogate = surrogate.learned(counted, generator, now)
    else:
        surrogate = surrogate.at(now)
    if failures is not None or (not is_rewarded and bool(told.lost.any())):
        failures = failures_after(config, failures, ledger, told, state.spec, now)
    return changed(after, told=surrogate, predictions=judged, failures=failures)


def _predicted(config: BanditConfig, state: State, told: History, *, judges_all: bool) -> Prediction | None:
    """Return the prediction of rewards told, of many of the first of them unless all are judged.

    It is None where nothing is expected of rewards: under a prior that is to be fitted and was not yet.
    """
    X, times = told.X, told.times
    if not judges_all:
        if not X.shape[0] or not config.is_prior_known(state.last_fit):
            return None
        X = X if X.shape[0] <= MOST_JUDGED else X[:MOST_JUDGED]
    surrogate, known = state.surrogate, state.predictions
    memory, now, noise = state.spec.memory, state.clock.now, surrogate.regularization
    noise = fresh = cast(Tensor, told.noise_or(noise))
    if memory is not None and times is not None and len(times) and times.min().item() < now:
        noise = memory.noise(times, now, noise)
    return Prediction(*surrogate.moments(X), surrogate, state.num_since_restart, known, noise, fresh)


def _noted(state: State, told: History, held: tuple[History, ...], pending: Pending, clock: Clock) -> State:
    """Return the state with a round told, which no posterior has learned yet."""
    ledger, number = state.ledger.with_told(told, held, pending), state.round + 1
    clock = clock.after_reward(number)
    answers = tuple((at, said) for at, said in state.answers if clock.now < said.until)
    return changed(state, ledger=ledger, round=number, answers=answers, clock=clock)


def over_others(config: BanditConfig, state: State, kept: Tensor) -> State:
    """Return what is known under a configuration with other arms: of rows kept (k,), in order, then others, if any."""
    pending, places, failures = state.ledger.pending, {row: place for place, row in enumerate(kept.tolist())}, None
    told, spec = over_arms(state.told, config.candidates, kept, config.seed), state.spec
    if not state.ledger.num_observations:  # before any reward a prior that is learned knows the ranges of columns
        fresh = before_any(config)
        told, spec = fresh.told.at(state.clock.now), fresh.spec
    outcomes = tuple(over_others(*each, kept) for each in zip(config.of_outcomes, state.outcomes, strict=True))
    if state.failures is not None:
        surrogate = over_arms(state.failures.surrogate, config.candidates, kept, config.seed)
        failures = replace(state.failures, surrogate=surrogate)
    pending = pending._replace(rows=tuple(places.get(row, -1) for row in pending.rows))
    after = replace(state, ledger=replace(state.ledger, pending=pending), told=told, spec=spec)
    return replace(after, outcomes=outcomes, failures=failures, compared=())


def replayed(config: BanditConfig, state: State, history: History) -> State:
    """Return what is known after a recorded history. Of a prior that is learned all fits are made, in order.

    Raises:
        InputError: if it does not fit.
    """
    config = config.in_foreground
    example, kind = config.candidates.example, {"timed": config.has_clock, "dated": config.candidates.is_timed}
    history = checked_history(history, example, config.num_stages, len(config.of_outcomes), **kind)
    _check_costs(config, history.outcomes)
    clocks, end = state.clock.replayed(history.times, history.told_at, history.rounds), 0
    counts, rounds = history.rounds.unique_consecutive(return_counts=True)[1], list[History]()
    told_at = torch.tensor([clock.now for clock in clocks], dtype=torch.float64).repeat_interleave(counts)
    history = history._replace(rounds=torch.arange(len(counts)).repeat_interleave(counts))
    history = history._replace(told_at=None if history.times is None else told_at)
    for number in counts.tolist():
        rounds.append(history.rows(slice(end, end + number)))
        end += number
    if config.trigger is not None:  # it restarts outcomes as well
        for clock, told in zip(clocks, rounds, strict=True):
            state = learned(config, state, clock, told, state.ledger.pending.without(told.X, config.own_columns))
        return state
    after, outcomes = _with_rounds(config, state, clocks, rounds), list[State]()
    for number, (own, known) in enumerate(zip(config.of_outcomes, state.outcomes, strict=True)):
        parts = [measured_of(config, own, each, number) for each in rounds]
        known = _with_rounds(own, known, clocks if own.has_clock else (own.clock,) * len(parts), parts)
        outcomes.append(known.at(after.clock if own.has_clock else own.clock))
    return replace(after, outcomes=tuple(outcomes))


def _with_rounds(config: BanditConfig, state: State, clocks: Sequence[Clock], rounds: Sequence[History]) -> State:
    """Return what is known of rewards after rounds, of which some may have told none; see ``replayed``."""
    done = 0
    if _decides_nothing(config):
        noted = start = state
        for number, (clock, told) in enumerate(zip(clocks, rounds, strict=True), 1):
            if not len(told.X):
                noted = replace(noted, round=noted.round + 1)
                continue
            pending = noted.ledger.pending.without(told.X, config.own_columns)
            noted = with_prior(config, _noted(noted, told, (), pending, clock))
            if noted.last_fit is not start.last_fit or noted.spec is not start.spec:
                done, start = number, noted
        if done:
            state = relearned(config, replace(start, predictions=Predictions(start.round)))
    for clock, told in zip(clocks[done:], rounds[done:], strict=True):
        if len(told.X):
            pending = state.ledger.pending.without(told.X, config.own_columns)
            state = _with_rewards(config, state, clock, told, pending)
        else:
            state = replace(state, round=state.round + 1)
    return state


def _decides_nothing(config: BanditConfig) -> bool:
    """Say whether of posteriors under a prior that is fitted again nothing stays, as nothing was decided by them."""
    deciding = (config.trigger, config.batches, config.memories)
    if config.learning is None or any(piece is not None for piece in deciding):
        return False
    # Under noise that grows λ decides which observations count.
    return config.learning.learn_memory or config.memory is None or config.memory.keeps_noise


def _is_complete(
    config: BanditConfig, told: History, held: History, surrogate: Surrogate, ahead: FantasyPosterior | None
) -> bool:
    """Say whether points held are a complete batch, the last of them just told."""
    if not len(held.X):
        return False
    waiting, first = [*told.X[told.lost]], held.rows(slice(_FIRST_LOOKED_AT))
    if ahead is not None and ahead.looks_from(held.X, held.stages):
        return is_batch_complete(config, ahead, waiting)
    # Of thousands, which cost their square, the first may do.
    parts = (first, held) if len(held.X) > len(first.X) else (held,)
    return any(is_batch_complete(config, surrogate.fantasized(part.X, part.stages), waiting) for part in parts)
