"""What a bandit knows as a state that is saved, and made again from one."""

from dataclasses import asdict, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits.bandit.failing import failures_in
from torch_kbandits.bandit.pieces import Pieces
from torch_kbandits.bandit.relearning import hypothesis_after, summarised
from torch_kbandits.bandit.residuals import Predictions
from torch_kbandits.bandit.sharing import beside, is_measured_throughout
from torch_kbandits.bandit.standing import Standing
from torch_kbandits.bandit.state import (
    STATE_FORMAT,
    SavedPrior,
    SavedState,
    outcome_dictionary,
    saved_prior,
    saved_residuals,
)
from torch_kbandits.beliefs import Belief, EnsembleBelief
from torch_kbandits.dictionaries import Selection
from torch_kbandits.observations.ledger import History, Ledger
from torch_kbandits.priors.learned import NEVER


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
    summaries, rivals = summarised(pieces, hypothesis, saved.history, ())
    hypothesis = hypothesis_after(pieces, hypothesis, summaries)
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
        predictions=Predictions(saved.residuals),
        rivals=rivals,
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
    view, is_whole = None, is_measured_throughout(history.Y, history.outcomes, place)
    if is_whole and (pieces.dictionary is None or _agree(dictionary, saved.dictionaries[0])):
        view = beside(host, place)
    return restored(own, known, fitted, view)


def _agree(ours: Selection, theirs: Selection) -> bool:
    """Say whether two dictionaries are the same, and what their rule wants handed back."""
    left, right = ours.weights, theirs.weights
    same = left is right if left is None or right is None else torch.equal(left, right)
    return same and torch.equal(ours.points, theirs.points)


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
        "pending_times": torch.tensor(ledger.pending.times, dtype=torch.float64, device=ledger.pending.points.device),
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
