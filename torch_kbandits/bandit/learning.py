"""All that a bandit knows at a moment, as one value, and how it changes: functions from one standing to the next."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from operator import is_
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits.bandit.adaptation.restart_trigger import Prediction
from torch_kbandits.bandit.advice import Advised
from torch_kbandits.bandit.failing import Failures, failures_after, failures_in
from torch_kbandits.bandit.pieces import Batches, Hypothesis, Pieces
from torch_kbandits.bandit.residuals import MOST_JUDGED, NONE_YET, Residuals, standardized
from torch_kbandits.bandit.sharing import is_measured_throughout, told_beside
from torch_kbandits.bandit.state import (
    STATE_FORMAT,
    SavedPrior,
    SavedState,
    outcome_dictionary,
    saved_prior,
    saved_residuals,
)
from torch_kbandits.beliefs import Belief, EnsembleBelief, Lookahead, ToldOtherwise
from torch_kbandits.beliefs.told_otherwise import Host
from torch_kbandits.dictionaries import Selection
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.gram import prior_mean
from torch_kbandits.numerics.random import seed_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import History, Ledger, Pending, joined
from torch_kbandits.priors import LearnedPrior
from torch_kbandits.priors.learned import NEVER, LastFit, Told

#: Of the points of a batch that are told at once so many are looked at first, to see whether it is complete.
_FIRST_LOOKED_AT = 256


@dataclass(frozen=True, eq=False)
class Standing:
    """What a bandit was told and what follows from it.

    Attributes:
        ledger: what was asked and told.
        clock: what time it is.
        told: the posterior of the rewards that count.
        hypothesis: what is taken for true: it says which of them do.
        round: the number of the present round, counted from 0.
        summaries: of the blocks that the choice of a memory rests on.
        answers: what an expert said in this round, by the time of its question.
        last_fit: when the prior was fitted last, if it is learned.
        complaints: what is odd about that fit.
        outcomes: what is known of each outcome that is declared, told as if it were the reward.
        residuals: what one-step predictions were worth since the last restart or fit.
        failures: what plays that failed say; None while none that counts did.
    """

    ledger: Ledger
    clock: Clock
    told: Belief
    hypothesis: Hypothesis
    round: int = 0
    summaries: tuple[Any, ...] = ()
    answers: tuple[tuple[float, Answers], ...] = ()
    last_fit: LastFit = NEVER
    complaints: tuple[str, ...] = ()
    outcomes: tuple["Standing", ...] = ()
    residuals: Residuals = NONE_YET
    failures: Failures | None = None

    def at(self, clock: Clock) -> Self:
        """Return the same at a time, which is not before the present one."""
        told = self.told.at(clock.now)
        outcomes = tuple(each._at_beside(clock, told) if each.clock.matters else each for each in self.outcomes)
        failures = None if self.failures is None else self.failures.at(clock.now)
        same = clock is self.clock and told is self.told and all(map(is_, outcomes, self.outcomes))
        if same and failures is self.failures:
            return self
        return replace(self, clock=clock, told=told, outcomes=outcomes, failures=failures)

    def _at_beside(self, clock: Clock, host: Belief) -> Self:
        """Return what is known of an outcome at a time, at which the posterior of rewards is known."""
        if not isinstance(self.told, ToldOtherwise):
            return self.at(clock)
        told = self.told.beside(cast(Host, host))
        return self if clock is self.clock and told is self.told else replace(self, clock=clock, told=told)

    @property
    def waiting(self) -> list[Tensor]:
        """The points (d,) that failed and are not played again at once."""
        return [] if self.failures is None else [each.point for each in self.failures.points.waiting(self.round)]

    @property
    def now(self) -> float:
        """The present time, minus infinity before the first; the round where there is no clock."""
        return self.clock.now if self.clock.matters else float(self.round)

    @cached_property
    def belief(self) -> Belief:
        """The posterior of what counts now: of rewards, and of what an expert said at this time."""
        answers = self.answers_now
        return self.told if answers is None else cast(Belief, cast(Advised, self.told).advised(answers))

    def rewards_below(self, before: "Standing") -> Tensor | None:
        """Return the rewards (k,) that are clipped now and were not in an earlier standing; None if there are none."""
        floor, told = self.hypothesis.prior.floor, self.ledger
        Y = told.told_since(0 if self.last_fit is not before.last_fit else before.ledger.num_told).Y
        below = Y[floor > Y]
        return below if len(below) else None

    @property
    def answers_now(self) -> Answers | None:
        """What an expert said at this time; None if nobody was asked."""
        return dict(self.answers).get(self.clock.now)

    @property
    def num_since_restart(self) -> int:
        """How many rewards were told since the last restart."""
        return self.ledger.num_told - self.ledger.num_forgotten


class Outlook(NamedTuple):
    """The posterior with the batch so far pending, and the standing of which it is."""

    standing: Standing
    ahead: Lookahead

    def of(self, standing: Standing) -> Lookahead | None:
        """Return the posterior with the batch so far pending if it is that of this standing, too."""
        mine, theirs = self.standing.ledger, standing.ledger
        same = self.standing.belief is standing.belief and mine.pending is theirs.pending and mine.held is theirs.held
        return self.ahead if same else None


class Round(NamedTuple):
    """What was told at once.

    Attributes:
        clock: once it was told.
        X: points, (q, d).
        Y: rewards, (q,); NaN of a play that failed, or of which only outcomes were told.
        stages: that chose the points, (q,); None where there are none.
        outcomes: what else was measured, (q, k), NaN where it was not; None where no outcome is declared.
        times: at which the points were played, (q,); None where there is no clock.
        failed: which plays failed, (q,); None where no outcome is declared.
    """

    clock: Clock
    X: Tensor
    Y: Tensor
    stages: Tensor | None
    outcomes: Tensor | None = None
    times: Tensor | None = None
    failed: Tensor | None = None


def before_any(pieces: Pieces, belief: Belief | None = None) -> Standing:
    """Return what is known before anything is asked or told; with a belief that is given, if one is."""
    staged = pieces.num_stages > 0
    num_outcomes = len(pieces.of_outcomes)
    example = pieces.candidates.example
    ledger = Ledger.empty(example, staged=staged, timed=pieces.has_clock, num_outcomes=num_outcomes)
    hypothesis = _hypothesis_after(pieces, pieces.hypothesis, ())
    told = pieces.belief(hypothesis) if belief is None else belief
    outcomes = tuple(before_any(own, told_beside(pieces, own, told)) for own in pieces.of_outcomes)
    return Standing(ledger, pieces.clock, told, hypothesis, outcomes=outcomes)


def without_expired(pieces: Pieces, standing: Standing) -> Standing:
    """Return what is known once points that are pending for too long are given up, which may be a round of its own."""
    expiry, pending = pieces.expire_after, standing.ledger.pending
    rows = [] if expiry is None else expiry.rows(pending, standing.now)
    if expiry is None or not rows:
        return standing
    left, X = pending.without_rows(rows), pending.points[rows]
    if expiry.then == "drop":
        return replace(standing, ledger=replace(standing.ledger, pending=left))
    measured, failed = None, None
    if pieces.declared:
        measured = X.new_full((len(X), len(pieces.declared)), torch.nan)
        failed = torch.ones(len(X), dtype=torch.bool, device=X.device)
    times = pending.times[rows] if pieces.has_clock else None
    Y = X.new_full((len(X),), torch.nan)
    told = Round(standing.clock, X, Y, pending.stages_of(rows), measured, times, failed)
    return learned(pieces, standing, told, left)


def restarted(pieces: Pieces, standing: Standing, belief: Belief | None = None) -> Standing:
    """Return what is known once all that was told is forgotten; points stay pending. A belief may be given for it."""
    told, outcomes = belief, list[Standing]()
    if told is None:
        told = pieces.belief(standing.hypothesis).at(standing.clock.now)
    for own, known in zip(pieces.of_outcomes, standing.outcomes, strict=True):
        beside = told_beside(pieces, own, told) if isinstance(known.told, ToldOtherwise) else None
        outcomes.append(restarted(own, known, beside))
    after = replace(standing, ledger=standing.ledger.restarted, told=told, answers=(), outcomes=tuple(outcomes))
    return replace(after, residuals=Residuals(standing.round), failures=None)


def learned(
    pieces: Pieces, standing: Standing, told: Round, pending: Pending, ahead: Lookahead | None = None
) -> Standing:
    """Return what is known after a round.

    Args:
        pieces: of the bandit.
        standing: before it.
        told: the round.
        pending: the points that remain pending.
        ahead: the posterior with the batch so far pending, if it is known.
    """
    return _learned(pieces, standing, told, pending, ahead, range(len(pieces.of_outcomes)))


def _learned(
    pieces: Pieces, standing: Standing, told: Round, pending: Pending, ahead: Lookahead | None, numbers: Collection[int]
) -> Standing:
    """Return what is known of rewards after a round, and of the outcomes of these numbers; see ``learned``."""
    start = standing.at(told.clock) if any(map(_shares, standing.outcomes)) else standing
    # Before rewards are learned, since what comes after writes over features that a prediction reads.
    judged = {number: _judged(pieces, start, told, number) for number in numbers if _shares(start.outcomes[number])}
    after = _with_rewards(pieces, start, told, pending, ahead if start.told is standing.told else None)
    outcomes = list(after.outcomes)
    for number in numbers:
        own, known = pieces.of_outcomes[number], judged.get(number, outcomes[number])
        part = own_round(pieces, own, told, number)
        if part is not None and _shares(known):
            known = _told_beside(known, part, standing.round, after.told)
        elif part is not None:
            known = _with_rewards(own, replace(known, round=standing.round), part, known.ledger.pending, None)
        outcomes[number] = replace(known.at(after.clock if own.has_clock else own.clock), round=after.round)
    return replace(after, outcomes=tuple(outcomes))


def _shares(outcome: Standing) -> bool:
    """Say whether the posterior of an outcome is beside that of rewards."""
    return isinstance(outcome.told, ToldOtherwise)


def _judged(pieces: Pieces, standing: Standing, told: Round, number: int) -> Standing:
    """Return what is known of an outcome beside rewards once its predictions of a round were judged.

    If not all of the round was measured, or not all has rewards, it has a posterior of its own from then on.
    """
    own, known = pieces.of_outcomes[number], standing.outcomes[number]
    if not is_measured_throughout(told.Y, told.outcomes, number):
        return _apart(own, known)
    part = cast(Round, own_round(pieces, own, told, number))
    residuals = _residuals(_predicted(own, known, part.X, part.times), part.Y)
    return replace(known, residuals=known.residuals.told(residuals, standing.round, is_learned=True))


def _told_beside(known: Standing, part: Round, number: int, host: Belief) -> Standing:
    """Return what is known of an outcome after the round of a number that the host, the rewards' belief, learned."""
    told = _as_told(replace(known, round=number), part)
    after = _noted(replace(known, round=number), told, (), known.ledger.pending, part.clock)
    return replace(after, told=cast(ToldOtherwise, known.told).beside(cast(Host, host), told))


def _apart(own: Pieces, known: Standing) -> Standing:
    """Return what is known of an outcome as a posterior of its own, with the dictionary that it shared until now.

    Cost: that of the posterior of what counts, computed afresh.
    """
    ledger, belief = known.ledger, own.belief(known.hypothesis).at(known.clock.now)
    told = ledger.in_one_part.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned))
    if len(told.X):
        points = known.told.inducing_points
        dictionary = Selection(points, points.new_ones(len(points)), None, known.told.dictionary_weights)
        belief = belief.restored(told, dictionary)
    return replace(known, told=belief)


def own_round(pieces: Pieces, own: Pieces, told: Round, number: int) -> Round | None:
    """Return the round as it is told to an outcome of a number; None where it was measured of no play."""
    Y = cast(Tensor, told.outcomes)[:, number]
    there = Y.isfinite()
    if not bool(there.any()):
        return None
    clock, times = (told.clock, cast(Tensor, told.times)[there]) if own.has_clock else (own.clock, None)
    return Round(clock, pieces.as_in(own, told.X[there]), Y[there], None, None, times)


def _with_rewards(
    pieces: Pieces, standing: Standing, new: Round, pending: Pending, ahead: Lookahead | None
) -> Standing:
    """Return what is known of rewards after a round; see ``learned``."""
    clock, X = new.clock, new.X
    known = standing.told
    standing = standing.at(clock)
    Y, times, there = new.Y, new.times, new.Y.isfinite()
    if not bool(there.all()):
        X, Y, times = X[there], Y[there], None if times is None else times[there]
    Y, before = Y.clamp_min(standing.hypothesis.prior.floor), _predicted(pieces, standing, X, times)
    residuals = _residuals(before, Y)
    if pieces.trigger is not None and before is not None and pieces.trigger.is_triggered(Y, before):
        standing, residuals = restarted(pieces, standing), []
    told = _as_told(standing, new)
    ahead = ahead if standing.told is known else None
    parts = joined([*standing.ledger.held, told]) if standing.ledger.held else told
    batches = pieces.filled._replace(waiting=[*told.X[told.lost]])
    held = () if _is_complete(batches, parts.over, standing.told, ahead) else (parts,)
    after = _noted(standing, told, held, pending, clock)
    ledger, number = after.ledger, after.round
    if pieces.memories is not None and number % pieces.memories.block_size == 0:
        # Blocks may be judged by the whole history, in which rewards count that a batch rule keeps aside.
        after = _with_memory(pieces, after, restarts=not pieces.memories.shares_history)
    if not held and pieces.learning is not None and pieces.learning.is_due(ledger.num_learned, standing.last_fit):
        after = _with_prior(pieces, after)
    judged = standing.residuals.told(residuals, standing.round, is_learned=not held)
    forgot = after.ledger.num_forgotten > ledger.num_forgotten
    if after.hypothesis is not standing.hypothesis or forgot:
        starts_anew = forgot or after.hypothesis.prior is not standing.hypothesis.prior
        after = replace(after, residuals=Residuals(number) if starts_anew else judged)
        return relearned(pieces, after, after.hypothesis)
    belief = standing.told
    if not held and len((counted := standing.hypothesis.counted(parts)).X):
        generator = pieces.dictionary_generator(standing.ledger.num_learned)
        belief = belief.learned(counted, pieces.dictionary, generator)
    now = after.clock.now
    failures = standing.failures
    if failures is not None or bool(told.lost.any()):
        failures = failures_after(pieces, failures, ledger, told, standing.hypothesis, now)
    return replace(after, told=belief.at(now), residuals=judged, failures=failures)


def _predicted(pieces: Pieces, standing: Standing, X: Tensor, times: Tensor | None) -> Prediction | None:
    """Return what is believed of rewards at points (q, d), of many that no trigger asks for at the first of them.

    A reward that comes late has the noise that it counts with now, given when the points were played, (q,).
    It is None where nobody asks: nothing is expected of rewards under a prior that is to be fitted and was not yet.
    """
    is_known = pieces.learning is None or pieces.learning.is_known or standing.last_fit.number > 0
    if pieces.trigger is None:
        if not is_known or not len(X):
            return None
        X = X if len(X) <= MOST_JUDGED else X[:MOST_JUDGED]
    belief, surprise = standing.belief, standing.residuals.misfit if is_known else None
    memory, now, noise = standing.hypothesis.memory, standing.clock.now, belief.regularization
    if memory is not None and times is not None and bool((times < now).any()):
        noise = memory.noise(times, now, noise)
    return Prediction(*belief.moments(X), belief, standing.num_since_restart, surprise, noise)


def _residuals(before: Prediction | None, Y: Tensor) -> list[float]:
    """Return the standardised residuals of rewards (q,); none where nothing was expected of them."""
    if before is None or before.surprise is None or before.noise is None:
        return []
    return standardized(Y, before.mean, before.variance, before.noise)


def _as_told(standing: Standing, new: Round) -> History:
    rounds = torch.full((len(new.X),), standing.round, device=new.X.device)
    told_at = None if new.times is None else torch.full_like(new.times, new.clock.now)
    return History(new.X, new.Y, rounds, new.stages, new.times, new.outcomes, told_at, new.failed)


def _noted(standing: Standing, told: History, held: tuple[History, ...], pending: Pending, clock: Clock) -> Standing:
    """Return the standing with a round told, of which nothing is believed yet."""
    ledger, number = standing.ledger.with_told(told, held, pending), standing.round + 1
    return replace(standing, ledger=ledger, round=number, answers=(), clock=clock.after_reward(number))


def replayed(pieces: Pieces, standing: Standing, rounds: Sequence[Round]) -> Standing:
    """Return what is known after rounds. Of fits of a prior that leave no trace only the last is made."""
    before, numbers = standing.outcomes, range(len(pieces.of_outcomes))
    together = [number for number in numbers if _shares(before[number])]
    if pieces.trigger is not None:  # it restarts outcomes as well
        together = list(numbers)
    if pieces.trigger is not None or together:
        for told in rounds:
            pending = standing.ledger.pending.without(told.X, pieces.own_columns)
            standing = _learned(pieces, standing, told, pending, None, together)
    else:
        standing = _with_rounds(pieces, standing, rounds)
    outcomes = list(standing.outcomes)
    for number in set(numbers) - set(together):
        own = pieces.of_outcomes[number]
        known = _with_rounds(own, before[number], [own_round(pieces, own, each, number) for each in rounds])
        outcomes[number] = known.at(standing.clock if own.has_clock else own.clock)
    return replace(standing, outcomes=tuple(outcomes))


def _with_rounds(pieces: Pieces, standing: Standing, rounds: Sequence[Round | None]) -> Standing:
    """Return what is known of rewards after rounds, of which some may have told none; see ``replayed``."""
    done = 0
    if _only_the_last_fit_counts(pieces):
        noted = start = standing
        for number, told in enumerate(rounds, 1):
            if told is None:
                noted = replace(noted, round=noted.round + 1)
                continue
            pending = noted.ledger.pending.without(told.X, pieces.own_columns)
            noted = _noted(noted, _as_told(noted, told), (), pending, told.clock)
            due = cast(LearnedPrior, pieces.learning).is_due(noted.ledger.num_learned, noted.last_fit)
            if due and (counting := _to_fit(pieces, noted)) is not None:
                done, start = number, noted
                noted = replace(noted, last_fit=_last_fit(pieces, noted, counting))
        if done:
            start = replace(_with_prior(pieces, start), residuals=Residuals(start.round))
            standing = relearned(pieces, start, start.hypothesis)
    for told in rounds[done:]:
        if told is None:
            standing = replace(standing, round=standing.round + 1)
        else:
            pending = standing.ledger.pending.without(told.X, pieces.own_columns)
            standing = _with_rewards(pieces, standing, told, pending, None)
    return standing


def _only_the_last_fit_counts(pieces: Pieces) -> bool:
    """Say whether a prior that was fitted leaves no trace once it is fitted again: nothing was decided under it.

    A trigger decides what is forgotten, a batch rule when rewards are learned, blocks which memory is in force; and
    under noise that grows it depends on λ what counts.
    """
    deciding = (pieces.trigger, pieces.batches, pieces.memories)
    if pieces.learning is None or any(piece is not None for piece in deciding):
        return False
    return pieces.learning.learn_memory or pieces.memory is None or pieces.memory.keeps_noise


def restored(pieces: Pieces, saved: SavedState, fitted: SavedPrior | None, known: Belief | None = None) -> Standing:
    """Return what a saved bandit knew, computed afresh from its history, its dictionary and the prior it had fitted.

    Args:
        pieces: of the bandit.
        saved: what was saved.
        fitted: the prior that was fitted; None where it is given.
        known: what is believed, where that is known already; None where it is computed here.

    Raises:
        StateMismatchError: if what was saved of an outcome does not fit.
    """
    ledger = Ledger.restored(saved.history, saved.pending, saved.num_asked, saved.num_learned, saved.num_forgotten)
    hypothesis, last_fit = pieces.hypothesis, NEVER
    if fitted is not None:
        hypothesis, last_fit = pieces.hypothesis_of(fitted.prior, fitted.memory), fitted.last_fit
    summaries = _summaries(pieces, hypothesis, saved.history, ())
    hypothesis = _hypothesis_after(pieces, hypothesis, summaries)
    belief = pieces.belief(hypothesis).at(saved.clock.now) if known is None else known
    counting = hypothesis.counted(saved.history.rows(slice(saved.num_forgotten, saved.num_learned)))
    if known is None and len(counting.X):
        belief = belief.restored(counting, *saved.dictionaries)
    if isinstance(belief, EnsembleBelief) and saved.sums is not None:
        belief = belief.with_sums(saved.sums, len(counting.X))
    number = saved.history.next_round
    standing = Standing(
        ledger,
        saved.clock,
        belief,
        hypothesis,
        number,
        summaries,
        last_fit=last_fit,
        residuals=saved.residuals,
    )
    dictionary = None
    if saved.failures is not None:
        size = len(ledger.told_since(ledger.num_forgotten).over.X)
        dictionary = outcome_dictionary(saved.failures, pieces.candidates.example, size, timed=pieces.has_clock)
    failures = failures_in(pieces, ledger, hypothesis, saved.clock.now, dictionary)
    outcomes = [
        replace(_restored_outcome(pieces, own, saved, place, belief), round=number)
        for place, own in enumerate(pieces.of_outcomes)
    ]
    return replace(standing, outcomes=tuple(outcomes), failures=failures)


def _restored_outcome(pieces: Pieces, own: Pieces, saved: SavedState, place: int, host: Belief) -> Standing:
    """Return what a saved bandit knew of the outcome in a column of its history, given what it knew of rewards."""
    history, part = saved.history, saved.outcomes[place]
    Y = cast(Tensor, history.outcomes)[:, place]
    there = Y.isfinite()
    times, told_at = (
        part[there] if own.has_clock and part is not None else None for part in (history.times, history.told_at)
    )
    told = History(pieces.as_in(own, history.X[there]), Y[there], history.rounds[there], times=times, told_at=told_at)
    forgotten, none = int(there[: saved.num_forgotten].sum()), Ledger.empty(own.candidates.example).pending
    fitted = None
    if own.learning is not None:
        fitted = saved_prior(part, own.start, own.memory, own.learning.mean)
    dictionary = outcome_dictionary(part, own.candidates.example, len(told.X) - forgotten, timed=own.has_clock)
    clock, residuals = saved.clock if own.has_clock else own.clock, saved_residuals(part, history.next_round)
    known = SavedState(told, (dictionary,), none, 0, len(told.X), forgotten, clock, residuals)
    beside, is_whole = None, is_measured_throughout(history.Y, history.outcomes, place)
    if is_whole and (pieces.dictionary is None or _agree(dictionary, saved.dictionaries[0])):
        beside = told_beside(pieces, own, host)
    if beside is not None:
        beside = beside.beside(cast(Host, host), told.rows(slice(forgotten, None)))
    return restored(own, known, fitted, beside)


def _agree(ours: Selection, theirs: Selection) -> bool:
    """Say whether two dictionaries are the same, and what their rule wants handed back."""
    left, right = ours.weights, theirs.weights
    same = left is right if left is None or right is None else torch.equal(left, right)
    return same and torch.equal(ours.points, theirs.points)


def relearned(pieces: Pieces, standing: Standing, hypothesis: Hypothesis) -> Standing:
    """Return what is known under another hypothesis: all that was learned is learned anew; what is pending stays.

    Cost: that of the posterior of what counts, computed afresh.
    """
    ledger, now = standing.ledger, standing.clock.now
    told = ledger.in_one_part.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned))
    belief = _belief_of(pieces, told, hypothesis, now, ledger.num_learned)
    failures = failures_in(pieces, ledger, hypothesis, now)
    return replace(standing, told=belief, hypothesis=hypothesis, failures=failures)


def state_of(config: dict[str, Any], standing: Standing, pieces: Pieces) -> dict[str, Any]:
    """Return the state of a bandit: tensors of its own, numbers and strings."""
    ledger, clock, told = standing.ledger, standing.clock, standing.told
    state = {
        "format": STATE_FORMAT,
        "config": config,
        "history": ledger.in_one_part.told[0].copied()._asdict(),
        **_dictionary_of(told),
        "pending": ledger.pending.points.clone(),
        "pending_ids": list(ledger.pending.ids),
        "pending_times": ledger.pending.times.clone(),
        "pending_stages": ledger.pending.stages,
        "num_asked": ledger.num_asked,
        "num_learned": ledger.num_learned,
        "num_forgotten": ledger.num_forgotten,
        "clock": {"now": clock.now, "kind": clock.kind},
        "residuals": standing.residuals.state(),
    }
    if told.stage_beliefs and not told.exact:  # an exact posterior follows from the history
        state["stages"] = [_dictionary_of(stage) for stage in told.stage_beliefs]
    if isinstance(told, EnsembleBelief):
        state["family"] = told.sums
    state |= _prior_of(standing, pieces)
    if pieces.of_outcomes:
        each = zip(standing.outcomes, pieces.of_outcomes, strict=True)
        state["outcomes"] = [
            _dictionary_of(known.told) | _prior_of(known, own) | {"residuals": known.residuals.state()}
            for known, own in each
        ]
    if standing.failures is not None and pieces.dictionary is not None:
        state["failures"] = _dictionary_of(standing.failures.belief)
    advice = pieces.advice
    if advice is None:
        return state
    answers = [{"now": now, **said.copied()._asdict()} for now, said in standing.answers]
    return state | {"expert": {"counts": advice.counts(), "answers": answers}}


def _prior_of(standing: Standing, pieces: Pieces) -> dict[str, Any]:
    """Return the prior that was fitted, if one is, under the name that it has in a state."""
    if pieces.learning is None:
        return {}
    prior, memory = standing.hypothesis.prior, standing.hypothesis.memory
    return {
        "prior": {
            "kernel": {name: value.clone() for name, value in prior.kernel.state_dict().items()},
            "regularization": prior.regularization,
            "mean": prior.mean if pieces.learning.mean is None else 0.0,
            "floor": prior.floor,
            "memory": asdict(memory) if is_dataclass(memory) else {},
            **standing.last_fit._asdict(),
        }
    }


def _dictionary_of(belief: Belief) -> dict[str, Tensor | None]:
    """Return the dictionary of a belief, and what its rule wants handed back."""
    points, weights = belief.inducing_points, belief.dictionary_weights
    return {"inducing_points": points.clone(), "dictionary_weights": None if weights is None else weights.clone()}


def consulted(pieces: Pieces, standing: Standing) -> tuple[tuple[float, Answers], ...]:
    """Return what an expert said in this round, who is asked now if that was not done at this time."""
    if pieces.advice is None or standing.answers_now is not None:
        return standing.answers
    told = standing.ledger.told_since(standing.ledger.num_forgotten).rewarded
    said = pieces.advice.answers(told, standing.told.kernel, standing.round, standing.clock, pieces.seed)
    return (*standing.answers, (standing.clock.now, said))


def probabilities(pieces: Pieces, standing: Standing) -> tuple[float, ...]:
    """Return those from which the memory in force was drawn; none where it is not chosen."""
    return () if pieces.memories is None else pieces.memories.choice(standing.summaries, pieces.seed).probabilities


def _is_complete(batches: Batches, held: History, belief: Belief, ahead: Lookahead | None) -> bool:
    """Say whether points told are a complete batch; of thousands, which cost their square, the first may do."""
    if batches.rule is None:
        return True
    if not len(held.X):
        return False
    if ahead is not None and ahead.looks_from(held.X, held.stages):
        return batches.is_complete(ahead)
    first = held.rows(slice(_FIRST_LOOKED_AT))
    is_complete = batches.is_complete(belief.lookahead(first.X, first.stages))
    more = len(held.X) > len(first.X)
    return is_complete or (more and batches.is_complete(belief.lookahead(held.X, held.stages)))


def _with_memory(pieces: Pieces, standing: Standing, *, restarts: bool) -> Standing:
    """Return the same with the memory of the next block, and with the posterior that its rewards are to be added to."""
    history = standing.ledger.in_one_part.told[0]
    summaries = _summaries(pieces, standing.hypothesis, history, standing.summaries)
    hypothesis = _hypothesis_after(pieces, standing.hypothesis, summaries)
    after = replace(standing, summaries=summaries, hypothesis=hypothesis)
    return replace(after, ledger=after.ledger.restarted) if restarts else after


def _summaries(pieces: Pieces, hypothesis: Hypothesis, history: History, known: tuple[Any, ...]) -> tuple[Any, ...]:
    if pieces.memories is None:
        return ()
    history = history.rewarded

    def believed(part: History, memory: Memory, now: float) -> Belief:
        return _belief_of(pieces, part, replace(hypothesis, memory=memory), now, len(part.X))

    return pieces.memories.summaries(history, known, believed)


def _hypothesis_after(pieces: Pieces, hypothesis: Hypothesis, summaries: tuple[Any, ...]) -> Hypothesis:
    """Return the hypothesis with the memory that is in force once the blocks so far are summarised."""
    if pieces.memories is None:
        return hypothesis
    memory = pieces.memories.choice(summaries, pieces.seed).memory
    return hypothesis if memory == hypothesis.memory else replace(hypothesis, memory=memory)


def settled(pieces: Pieces, standing: Standing) -> Standing:
    """Return what is known under a prior that is fitted, also before the first fit is due; as it is if it is given."""
    if pieces.learning is None or standing.last_fit.number:
        return standing
    after = _with_prior(pieces, standing, early=True)
    return standing if after is standing else relearned(pieces, after, after.hypothesis)


def _with_prior(pieces: Pieces, standing: Standing, *, early: bool = False) -> Standing:
    """Return the same with the prior fitted again; what was learned is to be learned anew under it.

    Of few rewards the units alone are fitted, unless this is to be done early.
    """
    learning, ledger, hypothesis = cast(LearnedPrior, pieces.learning), standing.ledger, standing.hypothesis
    if (counting := _to_fit(pieces, standing)) is None:
        return standing
    history, now, last = ledger.in_one_part.told[0], standing.clock.now, _last_fit(pieces, standing, counting)
    # From the same start each time, so that a fit does not depend on those before.
    memory = pieces.memory if learning.learn_memory else hypothesis.memory
    hidden, first = pieces.hidden_columns, [*dict.fromkeys(history.rewarded.Y.tolist())][: learning.num_initial]
    told = Told(
        X=counting.X if memory is not None and memory.needs_time_column else counting.X[:, hidden:],
        Y=counting.Y,
        expected=None if learning.mean is None else _expected(hypothesis, counting.X),
        known=torch.cat([history.X[:, hidden:], *pieces.listed]).double(),
        first=history.Y.new_tensor(first),
        memory=memory,
        times=counting.times,
        now=now,
        groups=pieces.groups,
        names=pieces.names,
    )
    seed = seed_for(pieces.seed, ledger.num_learned, "fit")
    prior, memory, said = learning.fitted(told, seed, units_only=not (last.number or early))
    fitted = pieces.hypothesis_of(prior, memory)
    # Memories are compared under the prior that is in force, as after a bandit was loaded.
    summaries = _summaries(pieces, fitted, history, ())
    fitted = _hypothesis_after(pieces, fitted, summaries)
    return replace(standing, hypothesis=fitted, last_fit=last, summaries=summaries, complaints=said)


def _to_fit(pieces: Pieces, standing: Standing) -> History | None:
    """Return what the prior is to be fitted to; None where it stays as it is."""
    learning, ledger = cast(LearnedPrior, pieces.learning), standing.ledger
    learned = ledger.in_one_part.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
    # What a memory should forget shows in what it would forget.
    counting = learned if learning.learn_memory else _counting(standing.hypothesis, learned, standing.clock.now)
    stays = learning.is_known or standing.last_fit.number > 0  # after a restart what was fitted does
    few = len(counting.X) < learning.num_initial
    return None if len(counting.X) < 2 or (few and stays) else counting


def _last_fit(pieces: Pieces, standing: Standing, counting: History) -> LastFit:
    """Return what is noted of a fit to what counts."""
    few = len(counting.X) < cast(LearnedPrior, pieces.learning).num_initial
    return NEVER if few else LastFit(standing.ledger.num_learned, len(counting.X))


def _expected(hypothesis: Hypothesis, X: Tensor) -> Tensor:
    """Return the prior means of points (n, d), (n,)."""
    return X.new_zeros(len(X)) if hypothesis.mean is None else prior_mean(hypothesis.mean, X)


def _counting(hypothesis: Hypothesis, learned: History, now: float) -> History:
    """Return what counts of a history at a time."""
    memory = hypothesis.memory
    if memory is not None and learned.times is not None:
        noise = memory.noise(learned.times, now, hypothesis.regularization)
        learned = learned.rows(noise.isfinite())
    return learned


def _belief_of(pieces: Pieces, learned: History, hypothesis: Hypothesis, now: float, num_learned: int) -> Belief:
    """Return the posterior of what counts of a history under a hypothesis at a time.

    Args:
        pieces: of the bandit.
        learned: what may count.
        hypothesis: what is taken for true.
        now: the time.
        num_learned: how many rewards were learned in the end of it, counted from the first ever.
    """
    learned = hypothesis.counted(_counting(hypothesis, learned, now))
    return pieces.learned_in_passes(pieces.belief(hypothesis).at(now), learned, num_learned)
