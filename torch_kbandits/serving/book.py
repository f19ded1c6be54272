"""What was answered lately, so that a request that comes again is not carried out again."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from torch_kbandits import checks
from torch_kbandits.serving.refusals import AlreadyToldError, KeyReusedError
from torch_kbandits.serving.requests import without_key

#: Requests with a key, points in their answers, and ids told or forgotten that are remembered: the latest.
REMEMBERED = 10_000

#: What is remembered of an id that was forgotten, that was given up when another call came, or that a call without ids
#: settled.
FORGOTTEN, EXPIRED, BY_POINT = "forgotten", "expired", "told by its action, or expired"


class Book:
    """The latest requests with a key and their answers, and the latest ids with what they were told, as JSON has it."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[str, dict[str, Any]]] = {}
        self._ids: dict[int, Any] = {}
        self._points = 0

    def answer(self, key: str | None, words: str) -> dict[str, Any] | None:
        """Return the answer to the request of this key and fingerprint; None if the key is new or there is none."""
        if key is None or key not in self._keys:
            return None
        known, answer = self._keys[key]
        if known != words:
            raise KeyReusedError(f"The key {checks.shown(key)} came with another request: give each request its own.")
        return answer

    def keep(self, key: str | None, words: str, answer: dict[str, Any]) -> None:
        """Remember what was answered to a request with a key."""
        if key is None:
            return
        self._keys[key] = words, answer
        self._points += _points(answer)
        while len(self._keys) > 1 and (len(self._keys) > REMEMBERED or self._points > REMEMBERED):
            oldest = next(iter(self._keys))
            self._points -= _points(self._keys.pop(oldest)[1])

    def settle(self, values: Mapping[int, Any]) -> None:
        """Remember by id what each was told, or what else became of it."""
        self._ids.update(values)
        while len(self._ids) > REMEMBERED:
            del self._ids[next(iter(self._ids))]

    def was_done(self, ids: Iterable[int], values: Iterable[Any], pending: Iterable[int]) -> bool:
        """Say whether all these ids were told these values already, or forgotten; False if all are pending.

        Raises:
            AlreadyToldError: if one was told something else, or some are pending and others were told.
        """
        left, done = set(pending), []
        for number, value in zip(ids, values, strict=True):
            if number in left:
                continue
            if number not in self._ids:
                raise AlreadyToldError(
                    f"id {number} is not pending: it was told or forgotten, before the last {REMEMBERED:,} that are "
                    "remembered with what they were told."
                )
            if (known := self._ids[number]) != value:
                raise AlreadyToldError(f"id {number} is settled: {_said(known)}; now {_said(value)}.")
            done.append(number)
        if done and len(done) < len(list(ids)):
            raise AlreadyToldError(f"ids {done[:20]} are settled already and the others are not: give those alone.")
        return bool(done)

    def content(self) -> dict[str, Any]:
        """Return all of it as JSON has it. Cost: O(what is remembered)."""
        return {"keys": [[key, *kept] for key, kept in self._keys.items()], "ids": [*map(list, self._ids.items())]}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return the book of what ``content`` returned; of anything else a TypeError, ValueError or KeyError."""
        book = cls()
        for key, words, answer in content["keys"]:
            checks.instance("key", key, str, "a text")
            checks.instance("answer", answer, dict, "an object")
            book.keep(key, words, answer)
        book.settle(dict(content["ids"]))
        return book


def fingerprint(operation: str, request: Mapping[str, Any]) -> str:
    """Return what tells a request from others, whatever the order of its fields; the key is left out."""
    return hashlib.blake2b(
        json.dumps([operation, without_key(request)], sort_keys=True).encode(), digest_size=12
    ).hexdigest()


def _points(answer: Mapping[str, Any]) -> int:
    return len(answer.get("ids", ()))


def _said(value: Any) -> str:
    return value if isinstance(value, str) else f"it was told {checks.shown(value)}"
