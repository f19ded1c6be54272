"""Bandits to files and back: their state, and what they are made of where that can be made again."""

from importlib import import_module
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import torch

from torch_kbandits import checks
from torch_kbandits.bandit.saving.container import read, write
from torch_kbandits.bandit.values import describe, rebuild
from torch_kbandits.errors import DamagedFileError, InputError, KernelBanditError, StateMismatchError
from torch_kbandits.version import __version__

#: What the first line of a file calls it.
_KIND = "bandit"
#: The parts of a file.
_PARTS = {"version": str, "class": str, "device": str, "state": dict, "pieces": dict}

_Bandit = TypeVar("_Bandit")


def save(bandit: Any, path: str | PathLike[str], arguments: dict[str, Any]) -> None:
    """Write a bandit to a file, given the arguments that make it again; see ``Bandit.save``."""
    kind, device = type(bandit), str(bandit.candidates.device)
    about = {"version": __version__, "class": _name(kind), "device": device}
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
    bandit: Any = into
    if into is None:
        bandit = _made(kind, content["class"][:80], content["pieces"], device or content["device"], file)
    try:
        bandit.load_state_dict(content["state"])
    except StateMismatchError as error:
        raise StateMismatchError(f"{file}, by torch_kbandits {content['version'][:40]}: {error}") from error
    return bandit


def _made(kind: type[_Bandit], name: str, pieces: dict[str, Any], device: torch.device | str, file: str) -> _Bandit:
    """Return a new bandit of what was described."""
    algorithms = import_module(f"{__name__.partition('.')[0]}.algorithms")
    named: Any = getattr(algorithms, name) if name in algorithms.__all__ else kind
    if _name(named) == name and not issubclass(named, kind):
        raise StateMismatchError(f"{file} holds a {name}, and {kind.__name__}.load takes none: use {name}.load.")
    advice = f"Make the bandit as it was and give it: {kind.__name__}.load(path, into=bandit)."
    if _name(named) != name:
        raise StateMismatchError(f"{file}: the {name} cannot be made again: its class is not known here. {advice}")
    try:
        place = torch.empty(0, device=device).device
        if place.type == "meta":
            raise RuntimeError("it has no numbers")
    except (RuntimeError, AssertionError) as error:
        given = checks.shown(str(device))
        raise InputError(f"device={given} cannot be used here ({error}): give one, device='cpu'.") from None
    try:
        return cast(Any, named)._made_of({word: rebuild(word, piece, place) for word, piece in pieces.items()})
    except KernelBanditError as error:
        why = str(error).rstrip(".")
        raise StateMismatchError(f"{file}: the {name} cannot be made again: {why}. {advice}") from error
    except Exception as error:  # what the file says led to it
        raise DamagedFileError(f"{file} is damaged: what its {name} is made of does not fit: {error!r}.") from error


def _name(kind: type) -> str:
    """Return what files call a class: those of this package by their names alone."""
    is_ours = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
    return kind.__name__ if is_ours else f"{kind.__module__}.{kind.__qualname__}"
