"""Callbacks: what others are told of each ask and each tell, and the one that logs them as lines of JSON."""

import hashlib
import json
import math
import secrets
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import Logger, LoggerAdapter
from os import SEEK_END, PathLike
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.suggestions import Suggestion
from torch_kbandits.candidates.timed import listing_of, untimed
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.files import checked_path, file_error
from torch_kbandits.observations.history import History

#: What callbacks are called by.
_EVENTS = ("on_ask", "on_tell")


class Told(NamedTuple):
    """What a call of ``tell`` told a bandit, as callbacks get it.

    Attributes:
        ids: of each point, (q,), by which it was asked for; None for one that was not.
        history: their points, rewards and so on, a row for each, as in ``Bandit.history``; a copy.
    """

    ids: tuple[int | None, ...]
    history: History


class Callback(Protocol):
    """What wants to know of each ask and tell of a bandit, ``Bandit.add_callback``: a subclass has what it needs.

    It is called once the bandit has changed, in its thread, before the call that changed it returns. It may read the
    bandit, and must not ask or tell. If it raises an ``Exception`` there is a ``KernelBanditWarning`` by its name, the
    other callbacks are called, and the bandit goes on: what was asked and told is kept.
    """

    def on_ask(self, bandit: Any, suggestion: Any) -> None:
        """Take note of points that are pending from now on, as ``ask(details=True)`` returns them."""

    def on_tell(self, bandit: Any, told: Told) -> None:
        """Take note of rewards, outcomes and failures, those of points that expired as failed among them."""


class Callbacks(tuple[Callback, ...]):
    """The callbacks of a bandit, in the order added; copies and pickles have none."""

    def __reduce__(self) -> tuple[type["Callbacks"], tuple[()]]:
        return Callbacks, ()

    @property
    def hear_asks(self) -> bool:
        """Whether one of them is told of asks, so that it must be noted how points are chosen."""
        return any(getattr(type(each), "on_ask", None) is not Callback.on_ask for each in self)

    def notify(self, event: str, bandit: Any, value: Any) -> None:
        """Call all; who fails is warned of."""
        for callback in self:
            try:
                getattr(callback, event)(bandit, value)
            except Exception as error:
                name, said = f"{type(callback).__name__}.{event}", f"{type(error).__name__}: {error}"
                warnings.warn(f"{name} failed, and the bandit goes on. {said}", KernelBanditWarning, stacklevel=5)


def checked_callback(callback: Any) -> Callback:
    """Return what has all methods of a callback."""
    if isinstance(callback, type) or not all(callable(getattr(callback, event, None)) for event in _EVENTS):
        hint = f"an object with {' and '.join(_EVENTS)}, as of a subclass of torch_kbandits.bandit.Callback"
        raise InputError(f"callback must be {hint}, got {checks.describe(callback)}.")
    return callback


class JSONLog:
    """A callback that writes a line of JSON for each point asked for and for each told; see ``Bandit.log_to``.

    Args:
        where: the path of a file, which is made if it is not there and appended to if it is; or a logger.
        contexts: whether lines have contexts and actions themselves.

    ``FileError`` if the file cannot be written.
    """

    def __init__(self, where: str | PathLike[str] | Logger | LoggerAdapter[Any], *, contexts: bool = False) -> None:
        self._contexts, self._name, self._unwritten = checks.flag("contexts", contexts), secrets.token_hex(4), b""
        self._where = where if isinstance(where, (Logger, LoggerAdapter)) else checked_path(where)
        if isinstance(self._where, str):
            try:
                with open(self._where, "a+b") as file:
                    if file.tell() and (file.seek(-1, SEEK_END), file.read())[1] != b"\n":
                        self._unwritten = b"\n"  # ends the line that a process was writing when it was killed
            except OSError as error:
                raise file_error("written", self._where, error) from error

    def on_ask(self, bandit: Any, suggestion: Suggestion) -> None:
        """Write what was chosen, and what is known of the choice."""
        found, q, space = suggestion, len(suggestion.ids), untimed(bandit.candidates)
        context = found.points[:, -space.example.shape[-1] :][:, : space.context_dim]
        listing = listing_of(space) if found.actions is None else None
        size = len(found.actions) if found.actions is not None else listing and listing.size
        columns = {"id": found.ids, "time": [found.time] * q, "row": found.rows, "num_actions": size and [size] * q}
        columns |= {"name": found.names, "propensity": found.propensities, "mean": found.mean, "std": found.std}
        if space.context_dim:
            columns["context_digest"] = _digests(context)
        if self._contexts or found.rows is None:
            columns["action"] = found.x
        if self._contexts:
            columns["context"] = context if space.context_dim else None
            columns["actions"] = None if found.actions is None else [found.actions.tolist()] * q
        self._write("ask", columns)

    def on_tell(self, bandit: Any, told: Told) -> None:
        """Write what came of it."""
        history, names = told.history, bandit.outcomes
        columns = {"id": told.ids, "round": history.rounds, "time": history.times}
        columns |= {"reward": history.Y, "failed": history.lost}
        if names:
            columns["outcomes"] = [dict(zip(names, row, strict=True)) for row in history.outcomes.tolist()]
        self._write("tell", columns)

    def _write(self, event: str, columns: Mapping[str, Any]) -> None:
        """Append a line for each row of columns, those that could not be written before first."""
        head = {"event": event, "log": self._name, "at": datetime.now(UTC).isoformat()}
        there = {name: checks.listed(name, column) for name, column in columns.items() if column is not None}
        rows = [dict(zip(there, values, strict=True)) for values in zip(*there.values(), strict=True)]
        lines = [json.dumps(_plain({**head, **row}), separators=(",", ":"), default=str) for row in rows]
        if not isinstance(self._where, str):
            for line in lines:
                self._where.info("%s", line)
            return
        self._unwritten += "".join(f"{line}\n" for line in lines).encode()
        try:
            with open(self._where, "ab", buffering=0) as file:
                while self._unwritten:
                    self._unwritten = self._unwritten[file.write(self._unwritten) :]
        except OSError as error:
            raise file_error("written", self._where, error) from error


def _digests(rows: Tensor) -> list[str]:
    """Return a digest of the numbers of each row (q, c), of which equal ones have the same."""
    doubles = (rows.cpu().double() + 0.0).numpy()  # 0.0 and -0.0 are equal
    return [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in doubles]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: None for NaN, what JSON lacks as text."""
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
