"""What a bandit knows as a state: configuration, history, what is pending, dictionaries and priors that were fitted."""

import dataclasses
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec, beside, is_measured_throughout, number_beside
from torch_kbandits.bandit.failures import failures_in
from torch_kbandits.bandit.relearning import with_chosen_memory
from torch_kbandits.bandit.residuals import Predictions, Residuals
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.values import settings_of
from torch_kbandits.beliefs import Belief, EnsembleBelief
from torch_kbandits.beliefs.ensemble import NUM_SUMS
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import ArmsChangedError, InputError, StateMismatchError
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History, checked_history, checked_stages
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.priors import Prior
from torch_kbandits.priors.learned import NEVER, LastFit

#: Version of the layout of ``Bandit.state_dict``.
STATE_FORMAT = 7
#: Letters of a setting that the message of an error shows.
_LONGEST_SETTING = 200
#: Pieces that are told from others by words of their own, or that no choice depends on.
_APART = ("candidates", "advice", "theory", "noise_scale")


def settings(kind: type, config: BanditConfig) -> dict[str, Any]:
    """Return all that must agree between a saved state and the bandit that loads it, by name."""
    found = {"algorithm": kind.__name__} | {f"candidates.{key}": of for key, of in config.candidates.describe().items()}
    for name, piece in (config.arguments | {"outcomes": config.declared}).items():
        if name not in _APART:
            found |= settings_of(name, piece)
    return found | ({} if config.advice is None else config.advice.config())


def state_of(kind: type, config: BanditConfig, known: State) -> dict[str, Any]:
    """Return the state of a bandit of a class: tensors of its own, numbers and strings."""
    ledger, told, pending = known.ledger, known.told, known.ledger.pending
    state = {
        "format": STATE_FORMAT,
        "config": settings(kind, config),
        "history": ledger.in_one_part.told[0].copied()._asdict(),
        "pending": pending.points.clone(),
        "pending_ids": list(pending.ids),
        "pending_times": torch.tensor(pending.times, dtype=torch.float64, device=pending.points.device),
        "pending_stages": None if pending.stages is None else pending.stages.clone(),
        **{name: getattr(ledger, name) for name in ("num_asked", "num_learned", "num_forgotten")},
        "clock": {"now": known.clock.now, "kind": known.clock.kind},
        **_part_of(config, known),
        "outcomes": [_part_of(*each) for each in zip(config.of_outcomes, known.outcomes, strict=True)],
    }
    if told.stage_beliefs and not told.exact:  # an exact posterior follows from the history
        state["stages"] = [_dictionary_of(stage) for stage in told.stage_beliefs]
    if isinstance(told, EnsembleBelief):
        state["family"] = told.sums
    if known.failures is not None and config.dictionary is not None:
        state["failures"] = _dictionary_of(known.failures.belief)
    if config.advice is not None:
        answers = [{"now": now, **said.copied()._asdict()} for now, said in known.answers]
        state["expert"] = {"counts": config.advice.counts(), "answers": answers}
    return state


def _part_of(config: BanditConfig, known: State) -> dict[str, Any]:
    """Return what a state has of rewards, and of each outcome: dictionary, residuals, and the prior if it is fitted."""
    own = {} if number_beside(known.told) is not None else _dictionary_of(known.told)  # else that of rewards
    part = own | {"residuals": known.residuals.state()}
    if config.learning is None:
        return part
    prior, memory = known.spec.prior, known.spec.memory
    fitted = {
        "kernel": {name: value.clone() for name, value in prior.kernel.state_dict().items()},
        "regularization": prior.regularization,
        "mean": prior.mean if config.learning.mean is None else 0.0,
        "floor": prior.floor,
        "memory": dataclasses.asdict(memory) if dataclasses.is_dataclass(memory) else {},
        **known.last_fit._asdict(),
    }
    return part | {"prior": fitted}


def _dictionary_of(belief: Belief) -> dict[str, Any]:
    """Return the dictionary of a belief, and what its rule wants handed back."""
    points, weights = belief.inducing_points, belief.dictionary_weights
    return {"inducing_points": points.clone(), "dictionary_weights": None if weights is None else weights.clone()}


def restored(kind: type, config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, computed afresh from its history, its dictionary and the prior it had fitted.

    Raises:
        StateMismatchError: if it is no state of a bandit of this class and configuration; the message says in what.

    Cost: that of the posterior of the observations that count; nothing that was fitted is fitted again.
    """
    if not isinstance(state, Mapping) or not {"format", "config"} <= set(state):
        raise StateMismatchError(
            f"state must be what bandit.state_dict() returned, got {checks.describe(state)}. A file is loaded by "
            "Bandit.load(path)."
        )
    if not isinstance(state["format"], int) or state["format"] != STATE_FORMAT:
        raise StateMismatchError(
            f"The state has format {checks.shown(state['format'])} and this version reads {STATE_FORMAT}: "
            "load it with the version of torch_kbandits that saved it."
        )
    try:
        _check_same(state["config"], settings(kind, config))
        _check_tensors("the state", state)
        return _restored(config, state)
    except (StateMismatchError, ArmsChangedError):
        raise
    except KeyError as error:
        raise StateMismatchError(f"The state is damaged: it lacks {sorted(map(str, error.args))}.") from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateMismatchError(f"The state is damaged: {error}") from error


def _check_same(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse settings that differ, naming every difference."""
    plain = (bool, int, float, str, type(None))
    differences = [
        f"{key}: saved {_shown(saved.get(key, 'nothing'))}, here {_shown(here.get(key, 'nothing'))}"
        for key in sorted({*saved, *here}, key=str)
        if key not in saved or not isinstance(saved[key], plain) or key not in here or saved[key] != here[key]
    ]
    if differences:
        raise StateMismatchError("The state belongs to another configuration. " + "; ".join(differences) + ".")


def _shown(setting: Any) -> str:
    return setting[:_LONGEST_SETTING] if isinstance(setting, str) else checks.shown(setting)


def _check_tensors(name: str, value: Any) -> None:
    """Refuse tensors without numbers of their own."""
    if isinstance(value, Tensor):
        checks.own_numbers(name, value)
    elif isinstance(value, (Mapping, list, tuple)):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_tensors(f"{name}.{checks.shown(key)}", part)


def _require(holds: Any, what: str) -> None:
    """Refuse a state of which something does not hold."""
    if not bool(holds):
        raise InputError(f"{what}.")


def _restored(config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, by a state that may not fit; see ``restored``."""
    ledger, clock = (
        _ledger(config, state),
        Clock(**(state["clock"] if config.has_clock else {}), matters=config.has_clock),
    )
    if (told_at := ledger.told[0].told_at) is not None:
        clock.check(torch.cat([told_at.cpu(), torch.tensor(ledger.pending.times, dtype=torch.float64)]))
    learned = ledger.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
    stages = state.get("stages", ())
    _require(config.dictionary is None or len(stages) == config.num_stages, f"{len(stages)} stages have dictionaries")
    of_stages = list[Selection]()
    for stage, part in enumerate(() if config.dictionary is None else stages, 1):
        number = len(learned.X) if config.specs else int((cast(Tensor, learned.stages) == stage).sum())
        of_stages.append(_dictionary(config, part, number))
    known = _known(config, state, ledger, clock, ledger.told[0].next_round, of_stages=of_stages)
    if isinstance(known.told, EnsembleBelief):
        sums = checks.finite("family", checks.floating_tensor("family", state["family"])).clone()
        _require(sums.shape == (config.num_stages, NUM_SUMS), f"family is {checks.describe(sums)}")
        _require((sums[:, -1] > 0.0).any() and (sums[:, 0] >= 0.0).all(), "family has rejected every hypothesis")
        known = dataclasses.replace(known, told=known.told.with_sums(sums, len(learned.X)))
    _require(len(state["outcomes"]) == len(config.of_outcomes), f"there are {len(state['outcomes'])} outcomes")
    outcomes = tuple(_outcome(config, known, place, part) for place, part in enumerate(state["outcomes"]))
    dictionary = None
    if "failures" in state:
        number = len(ledger.history_since(ledger.num_forgotten).over.X)
        dictionary = _dictionary(config, state["failures"], number)
    failures = failures_in(config, ledger, known.spec, clock.now, dictionary)
    return dataclasses.replace(known, outcomes=outcomes, failures=failures, answers=_answers(config, state))


def _ledger(config: BanditConfig, state: Mapping[str, Any]) -> Ledger:
    """Return what was asked and told, checked like what is told."""
    example, num_stages, timed = config.candidates.example, config.num_stages, config.has_clock
    saved, kind = History(**state["history"]), {"timed": timed, "dated": config.candidates.is_timed}
    history = checked_history(saved, example, num_stages, len(config.of_outcomes), **kind)
    steps = history.rounds.diff(prepend=history.rounds.new_full((1,), -1))
    _require(not len(steps) or (steps[0] == 1 and (steps <= 1).all()), "the history does not have all rounds from 0 on")
    is_staged = saved.stages is not None and state["pending_stages"] is not None
    _require(is_staged or not num_stages, "the stages of the history or of the pending points are missing")
    is_timed = (saved.times is not None, saved.told_at is not None)
    _require(is_timed == (timed, timed), f"times are {'missing' if timed else 'there, and there is no memory'}")
    points, num_asked = _points(config, "pending points", state["pending"]), int(state["num_asked"])
    ids, num = tuple(int(number) for number in state["pending_ids"]), len(points)
    is_known = list(ids) == sorted({*ids}) and (not ids or 0 <= ids[0] <= ids[-1] < num_asked)
    _require(len(ids) == num and is_known, f"{num} points are pending with the ids {ids}, of {num_asked} asked for")
    asked = checks.finite("pending_times", checks.floating_tensor("pending_times", state["pending_times"])).double()
    _require(asked.shape == (num,) and (asked.diff() >= 0).all(), f"pending_times do not ascend for {num} points")
    chosen = checked_stages(state["pending_stages"], points, num_stages)
    num_learned, num_forgotten = int(state["num_learned"]), int(state["num_forgotten"])
    told = f"{num_forgotten} rewards were forgotten of {num_learned} learned of {len(history.X)} told"
    _require(0 <= num_forgotten <= num_learned <= len(history.X), told)
    pending = Pending(points, ids, tuple(asked.tolist()), chosen)
    return Ledger.restored(history, pending, num_asked, num_learned, num_forgotten)


def _known(
    config: BanditConfig,
    part: Mapping[str, Any],
    ledger: Ledger,
    clock: Clock,
    number: int,
    host: Belief | None = None,
    of_stages: Sequence[Selection] = (),
) -> State:
    """Return what was known of rewards, or of an outcome as if it were the reward, in the round of a number.

    The posterior is computed unless it is given, with the dictionaries of the stages where these have any.
    """
    history, (spec, last_fit) = ledger.told[0], _spec(config, part)
    spec, summaries, compared = with_chosen_memory(config, spec, history)
    counting = spec.counted(history.rows(slice(ledger.num_forgotten, ledger.num_learned)))
    belief = host
    if belief is None:
        belief, dictionary = config.belief(spec).at(clock.now), _dictionary(config, part, len(counting.X))
        belief = belief.restored(counting, dictionary, *of_stages) if len(counting.X) else belief
    predictions = Predictions(Residuals.restored(part["residuals"], number))
    known = {"summaries": summaries, "compared": compared, "last_fit": last_fit, "predictions": predictions}
    return State(ledger, clock, belief, spec, number, **known)


def _outcome(config: BanditConfig, known: State, place: int, part: Mapping[str, Any]) -> State:
    """Return what was known of the outcome in a column of the history, given what was known of rewards."""
    own, history = config.of_outcomes[place], known.ledger.told[0]
    there = (Y := cast(Tensor, history.outcomes)[:, place]).isfinite()
    times, told_at = (
        each[there] if own.has_clock and each is not None else None for each in (history.times, history.told_at)
    )
    told = History(config.as_in(own, history.X[there]), Y[there], history.rounds[there], times=times, told_at=told_at)
    nothing, num_forgotten = (
        Ledger.empty(own.candidates.example).pending,
        int(there[: known.ledger.num_forgotten].sum()),
    )
    ledger = Ledger.restored(told, nothing, 0, len(told.X), num_forgotten)
    host = None
    if "inducing_points" not in part:
        _require(is_measured_throughout(history.Y, history.outcomes, place), f"the outcome {place} has no dictionary")
        host = beside(known.told, place)
    return _known(own, part, ledger, known.clock if own.has_clock else own.clock, known.round, host)


def _spec(config: BanditConfig, part: Mapping[str, Any]) -> tuple[SurrogateSpec, LastFit]:
    """Return what was taken for true, under the prior that was fitted if one was, and when that was."""
    if config.learning is None:
        return config.spec, NEVER
    saved, start, given = part["prior"], config.start, config.learning.mean
    kernel = deepcopy(start.kernel)
    kernel.load_state_dict({name: value.to(torch.float64) for name, value in saved["kernel"].items()})
    mean = checks.finite_number("the saved mean", saved["mean"])
    prior = Prior(kernel, saved["regularization"], mean if given is None else given, float(saved["floor"]))
    last = LastFit(*(checks.non_negative_integer(name, saved[name]) for name in LastFit._fields))
    return config.spec_of(prior, _with_numbers(config.memory, saved["memory"])), last


def _with_numbers(value: Any, saved: Mapping[str, Any]) -> Any:
    """Return a value, a dataclass or None, with the saved numbers in the place of its own, also in its parts."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {name: getattr(value, name) for name in saved}
    inner = {name: _with_numbers(parts[name], given) for name, given in saved.items() if isinstance(given, Mapping)}
    return dataclasses.replace(value, **{**saved, **inner})


def _dictionary(config: BanditConfig, part: Mapping[str, Any], number: int) -> Selection:
    """Return the dictionary of a belief that learned a number of rewards; with a clock all may be forgotten."""
    points, weights = _points(config, "dictionary", part["inducing_points"]), part["dictionary_weights"]
    fits = config.has_clock or (number > 0) == (len(points) > 0)
    _require(fits, f"{number} rewards were learned and {len(points)} points in the dictionary")
    if weights is not None:
        weights = checks.finite("dictionary_weights", checks.floating_tensor("dictionary_weights", weights))
        weights = weights.to(points.device, copy=True)
        _require(weights.shape == points.shape[:1], f"{len(points)} points have {checks.describe(weights)} as weights")
    return Selection(points, points.new_ones(len(points)), None, weights)


def _answers(config: BanditConfig, state: Mapping[str, Any]) -> tuple[tuple[float, Answers], ...]:
    """Return what an expert said before a state was saved, with the time of each."""
    if config.advice is None:
        return ()
    example, found = config.candidates.example, []
    for name in config.advice.counts():
        checks.non_negative_integer(name, state["expert"]["counts"][name])
    for saved in state["expert"]["answers"]:
        X = _points(config, "questions", saved["X"])
        Y, variance = saved["Y"].to(example, copy=True), saved["variance"].to(example.device, torch.float64, copy=True)
        _require(Y.shape == variance.shape == X.shape[:1], f"{len(X)} questions have {len(Y)} answers")
        found.append((float(saved["now"]), Answers(X, Y, variance)))
    return tuple(found)


def _points(config: BanditConfig, name: str, points: Any) -> Tensor:
    """Return a copy of saved points (n, d) where those of the bandit are."""
    example = config.candidates.example
    points = points.to(example.device, torch.float64 if config.candidates.is_timed else None)
    points = checks.points(f"the saved {name}", points, dimension=example.shape[-1], like=example)
    _require(points.dim() == 2, f"the saved {name} must be (n, {example.shape[-1]}), got {checks.describe(points)}")
    return points.clone()
