"""Bandits in files: what is written, and how a bandit is made again without running what a file says.

A state is configuration, history, what is pending, dictionaries and priors that were fitted. A file has a line that
says what it is, the content as a line of JSON, and the numbers of its tensors.
"""

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.config import BanditConfig, SurrogateSpec
from torch_kbandits.bandit.learning import measured_of
from torch_kbandits.bandit.relearning import failures_in, with_chosen_memory
from torch_kbandits.bandit.residuals import Predictions
from torch_kbandits.bandit.state import State
from torch_kbandits.bandit.values import NotRebuildableError, describe, rebuild, settings_of
from torch_kbandits.candidates import ArmSource, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.dictionaries import Selection
from torch_kbandits.errors import ArmsChangedError, DamagedFileError, InputError, KernelBanditError, StateMismatchError
from torch_kbandits.files import checked_path, read_whole, write_whole
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.history import History
from torch_kbandits.observations.ledger import Ledger, Pending
from torch_kbandits.priors import Prior
from torch_kbandits.priors.learned import NEVER, LastFit
from torch_kbandits.selection import EnsembleSurrogate, Surrogate
from torch_kbandits.version import __version__

__all__ = ["NotRebuildableError", "describe", "loaded", "read", "rebuild", "restored", "save", "settings_of"]
__all__ += ["state_of", "write"]

#: Versions of the layout of files, and of ``Bandit.state_dict``.
FILE_FORMAT, STATE_FORMAT = 5, 12
#: Letters of a line, and of a setting, that the message of an error shows.
_LONGEST = 200
_ADVICE = "Take an earlier copy, or tell the history anew."
#: Of tensors, by the names that files have for them.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8)
}
#: What the first line of the file of a bandit calls it, and the parts of the file.
_KIND, _PARTS = "bandit", {"version": str, "class": str, "device": str, "state": dict, "pieces": dict}
#: Arguments that are compared by words of their own, or that no choice depends on.
_APART = ("candidates", "theory", "noise_scale")
#: What is counted of a ledger.
_COUNTS = ("num_asked", "num_learned", "num_forgotten")

_Bandit = TypeVar("_Bandit")

# ---------------------------------------------------------------- files


def write(path: str | PathLike[str], kind: str, content: Mapping[str, Any]) -> None:
    """Write a file of a kind, one word, whole or not at all: tensors, numbers, strings, lists and mappings of these.

    Reading it runs nothing that a file says, makes no more numbers than the file has, and returns tuples as lists.
    """
    body = _body(content)
    write_whole(path, f"torch_kbandits {__version__} {kind} {FILE_FORMAT} {sha256(body).hexdigest()}\n".encode() + body)


def read(path: str | PathLike[str], kind: str) -> dict[str, Any]:
    """Return the content of a file that ``write`` wrote, its tensors on the CPU; see ``Bandit.load`` for its errors."""
    found = checked_path(path)
    first, _, body = read_whole(found).partition(b"\n")
    package, wrote, there, layout, digest = (*first[:_LONGEST].decode(errors="replace").split(" "), *[""] * 4)[:5]
    if package != "torch_kbandits" or there != kind:
        hint = "A state that torch.save wrote is for bandit.load_state_dict(torch.load(path, weights_only=True))."
        raise DamagedFileError(f"{found!r} is no file of a {kind}, or its beginning is lost. {_ADVICE} {hint}")
    if layout != str(FILE_FORMAT):
        here, advice = f"torch_kbandits {__version__} reads", f"load it with version {wrote}, which wrote it, or newer"
        raise StateMismatchError(f"{found!r} has format {layout}, and {here} {FILE_FORMAT}: {advice}.")
    if sha256(body).hexdigest() != digest:
        raise DamagedFileError(f"{found!r} is cut or changed: its content is not the one that was written. {_ADVICE}")
    line, _, rest = body.partition(b"\n")
    numbers = BytesIO(rest)
    try:
        content = json.loads(line, object_hook=partial(_decoded, numbers))
        if not isinstance(content, dict) or numbers.read(1):
            raise ValueError("its content is of another kind")
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{found!r} holds no {kind}: {error}. {_ADVICE}") from error
    return content


def _body(content: Mapping[str, Any]) -> bytes:
    """Return a content as files have it: a line of JSON, and the bytes of its tensors in their order."""
    tensors = list[bytes]()

    def encoded(value: Any) -> dict[str, Any]:
        if not isinstance(value, Tensor):
            raise InputError(f"A file holds tensors, numbers and strings only, and no {type(value).__name__}.")
        checks.in_memory("a tensor to be saved", value)
        dtype = checks.one_of("the dtype of a tensor to be saved", str(value.dtype).removeprefix("torch."), _DTYPES)
        tensors.append(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return {"__tensor__": dtype, "shape": list(value.shape)}

    return b"\n".join([json.dumps(content, default=encoded).encode(), b"".join(tensors)])


def _decoded(numbers: BytesIO, found: dict[str, Any]) -> Any:
    """Return a tensor, with the next of the numbers, where JSON has one; any other mapping as it is."""
    if "__tensor__" not in found:
        return found
    dtype, shape = _DTYPES[found["__tensor__"]], found["shape"]
    if not (size := math.prod(shape) * dtype.itemsize):
        return torch.empty(shape, dtype=dtype, device="cpu")
    if len(there := bytearray(numbers.read(size))) < size:
        raise ValueError("a tensor has more numbers than the file")
    return torch.frombuffer(there, dtype=dtype).reshape(shape)


# ---------------------------------------------------------------- bandits


def save(bandit: Any, path: str | PathLike[str], arguments: dict[str, Any]) -> None:
    """Write a bandit to a file, given the arguments that make it again; see ``Bandit.save``."""
    about = {"version": __version__, "class": _name(type(bandit)), "device": str(bandit.candidates.device)}
    pieces = {name: describe(piece) for name, piece in arguments.items()}
    write(path, _KIND, {**about, "state": bandit.state_dict(), "pieces": pieces})


def loaded(
    kind: type[_Bandit], path: str | PathLike[str], into: _Bandit | None, device: torch.device | str | None
) -> _Bandit:
    """Return the bandit of a file; see ``Bandit.load``."""
    if into is not None and not isinstance(into, kind):
        raise InputError(f"into must be a bandit, a {kind.__name__}, got {type(into).__name__}.")
    if into is not None and device is not None:
        raise InputError("Leave out device: the bandit given as into has one.")
    content, file = read(path, _KIND), repr(fspath(path))
    for name, part in _PARTS.items():
        if not isinstance(content.get(name), part):
            raise DamagedFileError(f"{file} holds no bandit: {name!r} is {checks.shown(content.get(name, 'missing'))}.")
    bandit: Any = _made(kind, content, device or content["device"], file) if into is None else into
    try:
        bandit.load_state_dict(content["state"])
    except StateMismatchError as error:
        raise StateMismatchError(f"{file}, by torch_kbandits {content['version'][:40]}: {error}") from error
    return bandit


def _made(kind: type[_Bandit], content: dict[str, Any], device: torch.device | str, file: str) -> _Bandit:
    """Return a new bandit of what a file describes, on a device."""
    name, algorithms = content["class"][:80], import_module("torch_kbandits.algorithms")
    named: Any = getattr(algorithms, name) if name in algorithms.__all__ else kind
    if _name(named) == name and not issubclass(named, kind):
        raise StateMismatchError(f"{file} holds a {name}, and {kind.__name__}.load takes none: use {name}.load.")
    try:
        torch.tensor(0.0, device=device).item()
    except (RuntimeError, AssertionError) as error:
        given = checks.shown(str(device))
        raise InputError(f"device={given} cannot be used here ({error}): give one, device='cpu'.") from None
    try:
        if _name(named) != name:
            raise NotRebuildableError("its class is not known here")
        words = {word: rebuild(word, piece, device) for word, piece in content["pieces"].items()}
        return cast(Any, named)._made_of(words)
    except KernelBanditError as error:
        advice = f"Make the bandit as it was and give it: {kind.__name__}.load(path, into=bandit)."
        why = str(error).rstrip(".")
        raise StateMismatchError(f"{file}: the {name} cannot be made again: {why}. {advice}") from error
    except Exception as error:  # what the file says led to it
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:500]}"  # PyTorch says where in C++, too
        raise DamagedFileError(f"{file} is damaged: what its {name} is made of does not fit: {said}.") from error


def _name(kind: type) -> str:
    """Return what files call a class: those of this package by their names alone."""
    is_ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"


# ---------------------------------------------------------------- states


def state_of(kind: type, config: BanditConfig, known: State) -> dict[str, Any]:
    """Return the state of a bandit of a class: tensors of its own, numbers and strings."""
    ledger, told = known.ledger, known.told
    state = {
        "format": STATE_FORMAT,
        "config": settings(kind, config),
        "history": ledger.in_one_part.told[0]._asdict(),
        "pending": ledger.pending._asdict(),
        **{name: getattr(ledger, name) for name in _COUNTS},
        "clock": {"now": known.clock.now, "kind": known.clock.kind},
        **_part_of(config, known),
        "outcomes": [_part_of(*each) for each in zip(config.of_outcomes, known.outcomes, strict=True)],
        "answers": [{"now": now, **said._asdict()} for now, said in known.answers],
    }
    if told.stage_surrogates and not told.exact:  # an exact posterior follows from the history
        state["stages"] = [_dictionary_of(stage) for stage in told.stage_surrogates]
    if isinstance(told, EnsembleSurrogate):
        state["family"] = told.sums
    if known.failures is not None and config.dictionary is not None:
        state["failures"] = _dictionary_of(known.failures.surrogate)
    if config.advice is not None and config.advice.expert is not None:
        state["expert"] = {"counts": config.advice.expert.counts()}
    state = _copied(state)
    return state | {"checksum": _checksum(state)}


def settings(kind: type, config: BanditConfig) -> dict[str, Any]:
    """Return all that must agree between a saved state and the bandit that loads it, by name."""
    found = {"algorithm": kind.__name__} | _of_candidates(config.candidates)
    for name, piece in (config.arguments | {"outcomes": config.declared}).items():
        if name not in _APART:
            found |= settings_of(name, piece)
    return found


def _of_candidates(candidates: Candidates) -> dict[str, Any]:
    """Return what tells candidates from others: arms by a digest, wherever they are read, others by what made them."""
    plain, width = untimed(candidates), candidates.example.shape[-1]
    found = {"candidates.columns": f"{candidates.context_dim} before the action, of {width}"}
    if not isinstance(source := getattr(plain, "source", None), ArmSource):
        return found | {"candidates.dtype": str(plain.example.dtype)} | settings_of("candidates", plain)
    named = {word: getattr(plain, word, None) for word in ("context_columns", "action_columns")}
    digest = f"{(len(source), source.dimension)} {source.dtype} {source.fingerprint()}"
    return found | settings_of("candidates", named) | {"candidates.arms": digest}


def _copied(value: Any) -> Any:
    """Return a value with copies of the tensors in it, on the CPU, and tuples of its lists."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return tuple(map(_copied, value)) if isinstance(value, (list, tuple)) else value


def _checksum(state: Mapping[str, Any]) -> str:
    """Return a checksum of a state, the same before and after it was in a file."""
    return sha256(_body({name: part for name, part in state.items() if name != "checksum"})).hexdigest()


def _dictionary_of(surrogate: Surrogate) -> dict[str, Any]:
    """Return the dictionary of a surrogate, and what its rule wants handed back."""
    return {"inducing_points": surrogate.inducing_points, "dictionary_weights": surrogate.dictionary_weights}


def _part_of(config: BanditConfig, known: State) -> dict[str, Any]:
    """Return what a state has of rewards, and of each outcome: dictionary, residuals, and the prior if it is fitted."""
    part = _dictionary_of(known.told) | {"residuals": known.predictions.state()}
    if config.learning is None:
        return part
    prior, memory = known.spec.prior, known.spec.memory
    fitted = {
        "kernel": prior.kernel.state_dict(),
        "regularization": prior.regularization,
        "mean": prior.mean if config.learning.mean is None else 0.0,
        "floor": prior.floor,
        "memory": describe(memory) if config.learning.learn_memory else None,
    }
    return part | {"prior": fitted | known.last_fit._asdict()}


def restored(kind: type, config: BanditConfig, state: Mapping[str, Any]) -> State:
    """Return what a saved bandit of this class and configuration knew, computed afresh; nothing is fitted again."""
    if not isinstance(state, Mapping) or not {"format", "config", "checksum"} <= set(state):
        got = checks.describe(state)
        raise StateMismatchError(f"state must be what state_dict() of a bandit returned, got {got}: see Bandit.load.")
    if not isinstance(found := state["format"], int) or found != STATE_FORMAT:
        advice = f"this version reads {STATE_FORMAT}: load it with the version of torch_kbandits that saved it"
        raise StateMismatchError(f"The state has format {checks.shown(found)} and {advice}.")
    try:
        saved, here = state["config"], settings(kind, config)
        names = [key for key in sorted({*saved, *here}, key=str) if saved.get(key, here) != here.get(key, saved)]
        if names:
            said = [f"{key}: saved {_shown(saved, key)}, here {_shown(here, key)}" for key in names]
            raise StateMismatchError(f"The state belongs to another configuration. {'; '.join(said)}.")
        if _checksum(state) != state["checksum"]:
            raise InputError("it is not as it was saved")
        return _restored(config, _copied(state))
    except (StateMismatchError, ArmsChangedError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise StateMismatchError(f"The state is damaged: {error}.") from error


def _shown(settings: Mapping[str, Any], name: str) -> str:
    setting = settings.get(name, "nothing")
    return setting[:_LONGEST] if isinstance(setting, str) else checks.shown(setting)


def _restored(config: BanditConfig, state: dict[str, Any]) -> State:
    """Return what a saved bandit knew, by a copy of its state."""
    history = History(**state["history"])
    ledger = Ledger.restored(history, Pending(**state["pending"]), *(state[name] for name in _COUNTS))
    clock = Clock(**state["clock"], matters=config.has_clock)
    known = _known(config, state, ledger, clock, history.next_round)
    if isinstance(known.told, EnsembleSurrogate):
        learned = history.rows(slice(ledger.num_forgotten, ledger.num_learned)).rewarded
        known = replace(known, told=known.told.with_sums(state["family"], len(learned.X)))
    return replace(
        known,
        outcomes=tuple(_outcome(config, known, place, part) for place, part in enumerate(state["outcomes"])),
        failures=failures_in(config, ledger, known.spec, clock.now, _dictionary(state.get("failures", {}))),
        answers=tuple(
            (said.pop("now"), Answers(**said | {"until": float(said["until"])})) for said in state["answers"]
        ),
    )


def _known(config: BanditConfig, part: Mapping[str, Any], ledger: Ledger, clock: Clock, number: int) -> State:
    """Return what was known of rewards, or of an outcome as if it were the reward."""
    history, (spec, last_fit) = ledger.told[0], _spec(config, part)
    spec, summaries, compared = with_chosen_memory(config, spec, history)
    surrogate = config.surrogate(spec).at(clock.now)
    counting = spec.counted(history.rows(slice(ledger.num_forgotten, ledger.num_learned)))
    if len(counting.X):
        dictionaries = [_dictionary(each) for each in (part, *part.get("stages", ()))]
        surrogate = surrogate.restored(counting, *cast(list[Selection], dictionaries))
    known = {"summaries": summaries, "compared": compared, "last_fit": last_fit}
    return State(ledger, clock, surrogate, spec, number, **known, predictions=Predictions.restored(part["residuals"]))


def _outcome(config: BanditConfig, known: State, place: int, part: Mapping[str, Any]) -> State:
    """Return what was known of the outcome in a column of the history, given what was known of rewards."""
    own, history = config.of_outcomes[place], known.ledger.told[0]
    told = measured_of(config, own, history, place)
    num_forgotten = len(measured_of(config, own, history.rows(slice(known.ledger.num_forgotten)), place).X)
    ledger = Ledger.restored(told, Ledger.empty(own.candidates.example).pending, 0, len(told.X), num_forgotten)
    return _known(own, part, ledger, known.clock if own.has_clock else own.clock, known.round)


def _spec(config: BanditConfig, part: Mapping[str, Any]) -> tuple[SurrogateSpec, LastFit]:
    """Return what was taken for true, under the prior that was fitted if one was, and when that was."""
    if config.learning is None:
        return config.spec, NEVER
    saved, given = part["prior"], config.learning.mean
    kernel = deepcopy(config.start.kernel)
    kernel.load_state_dict({name: value.double() for name, value in saved["kernel"].items()})
    prior = Prior(kernel, saved["regularization"], saved["mean"] if given is None else given, saved["floor"])
    memory = config.memory if saved["memory"] is None else rebuild("memory", saved["memory"])
    return config.spec_of(prior, memory), LastFit(saved["number"], saved["counted"], tuple(saved["end"]))


def _dictionary(part: Mapping[str, Any]) -> Selection | None:
    """Return the dictionary of a surrogate, if it was saved."""
    if "inducing_points" not in part:
        return None
    points = part["inducing_points"]
    return Selection(points, points.new_ones(len(points)), None, part["dictionary_weights"])
