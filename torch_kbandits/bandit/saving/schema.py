"""What files may hold, checked before anything is made of it: few bytes must not become many, nor take long to read."""

import io
import math
import zipfile
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Containers within each other.
_DEEPEST = 200
#: Columns of points, and layers of a kernel.
_MOST_COLUMNS, _MOST_LAYERS = 10**6, 1_000
#: Numbers that the constructors of a kernel may make beyond those that the file has.
_SPARE = 10**6
#: Words of the constructors of pieces by which these make tensors before anything else is known.
_COLUMNS = ("action_dim", "context_dim", "dimension")


def check_archive(body: bytes) -> int:
    """Return how many bytes the parts of an archive by ``torch.save`` have.

    Raises:
        InputError: if it is none, or is packed: torch writes them as they are, and what is packed may become anything.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, ValueError, EOFError, OSError) as error:
        raise InputError(str(error)) from None
    room = sum(part.file_size for part in parts)
    if room > len(body) or any(part.compress_type != zipfile.ZIP_STORED for part in parts):
        raise InputError("its parts are packed, which torch.save does not do")
    return room


def check_content(content: Any, room: int) -> None:
    """Check that a content is plain: tensors, numbers and strings, in lists, tuples and dictionaries.

    Args:
        content: of a file.
        room: bytes that the file has.

    Raises:
        InputError: if a part is of another kind, occurs in two places, or tensors have more numbers than the file.
    """
    seen, parts = set[int](), [("the content", content, 0)]
    while parts:
        name, value, depth = parts.pop()
        if isinstance(value, Tensor):
            room -= checks.own_numbers(name, value).nbytes
            if room < 0:
                raise InputError(f"{name} has more numbers than the file.")
        elif type(value) in (dict, list, tuple):
            if (value and id(value) in seen) or depth == _DEEPEST:
                raise InputError(f"{name} occurs in two places, or in more than {_DEEPEST} others.")
            seen.add(id(value))
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            parts += [(f"{name}.{checks.shown(key)}", part, depth + 1) for key, part in inner]
        elif isinstance(value, int):
            checks.whole_number(name, int(value))
        elif not (value is None or isinstance(value, (float, str))):
            raise InputError(f"{name} is {checks.describe(value)}.")


def check_bandit(content: Mapping[str, Any]) -> None:
    """Check that the content of a bandit's file has its parts.

    Raises:
        InputError: if one is missing or of another kind.
    """
    for key, kind in (("version", str), ("class", str), ("state", dict), ("pieces", dict)):
        if key not in content:
            raise InputError(f"{key!r} is missing.")
        _kind(key, content[key], kind)
    if "reason" in content["pieces"]:
        _kind("pieces.reason", content["pieces"]["reason"], str)


def check_pieces(pieces: Mapping[str, Any]) -> None:
    """Check what a bandit is to be made of, as ``values.describe`` describes it, and where.

    Raises:
        InputError: if a part is of another kind or size than what can be made again.
    """
    _kind("device", pieces.get("device"), str)
    _kind("words", pieces.get("words"), dict)
    for name, word in pieces["words"].items():
        _check_description(name, word)


def check_kernel(description: Mapping[str, Any]) -> None:
    """Check a kernel as ``kernels.describe`` describes it: nothing that it makes may be larger than what the file has.

    Raises:
        InputError: if it does not fit.
    """
    for key, kind in (("root", dict), ("tensors", dict), ("fixed", list), ("training", bool)):
        _kind(key, description.get(key), kind)
    spare = _SPARE
    for name, tensor in description["tensors"].items():
        spare += checks.own_numbers(name, tensor).numel()
    parts = [description["root"]]
    while parts:
        part = parts.pop()
        _kind("a part of a kernel", part, dict)
        _kind("the number of a part of a kernel", part.get("number"), int)
        if "kernel" not in part:
            continue
        for key, kind in (("kernel", str), ("words", dict), ("parts", list), ("constraints", dict), ("priors", dict)):
            _kind(f"{key} of a part of a kernel", part.get(key), kind)
        spare -= _made_numbers(part["words"])
        if spare < 0:
            raise InputError(f"its kernel is to have more numbers than there are: {checks.shown(part['words'])}.")
        for child in part["parts"]:
            parts += child if isinstance(child, list) else [child]


def _made_numbers(words: Mapping[str, Any]) -> int:
    """Return how many numbers the constructor of a kernel makes at most."""
    sizes = [words.get("ard_num_dims", 1), words.get("num_mixtures", 1), *words.get("batch_shape", ())]
    for size in (*sizes, words.get("depth", 1)):
        checks.non_negative_integer("the size of a kernel", size)
    if words.get("depth", 1) > _MOST_LAYERS:
        raise InputError(f"a kernel may have {_MOST_LAYERS} layers, got {words['depth']}.")
    return math.prod(sizes)


def _check_description(name: str, value: Any) -> None:
    """Check one value as ``values.describe`` describes it."""
    if name in _COLUMNS and isinstance(value, int) and value > _MOST_COLUMNS:
        raise InputError(f"{name} must be at most {_MOST_COLUMNS}, got {value}.")
    if not isinstance(value, dict):
        return
    if "covariance" in value:
        _kind(name, value["covariance"], dict)
        check_kernel(value["covariance"])
    elif "list" in value or "tuple" in value:
        parts = value["list"] if "list" in value else value["tuple"]
        _kind(name, parts, list)
        for part in parts:
            _check_description(name, part)
    elif "dtype" in value:
        _kind(name, value["dtype"], str)
    else:
        _kind(f"{name}.is", value.get("is"), str)
        _kind(f"{name}.words", value.get("words"), dict)
        for key, word in value["words"].items():
            _check_description(key, word)


def _kind(name: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, got {checks.describe(value)}.")
