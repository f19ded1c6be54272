"""The file of what is saved: a line that says what it is, a line of JSON about it, and the content with a checksum."""

import hashlib
import json
import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import DamagedFileError, InputError, StateMismatchError
from torch_kbandits.files import checked_path, read_whole, write_whole
from torch_kbandits.version import __version__

#: Version of the layout of these files, and of what they hold.
FILE_FORMAT = 3

_FIRST_WORDS = b"torch_kbandits "
_LONGEST_HEADER = 2**16
_ADVICE = "Take an earlier copy, or tell the history anew."
#: Of tensors, by the names that files have for them.
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.float32, torch.int64, torch.int32, torch.bool, torch.uint8)
}


def write(path: str | PathLike[str], kind: str, content: Mapping[str, Any], **about: Any) -> None:
    """Write a file whole or not at all.

    The content is a line of JSON, and then the numbers of its tensors, in order: reading it runs nothing that a file
    says, and makes no more numbers than the file has.

    Args:
        path: of the file.
        kind: what it is, one word.
        content: tensors, numbers, strings, and lists, tuples and dictionaries of these; tuples are read as lists.
        about: what the second line says for people who look into the file.

    Raises:
        FileError: if it cannot be written; the old file is as it was then.
        InputError: if the content has something else.
    """
    tensors = list[bytes]()
    line = json.dumps(_packed("the content", content, tensors)).encode()
    body = b"\n".join([line, b"".join(tensors)])
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": FILE_FORMAT, "version": __version__, **about, "bytes": len(body), "sha256": digest}
    write_whole(path, b"\n".join([_FIRST_WORDS + kind.encode(), json.dumps(header).encode(), body]))


def read(path: str | PathLike[str], kind: str) -> dict[str, Any]:
    """Return the content of a file that ``write`` wrote, its tensors on the CPU.

    Raises:
        FileError: if it cannot be read.
        DamagedFileError: if it is of another kind, cut or changed.
        StateMismatchError: if it is of another format.
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
    line, _, numbers = body.partition(b"\n")
    try:
        content, end = _unpacked(json.loads(line), numbers, 0)
        if not isinstance(content, dict) or end != len(numbers):
            raise ValueError("its content is of another kind")
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{found!r} holds no {kind}: {error}. {_ADVICE}") from error
    return content


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


def _unpacked(value: Any, numbers: bytes, start: int) -> tuple[Any, int]:
    """Return what ``_packed`` was given, and where the bytes of its tensors end, which begin at a place."""
    if isinstance(value, list):
        parts = []
        for each in value:
            part, start = _unpacked(each, numbers, start)
            parts.append(part)
        return parts, start
    if not isinstance(value, dict):
        return value, start
    if "dict" in value:
        keys = [key for key, _ in value["dict"]]
        parts, start = _unpacked([part for _, part in value["dict"]], numbers, start)
        return dict(zip(keys, parts, strict=True)), start
    dtype, shape = _DTYPES[value["tensor"]], [checks.non_negative_integer("a size", each) for each in value["shape"]]
    stop = start + math.prod(shape) * dtype.itemsize
    if stop > len(numbers):
        raise ValueError("a tensor has more numbers than the file")
    if stop == start:
        return torch.empty(shape, dtype=dtype, device="cpu"), stop
    return torch.from_numpy(np.frombuffer(numbers[start:stop], np.uint8).copy()).view(dtype).reshape(shape), stop


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
