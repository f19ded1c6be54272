"""The files of what is saved: a line that says what it is, and the content as a line of JSON and numbers of tensors."""

import json
import math
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from io import BytesIO
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.values import describe, rebuild
from torch_kbandits.errors import DamagedFileError, InputError, KernelBanditError, StateMismatchError
from torch_kbandits.files import checked_path, read_whole, write_whole
from torch_kbandits.version import __version__

#: Version of the layout of these files, and of what they hold.
FILE_FORMAT = 4

_LONGEST_LINE = 200
_ADVICE = "Take an earlier copy, or tell the history anew."
#: Of tensors, by the names that files have for them.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8)
}
#: What the first line of the file of a bandit calls it.
_KIND = "bandit"
#: The parts of a file.
_PARTS = {"version": str, "class": str, "device": str, "state": dict, "pieces": dict}

_Bandit = TypeVar("_Bandit")


def write(path: str | PathLike[str], kind: str, content: Mapping[str, Any]) -> None:
    """Write a file whole or not at all.

    Reading it runs nothing that a file says, and makes no more numbers than the file has. Its first line has the
    version, the kind, the format and a checksum of the rest.

    Args:
        path: of the file.
        kind: what it is, one word.
        content: tensors, numbers, strings, and lists, tuples and dictionaries of these; tuples are read as lists.

    Raises:
        FileError: if it cannot be written; the old file is as it was then.
        InputError: if the content has something else.
    """
    body = _body(content)
    first = f"torch_kbandits {__version__} {kind} {FILE_FORMAT} {sha256(body).hexdigest()}\n"
    write_whole(path, first.encode() + body)


def read(path: str | PathLike[str], kind: str) -> dict[str, Any]:
    """Return the content of a file that ``write`` wrote, its tensors on the CPU.

    Raises:
        FileError: if it cannot be read.
        DamagedFileError: if it is of another kind, cut or changed.
        StateMismatchError: if it is of another format.
    """
    found = checked_path(path)
    first, _, body = read_whole(found).partition(b"\n")
    words = first[:_LONGEST_LINE].decode(errors="replace").split(" ")
    if words[0] != "torch_kbandits" or len(words) != 5:
        raise DamagedFileError(
            f"{found!r} was not written by bandit.save, or its beginning is lost. {_ADVICE} A state that torch.save "
            "wrote is for bandit.load_state_dict(torch.load(path, weights_only=True))."
        )
    _, wrote, there, layout, digest = words
    if there != kind:
        raise DamagedFileError(f"{found!r} holds a {there} and not a {kind}: give the path of another file.")
    if layout != str(FILE_FORMAT):
        raise StateMismatchError(
            f"{found!r} has format {layout}, written by torch_kbandits {wrote}; this is version {__version__}, which "
            f"reads format {FILE_FORMAT}: load it with torch_kbandits {wrote} or newer."
        )
    if sha256(body).hexdigest() != digest:
        raise DamagedFileError(f"{found!r} is cut or changed: its content is not the one that was written. {_ADVICE}")
    line, _, rest = body.partition(b"\n")
    numbers = BytesIO(rest)
    try:
        content = _unpacked(json.loads(line), numbers)
        if not isinstance(content, dict) or numbers.read(1):
            raise ValueError("its content is of another kind")
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{found!r} holds no {kind}: {error}. {_ADVICE}") from error
    return content


def checksum(content: Mapping[str, Any]) -> str:
    """Return a checksum of a content, the same before and after it was in a file.

    Raises:
        InputError: if it has something that no file holds.
    """
    return sha256(_body(content)).hexdigest()


def _body(content: Mapping[str, Any]) -> bytes:
    tensors = list[bytes]()
    line = json.dumps(_packed("the content", content, tensors)).encode()
    return b"\n".join([line, b"".join(tensors)])


def _packed(name: str, value: Any, tensors: list[bytes]) -> Any:
    """Return a value as JSON has it, and append the bytes of its tensors; a float of NumPy is one of Python."""
    if value is None:
        return None
    if isinstance(value, Tensor):
        checks.in_memory(name, value)
        checks.one_of(f"the dtype of {name}", dtype := str(value.dtype).removeprefix("torch."), _DTYPES)
        tensors.append(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return {"tensor": dtype, "shape": list(value.shape)}
    if isinstance(value, Mapping):
        pairs = value.items()
        return {"dict": [[_packed("a key", key, []), _packed(f"{name}.{key}", part, tensors)] for key, part in pairs]}
    if isinstance(value, (list, tuple)):
        return [_packed(f"{name}.{number}", part, tensors) for number, part in enumerate(value)]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise InputError(f"{name} is a {type(value).__name__}, and a file holds tensors, numbers and strings only.")


def _unpacked(value: Any, numbers: BytesIO) -> Any:
    """Return what ``_packed`` was given, with the numbers of its tensors, which come in order."""
    if isinstance(value, list):
        return [_unpacked(each, numbers) for each in value]
    if not isinstance(value, dict):
        return value
    if "dict" in value:
        return {key: _unpacked(part, numbers) for key, part in value["dict"]}
    dtype, shape = _DTYPES[value["tensor"]], [checks.non_negative_integer("a size", each) for each in value["shape"]]
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype, device="cpu")
    found = np.frombuffer(numbers.read(size), np.uint8).copy()
    if len(found) < size:
        raise ValueError("a tensor has more numbers than the file")
    return torch.from_numpy(found).view(dtype).reshape(shape)


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
