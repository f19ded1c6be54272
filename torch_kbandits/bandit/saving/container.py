"""The file of a saved bandit: a line that says what it is, a line of JSON about it, and the content with a checksum."""

import hashlib
import io
import json
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.bandit.saving.schema import check_archive, check_content
from torch_kbandits.errors import DamagedFileError, InputError, StateMismatchError
from torch_kbandits.files import checked_path, read_whole, write_whole
from torch_kbandits.version import __version__

#: Version of the layout of these files, and of what they hold.
FILE_FORMAT = 2

_FIRST_WORDS = b"torch_kbandits "
_LONGEST_HEADER = 2**16


def write(path: str | PathLike[str], kind: str, content: Mapping[str, Any], **about: Any) -> None:
    """Write a file whole or not at all.

    The content is in torch's format of tensors, numbers and strings, which is read without running anything that a
    file says (``torch.load(weights_only=True)``). Safetensors would need a package more, and JSON beside it for all
    that is no tensor.

    Args:
        path: of the file.
        kind: what it is, one word.
        content: tensors, numbers, strings, and lists, tuples and dictionaries of these.
        about: what the second line says for people who look into the file.

    Raises:
        FileError: if it cannot be written; the old file is as it was then.
        InputError: if the content has something else.
    """
    stream = io.BytesIO()
    torch.save(_plain("the content", content, set()), stream)
    body = stream.getvalue()
    header = {
        "format": FILE_FORMAT,
        "version": __version__,
        **about,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    write_whole(path, b"".join([_FIRST_WORDS, kind.encode(), b"\n", json.dumps(header).encode(), b"\n", body]))


def read(path: str | PathLike[str], kind: str) -> dict[str, Any]:
    """Return the content of a file that ``write`` wrote, its tensors on the CPU.

    Raises:
        FileError: if it cannot be read.
        DamagedFileError: if it is of another kind, cut or changed.
        StateMismatchError: if it is of a newer format.
    """
    found = checked_path(path)
    first, _, rest = read_whole(found).partition(b"\n")
    if not first.startswith(_FIRST_WORDS):
        raise DamagedFileError(f"{found!r} {_what_it_is(first, rest)}")
    if first != _FIRST_WORDS + kind.encode():
        there = first.removeprefix(_FIRST_WORDS).decode(errors="replace")
        raise DamagedFileError(f"{found!r} holds a {there[:40]} and not a {kind}: give the path of another file.")
    line, _, body = rest.partition(b"\n")
    try:
        header = json.loads(line[:_LONGEST_HEADER])
        layout, wrote, size, digest = (header[key] for key in ("format", "version", "bytes", "sha256"))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DamagedFileError(
            f"{found!r} is damaged: its second line is not the one that was written. {_ADVICE}"
        ) from None
    if layout != FILE_FORMAT:
        raise StateMismatchError(
            f"{found!r} has format {layout}, written by torch_kbandits {wrote}; this is version {__version__}, which "
            f"reads format {FILE_FORMAT}: load it with torch_kbandits {wrote}"
            + (" or newer." if isinstance(layout, int) and layout > FILE_FORMAT else ".")
        )
    if len(body) != size:
        raise DamagedFileError(f"{found!r} is cut or has grown: it has {len(body)} of {size} bytes. {_ADVICE}")
    if hashlib.sha256(body).hexdigest() != digest:
        raise DamagedFileError(f"{found!r} is damaged: its content is not the one that was written. {_ADVICE}")
    try:
        room = check_archive(body)
        content = torch.load(io.BytesIO(body), weights_only=True, map_location="cpu")
    except Exception as error:  # torch raises many kinds for what is not its own
        raise DamagedFileError(f"{found!r} holds what this version of torch does not read: {error}") from error
    if not isinstance(content, dict):
        raise DamagedFileError(f"{found!r} holds no {kind}: its content is of another kind.")
    try:
        check_content(content, room)
    except InputError as error:
        raise DamagedFileError(f"{found!r} holds what no {kind} has: {error} {_ADVICE}") from None
    return content


def _plain(name: str, value: Any, storages: set[int]) -> Any:
    """Return a value of those types alone that reading allows: a float of NumPy is written as one of Python.

    Args:
        name: for the message of an error.
        value: to be written.
        storages: of the tensors before it; a tensor gets one of its own, of the size of what it shows.
    """
    if value is None:
        return value
    if isinstance(value, Tensor):
        value, storage = value.detach(), value.untyped_storage()
        is_own = storage.nbytes() == value.nbytes and storage.data_ptr() not in storages
        storages.add(storage.data_ptr())
        return value if is_own else value.clone(memory_format=torch.contiguous_format)
    if isinstance(value, Mapping):
        return {_plain("a key", key, storages): _plain(f"{name}.{key}", part, storages) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_plain(f"{name}.{number}", part, storages) for number, part in enumerate(value)]
        return parts if isinstance(value, list) else tuple(parts)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    raise InputError(f"{name} is a {type(value).__name__}, and a file holds tensors, numbers and strings only.")


_ADVICE = "Take an earlier copy, or tell the history anew."


def _what_it_is(first: bytes, rest: bytes) -> str:
    """Say what a file is that is none of ours."""
    if not first and not rest:
        return f"is empty. {_ADVICE}"
    if first.startswith((b"PK\x03\x04", b"\x80")):
        return (
            "was not written by bandit.save. If torch.save wrote it, make the bandit as it was and "
            "bandit.load_state_dict(torch.load(path, weights_only=True))."
        )
    return f"was not written by bandit.save, or its beginning is lost. {_ADVICE}"
