"""Callbacks: what others are told of each ask and each tell, and the one that logs them as lines of JSON."""

import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Mapping
from datetime import UTC, datetime
from logging import Logger, LoggerAdapter
from os import PathLike
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.suggestions import Suggestion
from torch_kbandits.candidates.timed import listing_of, untimed
from torch_kbandits.errors import KernelBanditWarning
from torch_kbandits.files import checked_path, file_error
from torch_kbandits.observations.history import History


class Told(NamedTuple):
    """What a call of ``tell`` told a bandit, as callbacks get it.

    Attributes:
        ids: of each point, (q,), by which it was asked for; None for one that was not.
        history: their points, rewards and so on, a row for each, as in ``Bandit.history``; a copy.
    """

    ids: tuple[int | None, ...]
    history: History


class Callback(Protocol):
    """What gets to know of each ask and tell of a bandit; a subclass has one of the methods or both.

    They are called once the bandit has changed, before the call that changed it returns. They may read the bandit, and
    must not ask or tell. One that raises an ``Exception`` is named in a ``KernelBanditWarning``, and all goes on.
    """

    def on_ask(self, bandit: Any, suggestion: Suggestion) -> None:
        """Take note of points that are pending from now on, as ``ask(details=True)`` returns them."""

    def on_tell(self, bandit: Any, told: Told) -> None:
        """Take note of rewards, outcomes and failures, of points that expired as failed as well."""


class Callbacks(list[Callback]):
    """The callbacks of a bandit, in the order in which they are called. Copies and pickles are empty."""

    def __reduce__(self) -> tuple[type["Callbacks"], tuple[()]]:
        return Callbacks, ()

    @property
    def hear_asks(self) -> bool:
        """Whether one of them is told of asks, so that it must be noted how points are chosen."""
        return any(getattr(type(each), "on_ask", None) is not Callback.on_ask for each in self)

    def notify(self, event: str, bandit: Any, value: Any) -> None:
        """Call all; warn of those that fail."""
        for callback in [*self]:
            try:
                getattr(callback, event)(bandit, value)
            except Exception as error:
                failed = f"{type(callback).__name__}.{event} failed, and the bandit goes on"
                warnings.warn(f"{failed}: {type(error).__name__}: {error}", KernelBanditWarning, stacklevel=5)


class JSONLog:
    """The callback of ``Bandit.log_to``: it writes a line of JSON for each point asked for and for each told."""

    def __init__(self, where: str | PathLike[str] | Logger | LoggerAdapter[Any], *, contexts: bool = False) -> None:
        self._contexts, self._name, self._unwritten = checks.flag("contexts", contexts), secrets.token_hex(4), b""
        #: A logger, or the path of a file.
        self.where = where if isinstance(where, (Logger, LoggerAdapter)) else os.path.realpath(checked_path(where))
        if isinstance(self.where, str):
            try:
                with open(self.where, "a+b") as file:
                    if file.tell() and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":
                        self._unwritten = b"\n"  # ends the line that a process was writing when it was killed
            except OSError as error:
                raise file_error("written", self.where, error) from error

    def on_ask(self, bandit: Any, suggestion: Suggestion) -> None:
        """Write what was chosen, and what is known of the choice."""
        found, q, space = suggestion, len(suggestion.ids), untimed(bandit.candidates)
        listing, offered = listing_of(space) if found.actions is None else None, found.actions
        size = len(offered) if offered is not None else listing and listing.size
        columns = {"id": found.ids, "time": [found.time] * q, "row": found.rows, "num_actions": size and [size] * q}
        columns |= {"name": found.names, "propensity": found.propensities, "mean": found.mean, "std": found.std}
        if space.context_dim:
            contexts = found.points[:, -space.example.shape[-1] :][:, : space.context_dim]
            columns |= {"context_digest": _digests(contexts), "context": contexts if self._contexts else None}
        if self._contexts or found.rows is None:
            columns |= {"action": found.x, "actions": None if offered is None else [offered] * q}
        self._write("ask", columns)

    def on_tell(self, bandit: Any, told: Told) -> None:
        """Write what came of it."""
        history = told.history
        columns = {"id": told.ids, "round": history.rounds, "time": history.times, "reward": history.Y}
        columns |= {"failed": history.lost, "noise": history.noise}
        if history.outcomes is not None:
            columns["outcomes"] = [dict(zip(bandit.outcomes, row, strict=True)) for row in history.outcomes]
        self._write("tell", columns)

    def _write(self, event: str, columns: Mapping[str, Any]) -> None:
        """Append a line for each row of columns, behind those that could not be written before."""
        head = {"event": event, "log": self._name, "at": datetime.now(UTC).isoformat()}
        there = plain({name: column for name, column in columns.items() if column is not None})
        rows = [head | dict(zip(there, values, strict=True)) for values in zip(*there.values(), strict=True)]
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        if not isinstance(self.where, str):
            for line in lines:
                self.where.info("%s", line)
            return
        self._unwritten += "".join(f"{line}\n" for line in lines).encode()
        try:
            with open(self.where, "ab", buffering=0) as file:
                while self._unwritten:
                    self._unwritten = self._unwritten[file.write(self._unwritten) :]
        except OSError as error:
            raise file_error("written", self.where, error) from error


def plain(value: Any) -> Any:
    """Return a value as JSON has it: tensors as lists, what JSON lacks as text, numbers that are none as null."""
    text = json.dumps(value, default=lambda each: each.tolist() if isinstance(each, Tensor) else str(each))
    return json.loads(text, parse_constant=lambda _: None)


def _digests(rows: Tensor) -> list[str]:
    """Return a digest of the numbers of each row (q, c), of which equal ones have the same."""
    doubles = (rows.cpu().double() + 0.0).numpy()  # 0.0 and -0.0 are equal
    return [hashlib.blake2b(row.tobytes(), digest_size=8).hexdigest() for row in doubles]
