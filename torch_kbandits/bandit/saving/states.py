"""What a bandit knows as a state: configuration, history, what is pending, dictionaries and priors that were fitted."""

import dataclasses
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec, beside, number_beside
from torch_kbandits.bandit.failures import failures_in
from torch_kbandits.bandit.relearning import with_chosen_memory
from torch_kbandits.bandit.residuals import Predictions
from torch_kbandits.bandit.saving.files import checksum
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.values import settings_of
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import ArmsChangedError, InputError, StateMismatchError
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.priors import Prior
from torch_kbandits.priors.learned import NEVER, LastFit
from torch_kbandits.selection import EnsembleSurrogate, Surrogate

#: Version of the layout of ``Bandit.state_dict``.
STATE_FORMAT = 7
#: Letters of a setting that the message of an error shows.
_LONGEST_SETTING = 200
#: Parts that are told from others by words of their own, or that no choice depends on.
_APART = ("candidates", "theory", "noise_scale")


def settings(kind: type, config: BanditConfig) -> dict[str, Any]:
    """Return all that must agree between a saved state and the bandit that loads it, by name."""
    found = {"algorithm": kind.__name__} | {f"candidates.{key}": of for key, of in config.candidates.describe().items()}
    for name, piece in (config.arguments | {"outcomes": config.declared}).items():
        if name not in _APART:
            found |= settings_of(name, piece)
    return found


def state_of(kind: type, config: BanditConfig, known: State) -> dict[str, Any]:
    """Return the state of a bandit of a class: tensors of its own, numbers and strings."""
    ledger, told, pending = known.ledger, known.told, known.ledger.pending
    state = {
        "format": STATE_FORMAT,
        "config": settings(kind, config),
        "history": ledger.in_one_part.told[0].copied()._asdict(),
        "pending": pending.points.clone(),
        "pending_ids": list(pending.ids),
        "pending_times": list(pending.times),
        "pending_stages": None if pending.stages is None else pending.stages.clone(),
        **{name: getattr(ledger, name) for name in ("num_asked", "num_learned", "num_forgotten")},
        "clock": {"now": known.clock.now, "kind": known.clock.kind},
        **_part_of(config, known),
        "outcomes": [_part_of(*each) for each in zip(config.of_outcomes, known.outcomes, strict=True)],
    }
    if told.stage_surrogates and not told.exact:  # an exact posterior follows from the history
        state["stages"] = [_dictionary_of(stage) for stage in told.stage_surrogates]
    if isinstance(told, EnsembleSurrogate):
        state["family"] = told.sums
    if known.failures is not None and config.dictionary is not None:
        state["failures"] = _dictionary_of(known.failures.surrogate)
    if config.advice is not None:
        answers = [{"now": now, **said.copied()._asdict()} for now, said in known.answers]
        state["expert"] = {"counts": config.advice.expert.counts(), "answers": answers}
    return state | {"checksum": checksum(state)}


def _part_of(config: BanditConfig, known: State) -> dict[str, Any]:
    """Return what a state has of rewards, and of each outcome: dictionary, residuals, and the prior if it is fitted."""
    own = {} if number_beside(known.told) is not None else _dictionary_of(known.told)  # else that of rewards
    part = own | {"residuals": known.predictions.state()}
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


def _dictionary_of(surrogate: Surrogate) -> dict[str, Any]:
    """Return the dictionary of a surrogate, and what its rule wants handed back."""
    points, weights = surrogate.inducing_points, surrogate.dictionary_weights
    return {"inducing_points": points.clone(), "dictionary_weights": None if weights is None else weights.clone()}


def restored(kind: type, config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, computed afresh from its history, its dictionary and the prior it had fitted.

    Raises:
        StateMismatchError: if it is no state of a bandit of this class and configuration; the message says in what.

    Cost: that of the posterior of the observations that count; nothing that was fitted is fitted again.
    """
    if not isinstance(state, Mapping) or not {"format", "config", "checksum"} <= set(state):
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
        check_same(state["config"], settings(kind, config))
        if checksum({name: part for name, part in state.items() if name != "checksum"}) != state["checksum"]:
            raise InputError("it is not as it was saved")
        return _restored(config, state)
    except (StateMismatchError, ArmsChangedError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateMismatchError(f"The state is damaged: {error}.") from error


def check_same(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse settings that differ, naming every difference."""
    differences = [
        f"{key}: saved {_shown(saved.get(key, 'nothing'))}, here {_shown(here.get(key, 'nothing'))}"
        for key in sorted({*saved, *here}, key=str)
        if key not in saved or key not in here or saved[key] != here[key]
    ]
    if differences:
        raise StateMismatchError("The state belongs to another configuration. " + "; ".join(differences) + ".")


def _shown(setting: Any) -> str:
    return setting[:_LONGEST_SETTING] if isinstance(setting, str) else checks.shown(setting)


def _restored(config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, by its state as it was saved."""
    history = History(**{name: _own(column) for name, column in state["history"].items()})
    ids, times, stages = tuple(state["pending_ids"]), tuple(state["pending_times"]), _own(state["pending_stages"])
    counts = (state[name] for name in ("num_asked", "num_learned", "num_forgotten"))
    ledger = Ledger.restored(history, Pending(_own(state["pending"]), ids, times, stages), *counts)
    clock = Clock(**state["clock"], matters=config.has_clock)
    known = _known(config, state, ledger, clock, history.next_round)
    if isinstance(known.told, EnsembleSurrogate):
        learned = history.rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
        known = dataclasses.replace(known, told=known.told.with_sums(_own(state["family"]), len(learned.X)))
    outcomes = tuple(_outcome(config, known, place, part) for place, part in enumerate(state["outcomes"]))
    failures = failures_in(config, ledger, known.spec, clock.now, _dictionary(state.get("failures", {})))
    answers = tuple(
        (said["now"], Answers(*(_own(said[name]) for name in Answers._fields)))
        for said in state.get("expert", {}).get("answers", ())
    )
    return dataclasses.replace(known, outcomes=outcomes, failures=failures, answers=answers)


def _known(
    config: BanditConfig,
    part: Mapping[str, Any],
    ledger: Ledger,
    clock: Clock,
    number: int,
    host: Surrogate | None = None,
) -> State:
    """Return what was known of rewards, or of an outcome as if it were the reward, in the round of a number.

    The posterior is computed unless it is given, with the dictionaries of the stages where these have any.
    """
    history, (spec, last_fit) = ledger.told[0], _spec(config, part)
    spec, summaries, compared = with_chosen_memory(config, spec, history)
    counting = spec.counted(history.rows(slice(ledger.num_forgotten, ledger.num_learned)))
    surrogate = config.surrogate(spec).at(clock.now) if host is None else host
    if host is None and len(counting.X):
        dictionaries = map(_dictionary, (part, *part.get("stages", ())))
        surrogate = surrogate.restored(counting, *cast(Iterable[Selection], dictionaries))
    predictions = Predictions.restored(part["residuals"])
    known = {"summaries": summaries, "compared": compared, "last_fit": last_fit, "predictions": predictions}
    return State(ledger, clock, surrogate, spec, number, **known)


def _outcome(config: BanditConfig, known: State, place: int, part: Mapping[str, Any]) -> State:
    """Return what was known of the outcome in a column of the history, given what was known of rewards."""
    own, history = config.of_outcomes[place], known.ledger.told[0]
    there = (Y := cast(Tensor, history.outcomes)[:, place]).isfinite()
    times, told_at = (
        each[there] if own.has_clock and each is not None else None for each in (history.times, history.told_at)
    )
    told = History(config.as_in(own, history.X[there]), Y[there], history.rounds[there], times=times, told_at=told_at)
    num_forgotten = int(there[: known.ledger.num_forgotten].sum())
    ledger = Ledger.restored(told, Ledger.empty(own.candidates.example).pending, 0, len(told.X), num_forgotten)
    host = None if "inducing_points" in part else beside(known.told, place)
    return _known(own, part, ledger, known.clock if own.has_clock else own.clock, known.round, host)


def _spec(config: BanditConfig, part: Mapping[str, Any]) -> tuple[SurrogateSpec, LastFit]:
    """Return what was taken for true, under the prior that was fitted if one was, and when that was."""
    if config.learning is None:
        return config.spec, NEVER
    saved, given = part["prior"], config.learning.mean
    kernel = deepcopy(config.start.kernel)
    kernel.load_state_dict({name: value.to(torch.float64) for name, value in saved["kernel"].items()})
    prior = Prior(kernel, saved["regularization"], saved["mean"] if given is None else given, saved["floor"])
    last = LastFit(*(saved[name] for name in LastFit._fields))
    return config.spec_of(prior, _with_numbers(config.memory, saved["memory"])), last


def _with_numbers(value: Any, saved: Mapping[str, Any]) -> Any:
    """Return a value, a dataclass or None, with the saved numbers in the place of its own, also in its parts."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {name: getattr(value, name) for name in saved}
    inner = {name: _with_numbers(parts[name], given) for name, given in saved.items() if isinstance(given, Mapping)}
    return dataclasses.replace(value, **{**saved, **inner})


def _dictionary(part: Mapping[str, Any]) -> Selection | None:
    """Return the dictionary of a surrogate, if it was saved."""
    if "inducing_points" not in part:
        return None
    points = _own(part["inducing_points"])
    return Selection(points, points.new_ones(len(points)), None, _own(part["dictionary_weights"]))


def _own(saved: Any) -> Any:
    """Return a copy of a saved tensor on the CPU; None of none."""
    return None if saved is None else saved.to("cpu", copy=True)
