"""Requests: JSON within limits, and what a bandit's methods take in place of it."""

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.serving.errors import MalformedRequestError

#: Points that may be asked for at a time.
LARGEST_BATCH = 1000
#: Letters of a key.
LONGEST_KEY = 200

#: The fields of requests.
_FIELDS = {
    "ask": ("q", "context", "candidates", "time", "key"),
    "tell": ("ids", "actions", "context", "y", "time", "outcomes", "failed", "key"),
    "forget": ("ids", "actions", "context", "all", "key"),
    "recommend": ("context", "candidates", "time"),
    "posterior": ("points", "context"),
}


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; nothing for an empty one.

    Raises:
        MalformedRequestError: if it is none, nests too deep, or has a number beyond a float.
    """
    try:
        found = json.loads(body.decode() or "{}", parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise MalformedRequestError("The body nests lists and objects too deep.") from None
    except ValueError as error:  # also where it is no UTF-8
        raise MalformedRequestError(f"The body is no JSON: {str(error)[:200]}.") from None
    if not isinstance(found, dict):
        raise MalformedRequestError(f"The body must be a JSON object, got {checks.describe(found)}.")
    return found


def key_of(request: Mapping[str, Any], words: Mapping[str, Any]) -> str | None:
    """Return by what a request is known when it comes again: the ids that it is about, or its key; None without."""
    key = request.get("key")
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY):
        raise InputError(f"key must be a text of 1 to {LONGEST_KEY} letters, got {checks.describe(key)}.")
    return f"ids {_digest(sorted(words['ids']))}" if "ids" in words else None if key is None else f"key {key}"


def fingerprint(operation: str, request: Mapping[str, Any]) -> str:
    """Return what tells a request from others, whatever the order of its fields; the key is left out."""
    return _digest([operation, {name: value for name, value in request.items() if name != "key"}])


def _digest(value: Any) -> str:
    try:
        content = json.dumps(value, sort_keys=True, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:  # in a call from Python
        raise InputError(f"A request must be what JSON holds: {str(error)[:200]}.") from None
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def time_of(request: Mapping[str, Any]) -> Any:
    """Return the time of a request, a number or a date, or of each of its points; None without."""
    time = request.get("time")
    return [_date(each) for each in time] if isinstance(time, list) else None if time is None else _date(time)


def arguments(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a bandit's method, which checks numbers itself; what is not given is left out.

    Raises:
        InputError: if a field is unknown, or the fields do not fit each other.
    """
    for name in request:
        checks.one_of("a field", name, _FIELDS.get(operation, ()))
    words = {name: value for name, value in request.items() if value is not None and name != "key"}
    if "time" in words:
        words["time"] = time_of(words)
    if operation == "ask":
        q = request.get("q", 1)
        if q is not None and checks.positive_integer("q", q) > LARGEST_BATCH:
            raise InputError(f"q must be at most {LARGEST_BATCH:,} in a request, got {checks.shown(q)}.")
        return words | {"q": q}
    if operation == "posterior" and "points" not in words:
        raise InputError("points is missing: give a list of points, each a list of numbers.")
    if operation not in ("tell", "forget"):
        return words
    if operation == "forget" and words.get("all") is True and len(words) == 1:
        return {}
    if ("ids" in words) == ("actions" in words) or {"ids", "context"} <= words.keys() or "all" in words:
        raise InputError('Give ids, or actions and the context if there are any, or "all": true alone to forget all.')
    if "actions" in words:
        words["x"] = words.pop("actions")
    else:
        ids = words["ids"] = words["ids"] if isinstance(words["ids"], list) else [words["ids"]]
        if not ids or any(type(each) is not int for each in ids) or len({*ids}) < len(ids):
            given = checks.shown(ids)
            raise InputError(f"ids must be one or more different whole numbers, as ask answered; got {given}.")
    if operation == "tell" and "y" not in words and not words.get("failed"):
        raise InputError('y is missing: give a reward for each point, or "failed": true.')
    return words


def plain(value: Any) -> Any:
    """Return a value as JSON has it: tensors as lists, what JSON lacks as text, numbers that are none as null."""
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _date(time: Any) -> Any:
    """Return a number as it is, and the date of a text."""
    try:
        return time if type(time) in (int, float) else datetime.fromisoformat(time)
    except (TypeError, ValueError):
        raise InputError(f"time must be a number or a date in ISO 8601, got {checks.shown(time)}.") from None


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:40]} is beyond what a float holds")
    return number
