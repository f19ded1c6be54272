"""Requests: JSON within limits, and what a bandit's methods take in place of it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.serving.refusals import MalformedRequestError

#: Points that may be asked for at a time.
LARGEST_BATCH = 1000
#: Letters of a key.
LONGEST_KEY = 200
#: Lists and objects within each other.
DEEPEST = 8

#: The fields of requests.
_FIELDS = {
    "ask": ("q", "context", "candidates", "time", "key"),
    "tell": ("ids", "actions", "context", "y", "time", "outcomes", "failed", "key"),
    "forget": ("ids", "actions", "context", "all", "key"),
    "recommend": ("context", "candidates", "time"),
    "belief": ("points", "context"),
}
#: Which of them are numbers, and whether these must be in lists of lists.
_VECTORS = {"context": 1, "candidates": 2, "actions": 2, "points": 2}


def parsed(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; nothing for an empty one.

    Raises:
        MalformedRequestError: if it is none, nests too deep, names something twice, or has a number beyond a float.
    """
    if not body.strip():
        return {}
    try:
        found = json.loads(
            body.decode(), parse_constant=_no_number, parse_float=_float, object_pairs_hook=_without_repetition
        )
        _require_shallow(found, DEEPEST)
    except RecursionError:
        raise MalformedRequestError(f"The body nests lists and objects deeper than {DEEPEST}.") from None
    except UnicodeDecodeError as error:
        raise MalformedRequestError(f"The body is no UTF-8 at byte {error.start}.") from None
    except ValueError as error:
        raise MalformedRequestError(f"The body is no JSON: {str(error)[:200]}.") from None
    if not isinstance(found, dict):
        raise MalformedRequestError(f"The body must be a JSON object, got {checks.describe(found)}.")
    return found


def key_of(request: Mapping[str, Any]) -> str | None:
    """Return the key of a request, by which it is known when it comes again; None without."""
    key = request.get("key")
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY):
        raise InputError(f"key must be a text of 1 to {LONGEST_KEY} letters, got {checks.describe(key)}.")
    return key


def ids_of(request: Mapping[str, Any]) -> list[int] | None:
    """Return the ids of a request, at least one, all different; None without."""
    given = request.get("ids")
    if given is None:
        return None
    ids = given if isinstance(given, list) else [given]
    if not ids or any(type(each) is not int for each in ids) or len({*ids}) < len(ids):
        raise InputError(
            f"ids must be one or more different whole numbers, as ask answered; got {checks.shown(given)}."
        )
    return ids


def time_of(request: Mapping[str, Any]) -> Any:
    """Return the time of a request, a number or a date, or of each of its points; None without."""
    time = request.get("time")
    return [_date(each) for each in time] if isinstance(time, list) else _date(time)


def without_key(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request asks for."""
    return {name: value for name, value in request.items() if name != "key"}


@dataclass(frozen=True)
class Reader:
    """Turns the fields of requests into the arguments of a bandit's methods.

    Attributes:
        example: a point (1, d), of the dtype and device of all.
    """

    example: Tensor

    def words(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a method, or the points of which a belief is wanted; what is not given is left out.

        Raises:
            InputError: if a field is unknown or does not fit.
        """
        for name in request:
            if name not in (known := _FIELDS[operation]):
                near = checks.nearest_name(name, known)
                hint = f"did you mean {near!r}? " if near else ""
                raise InputError(f"{checks.shown(name)} is no field here: {hint}There are {', '.join(known)}.")
        given = {name: value for name, value in request.items() if value is not None}
        words = {name: self._vectors(name, given[name], least) for name, least in _VECTORS.items() if name in given}
        if "time" in given:
            words["time"] = time_of(given)
        if operation == "ask":
            q = request.get("q", 1)
            if q is not None and checks.positive_integer("q", q) > LARGEST_BATCH:
                raise InputError(f"q must be at most {LARGEST_BATCH:,} in a request, got {checks.shown(q)}.")
            return {"q": q} | words
        if operation == "forget" and "all" in given:
            if given["all"] is not True or len(request.keys() - {"all", "key"}):
                raise InputError('Give ids, or actions, or "all": true alone, to forget all that is pending.')
            return {}
        if operation == "belief" and "points" not in given:
            raise InputError("points is missing: give a list of points, each a list of numbers.")
        if operation in ("tell", "forget"):
            ids = ids_of(given)
            if (ids is None) == ("actions" not in given) or (ids is not None and "context" in given):
                raise InputError("Give ids, or actions and the context if there are any: an id stands for its point.")
            words |= {"x": words.pop("actions")} if ids is None else {"ids": ids}
        return words | _told(given) if operation == "tell" else words

    def _vectors(self, name: str, value: Any, least: int) -> Any:
        """Return a list of numbers, or of such lists, as a tensor; objects of named values as they are."""
        rows = value if isinstance(value, list) else [value]
        if rows and all(isinstance(each, dict) for each in rows):
            return value
        is_flat = bool(rows) and not isinstance(rows[0], list)
        parts = [rows] if is_flat else rows
        if (
            not isinstance(value, list)
            or not rows
            or (is_flat and least > 1)
            or not all(isinstance(row, list) and len(row) == len(parts[0]) for row in parts)
            or not all(type(each) in (int, float) for row in parts for each in row)
        ):
            kind = "a list of lists of numbers, of equal length" if least > 1 else "a list of numbers, or of such lists"
            raise InputError(f"{name} must be {kind}, or of objects with named values; got {checks.shown(value)}.")
        try:
            return torch.tensor(rows, dtype=torch.float64).to(self.example)
        except (OverflowError, RuntimeError):  # whole numbers of hundreds of digits
            raise InputError(f"{name} must have numbers that a float holds, got {checks.shown(value)}.") from None


def values_of(words: Mapping[str, Any], number: int) -> list[Any]:
    """Return what each of so many points is told, as JSON has it."""

    def part(value: Any, place: int) -> Any:
        if isinstance(value, Mapping):
            return {name: part(each, place) for name, each in value.items()}
        return value[place] if isinstance(value, Sequence) and len(value) == number else value

    told = [words.get(name) for name in ("y", "outcomes", "failed")]
    return [[part(value, place) for value in told] for place in range(number)]


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


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured, as ``tell`` takes it."""
    words: dict[str, Any] = {"y": _numbers("y", given["y"])} if "y" in given else {}
    if "outcomes" in given:
        if not isinstance(outcomes := given["outcomes"], dict):
            raise InputError(f"outcomes must be an object of names and numbers, got {checks.describe(outcomes)}.")
        words["outcomes"] = {name: _measured(f"outcomes.{name}", value) for name, value in outcomes.items()}
    if "failed" in given:
        checks.instance("failed", given["failed"], bool, "true or false")
        words["failed"] = given["failed"]
    if "y" not in words and not words.get("failed"):
        raise InputError('y is missing: give a reward for each point, or "failed": true.')
    return words


def _numbers(name: str, value: Any) -> float | list[float]:
    if isinstance(value, list) and value:
        return [_number(name, each) for each in value]
    return _number(name, value)


def _number(name: str, value: Any) -> float:
    """Return a finite number as a float; true is 1."""
    return checks.finite_number(name, int(value) if isinstance(value, bool) else value)


def _measured(name: str, value: Any) -> Any:
    """Return numbers, with None for what was not measured."""
    if isinstance(value, list) and value:
        return [None if each is None else _number(name, each) for each in value]
    return None if value is None else _number(name, value)


def _date(time: Any) -> Any:
    """Return a number as it is, and the date of a text."""
    if time is None or type(time) in (int, float):
        return time
    try:
        return datetime.fromisoformat(time)
    except (TypeError, ValueError):
        raise InputError(f"time must be a number or a date in ISO 8601, got {checks.shown(time)}.") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:40]} is beyond what a float holds")
    return number


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names something twice")
    return found


def _require_shallow(value: Any, left: int) -> None:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if parts is None:
        return
    if not left:
        raise RecursionError
    for part in parts:
        if type(part) in (list, dict):
            _require_shallow(part, left - 1)
