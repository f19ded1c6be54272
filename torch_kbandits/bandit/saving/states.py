"""What a bandit knows as a state: configuration, history, what is pending, dictionaries and priors that were fitted."""

import dataclasses
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec
from torch_kbandits.bandit.failures import failures_in
from torch_kbandits.bandit.relearning import with_chosen_memory
from torch_kbandits.bandit.residuals import Predictions, Residuals
from torch_kbandits.bandit.settings import check_same
from torch_kbandits.bandit.sharing import beside, is_measured_throughout
from torch_kbandits.bandit.state import State
from torch_kbandits.beliefs import Belief, EnsembleBelief
from torch_kbandits.beliefs.composite import NUM_SUMS
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import ArmsChangedError, InputError, StateMismatchError
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History, checked_history, checked_stages
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.priors import Prior
from torch_kbandits.priors.learned import NEVER, LastFit

#: Version of the layout of ``Bandit.state_dict``.
STATE_FORMAT = 6


def state_of(settings: dict[str, Any], known: State, config: BanditConfig) -> dict[str, Any]:
    """Return the state of a bandit: tensors of its own, numbers and strings."""
    ledger, clock, told = known.ledger, known.clock, known.told
    pending = ledger.pending
    state = {
        "format": STATE_FORMAT,
        "config": settings,
        "history": ledger.in_one_part.told[0].copied()._asdict(),
        "pending": pending.points.clone(),
        "pending_ids": list(pending.ids),
        "pending_times": torch.tensor(pending.times, dtype=torch.float64, device=pending.points.device),
        "pending_stages": None if pending.stages is None else pending.stages.clone(),
        "num_asked": ledger.num_asked,
        "num_learned": ledger.num_learned,
        "num_forgotten": ledger.num_forgotten,
        "clock": {"now": clock.now, "kind": clock.kind},
        **_part_of(known, config),
    }
    if told.stage_beliefs and not told.exact:  # an exact posterior follows from the history
        state["stages"] = [_dictionary_of(stage) for stage in told.stage_beliefs]
    if isinstance(told, EnsembleBelief):
        state["family"] = told.sums
    if config.of_outcomes:
        state["outcomes"] = [_part_of(*each) for each in zip(known.outcomes, config.of_outcomes, strict=True)]
    if known.failures is not None and config.dictionary is not None:
        state["failures"] = _dictionary_of(known.failures.belief)
    if config.advice is not None:
        answers = [{"now": now, **said.copied()._asdict()} for now, said in known.answers]
        state["expert"] = {"counts": config.advice.counts(), "answers": answers}
    return state


def _part_of(known: State, config: BanditConfig) -> dict[str, Any]:
    """Return what a state has of rewards, and of each outcome: dictionary, residuals, and the prior if it is fitted."""
    part = _dictionary_of(known.told) | {"residuals": known.residuals.state()}
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


def restored(config: BanditConfig, settings: Mapping[str, Any], state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, computed afresh from its history, its dictionary and the prior it had fitted.

    Args:
        config: of the bandit.
        settings: its configuration, which must be that of the saved one.
        state: what ``state_of`` returned.

    Raises:
        StateMismatchError: if it is of another format or configuration, or something is missing or does not fit.

    Cost: that of the posterior of the observations that count; nothing that was fitted is fitted again.
    """
    if not isinstance(state, Mapping):
        raise StateMismatchError(
            f"state must be what bandit.state_dict() returned, got {checks.describe(state)}. A file is loaded by "
            "bandit.load(path)."
        )
    if missing := {"format", "config"} - set(state):
        raise StateMismatchError(f"This is no state of a bandit: it lacks {sorted(missing)}.")
    if not isinstance(state["format"], int) or state["format"] != STATE_FORMAT:
        raise StateMismatchError(
            f"The state has format {checks.shown(state['format'])} and this version reads {STATE_FORMAT}: "
            "load it with the version of torch_kbandits that saved it."
        )
    try:
        check_same(state["config"], settings)
        _check_tensors("the state", state)
        return _restored(config, state)
    except (StateMismatchError, ArmsChangedError):
        raise
    except KeyError as error:
        raise StateMismatchError(f"The state is damaged: it lacks {sorted(map(str, error.args))}.") from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateMismatchError(f"The state is damaged: {error}") from error


def _check_tensors(name: str, value: Any) -> None:
    """Refuse tensors without numbers of their own."""
    if isinstance(value, Tensor):
        checks.own_numbers(name, value)
    elif isinstance(value, (Mapping, list, tuple)):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_tensors(f"{name}.{checks.shown(key)}", part)


def _restored(config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit knew, by a state that may not fit; see ``restored``."""
    timed, num_stages = config.has_clock, config.num_stages
    ledger = _ledger(config, state)
    clock = Clock(**(state["clock"] if timed else {}), matters=timed)
    times = torch.tensor(ledger.pending.times, dtype=torch.float64)
    if (told_at := ledger.told[0].told_at) is not None:
        clock.check(torch.cat([told_at.cpu(), times]))
    learned = ledger.told[0].rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
    of_stages = [] if config.dictionary is None else _of_stages(config, state, learned)
    known = _known(config, state, ledger, clock, ledger.told[0].next_round, of_stages=of_stages)
    if isinstance(known.told, EnsembleBelief):
        sums = _sums(state["family"], num_stages)
        known = dataclasses.replace(known, told=known.told.with_sums(sums, len(learned.X)))
    parts = state.get("outcomes", ())
    if len(parts) != len(config.of_outcomes):
        raise InputError(f"there are {len(config.of_outcomes)} outcomes, and dictionaries of {len(parts)}.")
    outcomes = tuple(_outcome(config, known, place, part) for place, part in enumerate(parts))
    dictionary = None
    if "failures" in state:
        size = len(ledger.history_since(ledger.num_forgotten).over.X)
        dictionary = _dictionary(config, state["failures"], size)
    failures = failures_in(config, ledger, known.spec, clock.now, dictionary)
    answers = _answers(config, state)
    return dataclasses.replace(known, outcomes=outcomes, failures=failures, answers=answers)


def _ledger(config: BanditConfig, state: Mapping[str, Any]) -> Ledger:
    """Return what was asked and told, checked like what is told."""
    example, num_stages, timed = config.candidates.example, config.num_stages, config.has_clock
    saved, kind = History(**state["history"]), {"timed": timed, "dated": config.candidates.is_timed}
    history = checked_history(saved, example, num_stages, len(config.of_outcomes), **kind)
    steps = history.rounds.diff(prepend=history.rounds.new_full((1,), -1))
    if len(steps) and (steps[0] != 1 or bool((steps > 1).any())):
        raise InputError("the rounds of the history must begin at 0 and leave out none.")
    if num_stages and (saved.stages is None or state.get("pending_stages") is None):
        raise InputError("the stages of the history or of the pending points are missing.")
    if not timed == (saved.times is not None) == (saved.told_at is not None):
        raise InputError("the history of a bandit with a memory needs times, and of one without has none.")
    points, num_asked = _points(config, "pending points", state["pending"]), int(state["num_asked"])
    ids = tuple(int(number) for number in state["pending_ids"])
    if len(ids) != len(points) or list(ids) != sorted({*ids}) or (ids and not 0 <= ids[0] <= ids[-1] < num_asked):
        raise InputError(f"{len(points)} points are pending and their ids are {ids}, of {num_asked} asked for.")
    asked = checks.finite("pending_times", checks.floating_tensor("pending_times", state["pending_times"])).double()
    if asked.shape != points.shape[:1] or bool((asked.diff() < 0).any()):
        got = checks.describe(asked)
        raise InputError(f"pending_times must be an ascending number for each of the {len(points)} points, got {got}.")
    chosen = checked_stages(state.get("pending_stages"), points, num_stages)
    num_learned, num_forgotten = int(state["num_learned"]), int(state.get("num_forgotten", 0))
    if not 0 <= num_forgotten <= num_learned <= len(history.X):
        raise InputError(f"{num_forgotten} rewards were forgotten of {num_learned} learned of {len(history.X)} told.")
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
    dictionary = _dictionary(config, part, len(counting.X))
    belief = config.belief(spec).at(clock.now) if host is None else host
    if host is None and len(counting.X):
        belief = belief.restored(counting, dictionary, *of_stages)
    predictions = Predictions(Residuals.restored(part["residuals"], number))
    known = {"summaries": summaries, "compared": compared, "last_fit": last_fit, "predictions": predictions}
    return State(ledger, clock, belief, spec, number, **known)


def _outcome(config: BanditConfig, known: State, place: int, part: Mapping[str, Any]) -> State:
    """Return what was known of the outcome in a column of the history, given what was known of rewards."""
    own, history = config.of_outcomes[place], known.ledger.told[0]
    Y = cast(Tensor, history.outcomes)[:, place]
    there = Y.isfinite()
    times, told_at = (
        each[there] if own.has_clock and each is not None else None for each in (history.times, history.told_at)
    )
    told = History(config.as_in(own, history.X[there]), Y[there], history.rounds[there], times=times, told_at=told_at)
    nothing = Ledger.empty(own.candidates.example).pending
    ledger = Ledger.restored(told, nothing, 0, len(told.X), int(there[: known.ledger.num_forgotten].sum()))
    host = None
    if is_measured_throughout(history.Y, history.outcomes, place):
        saved = _dictionary(own, part, len(told.X) - ledger.num_forgotten)
        if config.dictionary is None or _agree(saved, _dictionary_of(known.told)):
            host = beside(known.told, place)
    clock = known.clock if own.has_clock else own.clock
    return _known(own, part, ledger, clock, known.round, host)


def _agree(ours: Selection, theirs: Mapping[str, Any]) -> bool:
    """Say whether two dictionaries are the same, and what their rule wants handed back."""
    left, right = ours.weights, theirs["dictionary_weights"]
    same = left is right if left is None or right is None else torch.equal(left, right)
    return same and torch.equal(ours.points, theirs["inducing_points"])


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
    if not config.has_clock and (number > 0) != (len(points) > 0):
        raise InputError(f"{number} rewards were learned and {len(points)} points in the dictionary.")
    if weights is not None:
        weights = checks.finite("the saved weights", checks.floating_tensor("the saved weights", weights))
        weights = weights.to(points.device, copy=True)
        if weights.shape != points.shape[:1]:
            got = checks.describe(weights)
            raise InputError(f"the saved weights must be one for each of {len(points)} dictionary points, got {got}.")
    return Selection(points, points.new_ones(len(points)), None, weights)


def _of_stages(config: BanditConfig, state: Mapping[str, Any], learned: History) -> list[Selection]:
    """Return the dictionaries of stages, or of the hypotheses of a family, of which each learned all rewards."""
    parts, found = state.get("stages", ()), []
    if len(parts) != config.num_stages:
        raise InputError(f"there are {config.num_stages} stages, and dictionaries of {len(parts)}.")
    for stage, part in enumerate(parts, 1):
        number = len(learned.X) if config.specs else int((cast(Tensor, learned.stages) == stage).sum())
        found.append(_dictionary(config, part, number))
    return found


def _sums(saved: Any, number: int) -> Tensor:
    """Return what so many hypotheses had shown, of which at least one was not rejected."""
    sums = checks.finite("the saved family", checks.floating_tensor("the saved family", saved))
    if sums.shape != (number, NUM_SUMS) or not bool((sums[:, -1] > 0.0).any()) or bool((sums[:, 0] < 0.0).any()):
        got = checks.describe(sums)
        raise InputError(f"the saved family must be {NUM_SUMS} sums of {number} hypotheses, got {got}.")
    return sums.clone()


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
        if not Y.shape == variance.shape == X.shape[:1]:
            raise InputError(f"{len(X)} questions have {len(Y)} answers and {len(variance)} variances.")
        found.append((float(saved["now"]), Answers(X, Y, variance)))
    return tuple(found)


def _points(config: BanditConfig, name: str, points: Any) -> Tensor:
    """Return a copy of saved points (n, d) where those of the bandit are."""
    example = config.candidates.example
    points = points.to(example.device, torch.float64 if config.candidates.is_timed else None)
    points = checks.points(f"the saved {name}", points, dimension=example.shape[-1], like=example)
    if points.dim() != 2:
        raise InputError(f"the saved {name} must be (n, {example.shape[-1]}), got {checks.describe(points)}.")
    return points.clone()
