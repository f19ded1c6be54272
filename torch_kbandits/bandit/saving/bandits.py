"""Bandits to files and back: their state, and what they are made of where that can be made again."""

from collections.abc import Mapping
from importlib import import_module
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.saving.container import read, write
from torch_kbandits.bandit.saving.values import NotRebuildableError, describe, rebuild
from torch_kbandits.errors import DamagedFileError, InputError, KernelBanditError, StateMismatchError
from torch_kbandits.version import __version__

#: What the first line of a file calls it.
_KIND = "bandit"
#: Points at which a kernel is compared with the one made again.
_COMPARED = 16
#: The parts of a file.
_PARTS = {"version": str, "class": str, "state": dict, "pieces": dict}


_Bandit = TypeVar("_Bandit")


def save(bandit: Any, path: str | PathLike[str], words: Mapping[str, Any], points: Tensor) -> None:
    """Write a bandit to a file; see ``Bandit.save``.

    Given are the words that make it again, and points (n, d) at some of which its kernel is compared with that one.
    """
    kind, pieces = type(bandit), dict[str, Any]()
    try:
        if not _is_ours(kind):
            raise NotRebuildableError(f"the class {kind.__name__} is not known to it")
        described = {name: describe(name, word, points[:_COMPARED]) for name, word in words.items()}
        pieces = {"words": described, "device": str(points.device)}
    except NotRebuildableError as error:
        pieces = {"reason": str(error)}
    content = {"version": __version__, "class": kind.__name__, "state": bandit.state_dict(), "pieces": pieces}
    write(path, _KIND, content, bandit=kind.__name__, rewards=bandit.num_observations)


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
    bandit: Any = _made(kind, content["class"][:40], content["pieces"], device, file) if into is None else into
    try:
        bandit.load_state_dict(content["state"])
    except StateMismatchError as error:
        raise StateMismatchError(f"{file}, by torch_kbandits {content['version'][:40]}: {error}") from error
    return bandit


def _made(
    kind: type[_Bandit], name: str, pieces: dict[str, Any], device: torch.device | str | None, file: str
) -> _Bandit:
    """Return a new bandit of what was described."""
    named = _class_of(kind, name)
    if "reason" not in pieces and named is None:
        raise StateMismatchError(f"{file} holds a {name}, and {kind.__name__}.load takes none: use {name}.load.")
    advice = f"Make the bandit as it was and give it: {kind.__name__}.load(path, into=bandit)."
    if "reason" in pieces or named is None:
        reason = checks.shown(pieces["reason"])[1:-1]
        raise StateMismatchError(f"{file} has the state of its {name} and not what makes it again: {reason}. {advice}")
    given = str(pieces.get("device") if device is None else device)
    try:
        if (place := torch.empty(0, device=given).device).type == "meta":
            raise RuntimeError("it has no numbers")
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device={checks.shown(given)} cannot be used here ({error}): give one, device='cpu'."
        ) from None
    try:
        return cast(Any, named)._made_of({word: rebuild(value, place) for word, value in pieces["words"].items()})
    except KernelBanditError as error:
        raise StateMismatchError(f"{file}: the {name} cannot be made again: {error} {advice}") from error
    except Exception as error:  # what the file says led to it
        raise DamagedFileError(f"{file} is damaged: what its {name} is made of does not fit: {error!r}.") from error


def _class_of(kind: type[_Bandit], name: str) -> type[_Bandit] | None:
    """Return the class of this package of a name that is this one or one below it; None if there is none."""
    algorithms = import_module(f"{__name__.partition('.')[0]}.algorithms")
    found = getattr(algorithms, name) if name in algorithms.__all__ else kind
    return found if found.__name__ == name and issubclass(found, kind) and _is_ours(found) else None


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]
