"""What a saved state holds, and the checks between it and the bandit that loads it."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.advice import Advice
from torch_kbandits.bandit.residuals import Residuals
from torch_kbandits.beliefs.ensemble import NUM_SUMS
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import InputError, StateMismatchError
from torch_kbandits.memory import Memory
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import (
    History,
    Pending,
    check_rounds,
    checked_stages,
    rewards,
    saved_failures,
)
from torch_kbandits.observations.measured import saved_columns
from torch_kbandits.priors import Prior, PriorMean
from torch_kbandits.priors.learned import LastFit

#: Version of the layout of ``Bandit.state_dict``.
STATE_FORMAT = 5

#: Letters of a setting that the message of an error shows.
_LONGEST_SETTING = 200
#: Tensors of more numbers are told apart by a fingerprint: as text they take more room than in the history, and nobody
#: would read it.
_MOST_WRITTEN = 64


def describe_kernel(kernel: Kernel | Mean, title: str = "kernel") -> dict[str, Any]:
    """Return the class, the plain settings (such as ``nu``) and the parameters of a kernel, or mean, and its parts."""
    config: dict[str, Any] = {}
    for name, part in kernel.named_modules():
        prefix = f"{title}.{name}" if name else title
        config[prefix] = type(part).__name__
        for key, value in vars(part).items():
            if key != "training" and not key.startswith("_") and isinstance(value, (bool, int, float, str)):
                config[f"{prefix}.{key}"] = value
    for name, value in kernel.state_dict().items():
        config[f"{title}.{name}"] = describe_tensor(value)
    return config


def describe_tensor(value: Tensor) -> str:
    """Return the numbers of a tensor or, of a large one, its shape and a fingerprint: equal if all numbers are."""
    if value.numel() <= _MOST_WRITTEN:
        return str(value.tolist())
    digest = hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes())
    return f"{tuple(value.shape)} numbers, {value.dtype}, sha256 {digest.hexdigest()[:32]}"


def describe_value(name: str, value: Any, config: dict[str, Any]) -> None:
    """Add a setting under its name; a dataclass becomes its class name and its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        config[name] = type(value).__name__
        for field in dataclasses.fields(value):
            describe_value(f"{name}.{field.name}", getattr(value, field.name), config)
    elif isinstance(value, (Kernel, Mean)):
        config |= describe_kernel(value, name)
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            describe_value(f"{name}.{index}", part, config)
    elif isinstance(value, Tensor):
        config[name] = describe_tensor(value)
    elif isinstance(value, (bool, int, float, str, type(None))):
        config[name] = value
    else:
        config[name] = getattr(value, "__qualname__", type(value).__name__)


#: The dictionary that a state has, of which kinds.
_DICTIONARY: dict[str, tuple[type, ...]] = {"inducing_points": (Tensor,), "dictionary_weights": (Tensor, type(None))}
#: What else it has; what is not needed may be missing.
_PARTS: dict[str, tuple[type, ...]] = {
    "format": (int,),
    "config": (Mapping,),
    "history": (Mapping,),
    **_DICTIONARY,
    "pending": (Tensor,),
    "pending_ids": (list, tuple),
    "pending_times": (Tensor,),
    "num_asked": (int,),
    "num_learned": (int,),
    "residuals": (Mapping,),
}
_OTHER_PARTS: dict[str, tuple[type, ...]] = {
    "pending_stages": (Tensor, type(None)),
    "stages": (list, tuple),
    "num_forgotten": (int,),
    "clock": (Mapping,),
    "family": (Tensor,),
    "prior": (Mapping,),
    "outcomes": (list, tuple),
    "failures": (Mapping,),
}
_SURPRISE: dict[str, tuple[type, ...]] = {
    "number": (int,),
    "logs": (list, tuple),
    "starts": (list, tuple),
    "num_held": (int,),
    "held": (list, tuple),
}
_RESIDUALS: dict[str, tuple[type, ...]] = {
    "since": (int,),
    "number": (int,),
    "covered": (int,),
    "recent": (Tensor,),
    "flagged": (int, type(None)),
    "slack_since": (int, type(None)),
    "misfit": (Mapping,),
    "slack": (Mapping,),
}
_PRIOR: dict[str, tuple[type, ...]] = {
    "kernel": (Mapping,),
    "regularization": (float, int),
    "mean": (float, int),
    "floor": (float, int),
    "memory": (Mapping,),
    "number": (int,),
    "counted": (int,),
}
_ANSWER: dict[str, tuple[type, ...]] = {
    "now": (int, float),
    "X": (Tensor,),
    "Y": (Tensor,),
    "variance": (Tensor,),
}
_COLUMNS: dict[str, tuple[type, ...]] = {"X": (Tensor,), "Y": (Tensor,), "rounds": (Tensor,)}
_OTHER_COLUMNS: dict[str, tuple[type, ...]] = dict.fromkeys(
    ("stages", "times", "outcomes", "told_at", "failed"), (Tensor, type(None))
)


def check_format(state: Mapping[str, Any]) -> None:
    """Refuse what is no state of a bandit, one of another format, or one with parts of other kinds.

    Raises:
        StateMismatchError: if so.
    """
    if not isinstance(state, Mapping):
        raise StateMismatchError(
            f"state must be what bandit.state_dict() returned, got {checks.describe(state)}. A file is loaded by "
            "bandit.load(path)."
        )
    missing = {"format", "config"} - set(state)
    if missing:
        raise StateMismatchError(f"This is no state of a bandit: it lacks {sorted(missing)}.")
    if not isinstance(state["format"], int) or state["format"] != STATE_FORMAT:
        raise StateMismatchError(
            f"The state has format {checks.shown(state['format'])} and this version reads {STATE_FORMAT}: "
            "load it with the version of torch_kbandits that saved it."
        )
    check_parts(state, _PARTS, _OTHER_PARTS)
    check_parts(state["history"], _COLUMNS, _OTHER_COLUMNS, "history.")
    for stage in state.get("stages", ()):
        if not isinstance(stage, Mapping):
            raise StateMismatchError(f"The state is damaged: a stage is {checks.describe(stage)}.")
        check_parts(stage, _DICTIONARY, prefix="stages.")
    for outcome in state.get("outcomes", ()):
        if not isinstance(outcome, Mapping):
            raise StateMismatchError(f"The state is damaged: an outcome is {checks.describe(outcome)}.")
        check_parts(outcome, _DICTIONARY, prefix="outcomes.")
    if "failures" in state:
        check_parts(state["failures"], _DICTIONARY, prefix="failures.")


def check_parts(
    state: Mapping[str, Any],
    needed: Mapping[str, tuple[type, ...]],
    others: Mapping[str, tuple[type, ...]] | None = None,
    prefix: str = "",
) -> None:
    """Refuse a state of which a part is missing or of another kind; its tensors must have numbers of their own.

    Args:
        state: by name.
        needed: the kinds of what it must have.
        others: the kinds of what it may have.
        prefix: of the names in messages.

    Raises:
        StateMismatchError: if so.
    """
    missing = set(needed) - set(state)
    if missing:
        raise StateMismatchError(f"The state is damaged: it lacks {sorted(prefix + name for name in missing)}.")
    for name, kinds in (dict(needed) | dict(others or {})).items():
        part = state.get(name)
        if name in state and (not isinstance(part, kinds) or isinstance(part, bool)):
            words = " or ".join(kind.__name__ for kind in kinds)
            raise StateMismatchError(
                f"The state is damaged: {prefix}{name} must be a {words}, got {checks.describe(part)}."
            )
        if isinstance(part, Tensor):
            try:
                checks.own_numbers(prefix + name, part)
            except InputError as error:
                raise StateMismatchError(f"The state is damaged: {error}") from None


def check_config(saved: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse a configuration that differs, naming every difference."""
    plain = (bool, int, float, str, type(None))
    differences = [
        f"{key}: saved {_words(saved.get(key, 'nothing'))}, here {_words(here.get(key, 'nothing'))}"
        for key in sorted({*saved, *here}, key=str)
        if key not in saved or not isinstance(saved[key], plain) or key not in here or saved[key] != here[key]
    ]
    if differences:
        raise StateMismatchError("The state belongs to another configuration. " + "; ".join(differences) + ".")


def _words(setting: Any) -> str:
    return setting[:_LONGEST_SETTING] if isinstance(setting, str) else checks.shown(setting)


class SavedState(NamedTuple):
    """What a bandit was saved with.

    Attributes:
        history: what was told.
        dictionaries: points, and weights if their rule has any; no indices. That of everything told, and those of the
            stages where these have any.
        pending: points asked for and not told.
        num_asked: how many points were ever asked for.
        num_learned: how many of the rewards were learned.
        num_forgotten: how many of them, the first, were forgotten on demand.
        clock: what time it was.
        residuals: what one-step predictions had been worth.
        sums: what the hypotheses of a family had shown, (K, ``NUM_SUMS``); None without one.
        outcomes: of each outcome its dictionary, and the prior that was fitted, as a state has them.
        failures: the dictionary of the posterior of failures, as a state has it; None without one.
    """

    history: History
    dictionaries: tuple[Selection, ...]
    pending: Pending
    num_asked: int
    num_learned: int
    num_forgotten: int
    clock: Clock
    residuals: Residuals
    sums: Tensor | None = None
    outcomes: tuple[Mapping[str, Any], ...] = ()
    failures: Mapping[str, Any] | None = None


def saved_state(
    state: Mapping[str, Any],
    example: Tensor,
    num_stages: int = 0,
    *,
    timed: bool = False,
    exact: bool = False,
    family: int = 0,
    num_outcomes: int = 0,
) -> SavedState:
    """Return copies of the parts of a saved state, checked like what is told.

    Args:
        state: what ``Bandit.state_dict`` returned.
        example: a point (1, d) of the bandit that loads it.
        num_stages: of that bandit.
        timed: whether it has a clock.
        exact: whether its posteriors are, so that stages need no dictionaries.
        family: the number of its hypotheses, which stand for stages; each learned all rewards.
        num_outcomes: how many outcomes it has.

    Raises:
        StateMismatchError: if something is missing or does not fit together.
    """
    try:
        saved = History(**state["history"]).copied(example.device)
        X = _saved_points("X", saved.X, example, timed=timed)
        Y = rewards(saved.Y, X, missing=True) if len(X) else example.new_zeros(0)
        outcomes = saved_columns(saved.outcomes, X, num_outcomes)
        failed = saved_failures(saved.failed, Y, num_outcomes)
        parts = tuple(state.get("outcomes", ()))
        if len(parts) != num_outcomes:
            raise InputError(f"there are {num_outcomes} outcomes, and dictionaries of {len(parts)}.")
        pending = _saved_points("pending points", state["pending"], example, timed=timed)
        pending_times = _saved_times(state["pending_times"], pending)
        ids, num_asked = tuple(int(number) for number in state["pending_ids"]), int(state["num_asked"])
        num_learned = int(state["num_learned"])
        check_rounds(saved)
        starts = saved.rounds.diff(prepend=saved.rounds.new_full((1,), -1))
        if len(starts) and (starts[0] != 1 or bool((starts > 1).any())):
            raise InputError("the rounds of the history must begin at 0 and leave out none.")
        if num_stages and (saved.stages is None or state.get("pending_stages") is None):
            raise InputError("the stages of the history or of the pending points are missing.")
        stages = checked_stages(saved.stages, X, num_stages)
        pending_stages = checked_stages(state.get("pending_stages"), pending, num_stages)
        if not 0 <= num_learned <= len(X):
            raise InputError(f"{num_learned} rewards were learned of {len(X)} told.")
        num_forgotten = int(state.get("num_forgotten", 0))
        clock = Clock(**(state.get("clock", {}) if timed else {}), matters=timed)
        if not 0 <= num_forgotten <= num_learned:
            raise InputError(f"{num_forgotten} rewards were forgotten of {num_learned} learned.")
        if not timed == (saved.times is not None) == (saved.told_at is not None):
            raise InputError("the history of a bandit with a memory needs times, and of one without has none.")
        if saved.told_at is not None:
            clock.check(torch.cat([saved.told_at.to(pending_times), pending_times]))
        counting = slice(num_forgotten, num_learned)
        rewarded = Y[counting].isfinite()
        dictionaries = [_saved_dictionary(state, example, int(rewarded.sum()), timed=timed)]
        for stage, part in enumerate([] if exact else _saved_stages(state, num_stages), 1):
            chosen = rewarded if family else rewarded & (cast(Tensor, stages)[counting] == stage)
            number = int(chosen.sum())
            dictionaries.append(_saved_dictionary(part, example, number, timed=timed))
        sums = _saved_sums(state, family) if family else None
        if len(ids) != len(pending) or list(ids) != sorted({*ids}) or (ids and not 0 <= ids[0] <= ids[-1] < num_asked):
            raise InputError(f"{len(pending)} points are pending and their ids are {ids}, of {num_asked} asked for.")
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateMismatchError(f"The state is damaged: {error}") from error
    times, told_at = (None if part is None else part.double() for part in (saved.times, saved.told_at))
    history = History(X, Y, saved.rounds, stages, times, outcomes, told_at, failed)
    outstanding = Pending(pending.clone(), ids, tuple(pending_times.tolist()), pending_stages)
    numbers, residuals = (num_asked, num_learned, num_forgotten), saved_residuals(state, history.next_round)
    others = residuals, sums, parts, state.get("failures")
    return SavedState(history, tuple(dictionaries), outstanding, *numbers, clock, *others)


def saved_residuals(part: Mapping[str, Any], next_round: int) -> Residuals:
    """Return what one-step predictions had been worth, as a state has it of rewards or of an outcome.

    Raises:
        StateMismatchError: if something is missing or does not fit together.
    """
    check_parts(part, {"residuals": (Mapping,)})
    saved = part["residuals"]
    check_parts(saved, _RESIDUALS, prefix="residuals.")
    for name in ("misfit", "slack"):
        check_parts(saved[name], _SURPRISE, prefix=f"residuals.{name}.")
    try:
        return Residuals.restored(saved, next_round)
    except InputError as error:
        raise StateMismatchError(f"The state is damaged: {error}") from None


def outcome_dictionary(part: Mapping[str, Any], example: Tensor, number: int, *, timed: bool) -> Selection:
    """Return the dictionary of what was learned so many times of an outcome.

    Raises:
        StateMismatchError: if it does not fit.
    """
    try:
        return _saved_dictionary(part, example, number, timed=timed)
    except InputError as error:
        raise StateMismatchError(f"The state is damaged: {error}") from None


class SavedPrior(NamedTuple):
    """A prior that a bandit had fitted.

    Attributes:
        prior: in force.
        memory: in force; None without one.
        last_fit: when it was fitted.
    """

    prior: Prior
    memory: Memory | None
    last_fit: LastFit


def saved_prior(
    state: Mapping[str, Any], start: Prior, memory: Memory | None, given: PriorMean | None = None
) -> SavedPrior:
    """Return the prior that a bandit had fitted, and when.

    Args:
        state: what ``Bandit.state_dict`` returned.
        start: the prior before any reward, whose kernel has the form of all that are fitted.
        memory: that before any reward.
        given: the prior mean that is given, and not saved; None where it is fitted.

    Raises:
        StateMismatchError: if something is missing or does not fit together.
    """
    check_parts(state, {"prior": (Mapping,)})
    saved = state["prior"]
    check_parts(saved, _PRIOR, prefix="prior.")
    kernel = deepcopy(start.kernel)
    try:
        kernel.load_state_dict({name: value.to(torch.float64) for name, value in saved["kernel"].items()})
        mean = checks.finite_number("the saved mean", saved["mean"])
        prior = Prior(kernel, saved["regularization"], mean if given is None else given, float(saved["floor"]))
        last = LastFit(*(checks.non_negative_integer(name, saved[name]) for name in LastFit._fields))
        memory = _with_numbers(memory, saved["memory"])
    except (AttributeError, InputError, RuntimeError, TypeError) as error:
        raise StateMismatchError(f"The state is damaged: {error}") from error
    return SavedPrior(prior, memory, last)


def _with_numbers(value: Any, saved: Mapping[str, Any]) -> Any:
    """Return a value, a dataclass or None, with the saved numbers in the place of its own, also in its parts."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {name: getattr(value, name) for name in saved}
    inner = {name: _with_numbers(parts[name], given) for name, given in saved.items() if isinstance(given, Mapping)}
    return dataclasses.replace(value, **{**saved, **inner})


def saved_answers(
    state: Mapping[str, Any], example: Tensor, advice: Advice | None
) -> tuple[tuple[tuple[float, Answers], ...], dict[str, int]]:
    """Return what an expert said before a state was saved, with the time of each, and what was counted.

    Raises:
        StateMismatchError: if something is missing or does not fit together.
    """
    if advice is None:
        return (), {}
    check_parts(state, {"expert": (Mapping,)})
    check_parts(state["expert"], {"counts": (Mapping,), "answers": (list, tuple)}, prefix="expert.")
    counts = {name: state["expert"]["counts"].get(name) for name in advice.counts()}
    check_parts(counts, dict.fromkeys(counts, (int,)), prefix="expert.counts.")
    found = []
    for saved in state["expert"]["answers"]:
        if not isinstance(saved, Mapping):
            raise StateMismatchError(f"The state is damaged: an answer is {checks.describe(saved)}.")
        check_parts(saved, _ANSWER, prefix="expert.answers.")
        X = checks.points("the saved questions", saved["X"].to(example.device), dimension=example.shape[-1])
        Y, variance = saved["Y"].to(example), saved["variance"].to(example.device, torch.float64)
        if not (X.dim() == 2 and Y.shape == variance.shape == X.shape[:1]):
            raise StateMismatchError(
                f"The state is damaged: {len(X)} questions have {len(Y)} answers and {len(variance)} variances."
            )
        found.append((float(saved["now"]), Answers(X.clone(), Y.clone(), variance.clone())))
    return tuple(found), counts


def _saved_stages(state: Mapping[str, Any], num_stages: int) -> Sequence[Mapping[str, Any]]:
    """Return what a state has of each stage; nothing where there are none."""
    parts = state.get("stages", ())
    if len(parts) != num_stages:
        raise InputError(f"there are {num_stages} stages, and dictionaries of {len(parts)}.")
    return parts


def _saved_sums(state: Mapping[str, Any], number: int) -> Tensor:
    """Return what so many hypotheses had shown, of which at least one was not rejected."""
    sums = checks.finite("the saved family", checks.floating_tensor("the saved family", state["family"]))
    if sums.shape != (number, NUM_SUMS) or not bool((sums[:, -1] > 0.0).any()) or bool((sums[:, 0] < 0.0).any()):
        raise InputError(
            f"the saved family must be {NUM_SUMS} sums of {number} hypotheses, got {checks.describe(sums)}."
        )
    return sums.clone()


def _saved_dictionary(part: Mapping[str, Any], example: Tensor, number: int, *, timed: bool) -> Selection:
    """Return the dictionary of a belief that learned a number of rewards; with a clock all may be forgotten."""
    points = _saved_points("dictionary", part["inducing_points"], example, timed=timed).clone()
    weights = part["dictionary_weights"]
    if not timed and (number > 0) != (len(points) > 0):
        raise InputError(f"{number} rewards were learned and {len(points)} points in the dictionary.")
    if weights is not None:
        weights = checks.finite("the saved weights", checks.floating_tensor("the saved weights", weights))
        weights = weights.to(example.device, copy=True)
        if weights.shape != points.shape[:1]:
            raise InputError(
                f"the saved weights must be a number for each of the {len(points)} points of the dictionary, "
                f"got {checks.describe(weights)}."
            )
    return Selection(points, points.new_ones(len(points)), None, weights)


def _saved_times(times: Tensor, points: Tensor) -> Tensor:
    """Return when points (k, d) were asked for, (k,)."""
    times = checks.finite("the times of pending points", checks.floating_tensor("the times of pending points", times))
    if times.shape != points.shape[:1] or bool((times.diff() < 0).any()):
        raise InputError(
            f"the times of pending points must be an ascending number for each of the {len(points)}, got "
            f"{checks.describe(times)}."
        )
    return times.to(points.device, torch.float64, copy=True)


def _saved_points(name: str, points: Tensor, example: Tensor, *, timed: bool) -> Tensor:
    points = points.to(example) if timed and points.dtype == torch.float32 else points  # which those with times had
    points = checks.points(f"the saved {name}", points.to(example.device), dimension=example.shape[-1], like=example)
    if points.dim() != 2:
        raise InputError(f"the saved {name} must be (n, {example.shape[-1]}), got {checks.describe(points)}.")
    return points
