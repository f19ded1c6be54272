"""Requests: JSON within limits, what a bandit's methods take in place of it, and why one is refused."""

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditError

#: Points that may be asked for at a time, and letters of a key.
LARGEST_BATCH, _LONGEST_KEY = 1000, 200
#: The fields by which plays are told, and those of requests that have any.
_PLAYS = ("ids", "actions", "rows", "context", "candidates")
_FIELDS = {
    "ask": ("q", "context", "candidates", "time", "distinct", "exclude", "key"),
    "tell": (*_PLAYS, "y", "time", "outcomes", "failed", "noise", "sem", "key"),
    "forget": ("ids", "actions", "context", "all", "key"),
    "answer": ("points", "y", "variance", "time", "key"),
    "questions": ("time",),
    "recommend": ("context", "candidates", "time"),
    "posterior": ("points", "context"),
    "stop": ("regret", "confidence", "no_better_by", "beta", "context", "candidates", "time"),
}


class RefusedError(KernelBanditError):
    """A request is refused; nothing changed. The message says why and what to do; ``status`` is that of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body, nothing for an empty one; ``RefusedError`` if there is none within limits."""
    try:
        found = json.loads(body.decode() or "{}", parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:  # also where it is no UTF-8
        raise RefusedError(f"The body is no JSON: {str(error)[:200]}.") from None
    if not isinstance(found, dict):
        raise RefusedError(f"The body must be a JSON object, got {checks.describe(found)}.")
    return found


def identified(operation: str, request: Mapping[str, Any], words: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return by what a request is known when it comes again, its ids or its key if any, and a digest of the rest."""
    key, known = request.get("key"), {name: value for name, value in request.items() if name != "key"}
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY):
        raise InputError(f"key must be a text of 1 to {_LONGEST_KEY} letters, got {checks.describe(key)}.")
    name = f"ids {_digest(sorted(words['ids']))}" if "ids" in words else None if key is None else f"key {key}"
    return name, _digest([operation, known])


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
    """Return the arguments of a bandit's method, which checks numbers itself; what is not given is left out."""
    for name in request:
        checks.one_of("a field", name, _FIELDS.get(operation, ()))
    words = {name: value for name, value in request.items() if value is not None and name != "key"}
    if "time" in words:
        words["time"] = time_of(words)
    if operation == "ask":
        q = words["q"] = request.get("q", 1)
        if q is not None and checks.positive_integer("q", q) > LARGEST_BATCH:
            raise InputError(f"q must be at most {LARGEST_BATCH:,} in a request, got {checks.shown(q)}.")
    if operation == "posterior" and "points" not in words:
        raise InputError("points is missing: give a list of points, each a list of numbers.")
    if operation == "answer":
        if missing := [name for name in ("points", "y", "variance") if name not in words]:
            raise InputError(f"{missing[0]} is missing: give points, their values y, and the variance of their noise.")
        words["X"], words["Y"] = words.pop("points"), words.pop("y")
    if operation not in ("tell", "forget"):
        return words
    if operation == "forget" and words.get("all") is True and len(words) == 1:
        return {}
    if len({"ids", "actions", "rows"} & words.keys()) != 1 or {"ids", "context"} <= words.keys() or "all" in words:
        which = "actions, or rows or names of them," if operation == "tell" else "actions"
        raise InputError(f'Give ids, or {which} and the context if there are any, or "all": true alone to forget all.')
    if "actions" in words:
        words["x"] = words.pop("actions")
    elif "ids" in words:
        ids = words["ids"] = words["ids"] if isinstance(words["ids"], list) else [words["ids"]]
        if not ids or any(type(each) is not int for each in ids) or len({*ids}) < len(ids):
            raise InputError(f"ids must be one or more different whole numbers, as of ask; got {checks.shown(ids)}.")
    if operation == "tell" and "y" not in words and not words.get("failed"):
        raise InputError('y is missing: give a reward for each point, or "failed": true.')
    return words


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
