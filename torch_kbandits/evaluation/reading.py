"""The choices that a bandit logs as lines of JSON, ``Bandit.log_to``, read back as a ``Log``."""

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain
from os import PathLike, fspath
from typing import Any, NamedTuple

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.evaluation.log import Log
from torch_kbandits.files import read_whole

#: What is said where a choice cannot be weighed.
_ROW = "a whole number of at least 0: choices on a box or in a space of parameters have none, and no Log"
_PROPENSITY = "in (0, 1]: choose by a rule that knows them, such as EpsilonGreedy(rule, epsilon)"
#: The largest reward, and lines that a warning names one by one.
_LARGEST, _MOST_NAMED = sys.float_info.max, 10


class _Line(NamedTuple):
    """A line of a log: where it is, and what it says."""

    place: str
    says: dict[str, Any]

    def number(self, name: str, expected: str, above: float, most: float, *kinds: type) -> Any:
        """Return a number of some kinds that the line says, above the one and up to the other."""
        if type(value := self.says.get(name)) not in kinds or not above < value <= most:
            raise InputError(f"{self.place}: {name} must be {expected}; got {checks.shown(value)}.")
        return value


def read_log(path: str | PathLike[str] | Sequence[str | PathLike[str]], *, actions: Any = None) -> Log:
    """Return the choices that ``Bandit.log_to`` wrote to a file, in order, each with its reward if that was told.

    Rewards are joined by id, however late they came, also after a restart of the process. An id that was asked for
    again, as by a bandit that was loaded as it had been before, is another choice. What was told of points that the log
    did not ask for is no choice and left out, as are lines that are cut or of something else: a warning names those.

    Args:
        path: of the file, or of several, as of one that was rotated, in their order.
        actions: the features of the actions that stay, as in ``Log``. None for those that lines have, if all do:
            written with ``contexts=True`` where actions differ from round to round.

    Raises:
        FileError: if a file cannot be read.
        InputError: if there is no choice, or a line says what cannot be; the message names it.
    """
    paths = [path] if isinstance(path, (str, PathLike)) else list(checks.entries("path", path))
    choices, rewards = _joined(list(chain.from_iterable(map(_lines, paths))))
    if not choices:
        raise InputError(f"{', '.join(map(fspath, paths))} has no choice: give what bandit.log_to wrote.")
    columns: dict[str, Any] = {
        "rows": [line.number("row", _ROW, -1, math.inf, int) for line in choices],
        "rewards": rewards,
        "propensities": [line.number("propensity", _PROPENSITY, 0.0, 1.0, float, int) for line in choices],
        "ids": [line.says["id"] for line in choices],
    }
    last = {number: place for place, number in enumerate(columns["ids"])}
    for place, number in enumerate(columns["ids"]):
        if last[number] != place:
            columns["ids"][place] = f"{number} of {choices[place].place}"
    said = {"times": "time", "contexts": "context", "actions": "actions", "num_actions": "num_actions"}
    for name, word in said.items():
        values = [line.says.get(word) for line in choices]
        if None not in values:
            columns[name] = values
    if actions is not None:
        columns["actions"] = actions
    if "actions" in columns:
        columns.pop("num_actions", None)
    return Log(**columns)


def _joined(lines: Sequence[_Line]) -> tuple[list[_Line], list[float | None]]:
    """Return the lines of choices and the reward of each, None where none came."""
    choices, rewards, latest = list[_Line](), dict[int, _Line](), dict[Any, int]()
    for line in lines:
        if line.says["event"] == "tell" and line.says.get("id") is None:
            continue
        number = line.number("id", "a whole number of at least 0", -1, math.inf, int)
        own = line.says.get("log"), number  # processes may share a file, and a reward may come in a later one
        if line.says["event"] == "ask":
            latest[own] = latest[number] = len(choices)
            choices.append(line)
        elif (place := latest.get(own, latest.get(number))) is not None and line.says.get("reward") is not None:
            reward = line.number("reward", "a finite number or null", -math.inf, _LARGEST, float, int)
            before = rewards.setdefault(place, line)
            if before.says["reward"] != reward:
                hint = f"{before.says['reward']} as in {before.place}, of the same id {number}, or one of them left out"
                raise InputError(f"{line.place}: reward must be {hint}; got {reward}.")
    return choices, [rewards[place].says["reward"] if place in rewards else None for place in range(len(choices))]


def _lines(path: str | PathLike[str]) -> Iterator[_Line]:
    """Yield the lines of a file that are of a log, and warn of the others."""
    content, others, number = read_whole(path), list[int](), 0
    for number, line in enumerate(content.splitlines(), 1):
        try:
            says = json.loads(line)
        except (ValueError, RecursionError):  # also where it is no UTF-8
            says = None
        if isinstance(says, dict) and says.get("event") in ("ask", "tell"):
            yield _Line(f"{fspath(path)}, line {number}", says)
        elif line.strip():
            others.append(number)
    if others:
        named = ", ".join(map(str, others[:_MOST_NAMED])) + (", …" if len(others) > _MOST_NAMED else "")
        is_cut = others[-1] == number and not content.endswith(b"\n")
        last = " The last one was cut while it was written." if is_cut else ""
        message = f"{fspath(path)}: {len(others)} line(s) are not whole or not of a log and left out: {named}.{last}"
        warnings.warn(message, KernelBanditWarning, stacklevel=3)
