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

#: What a choice must have to be weighed.
_ROW = "a whole number of at least 0: choices on a box or in a space of parameters have none, and no Log"
_PROPENSITY = "in (0, 1]: choose by a rule that knows them, as with epsilon="
#: Lines that a warning names one by one.
_MOST_NAMED = 10


class _Line(NamedTuple):
    """A line of a log: where it is, and what it says."""

    place: str
    says: dict[str, Any]

    def number(self, name: str, expected: str, above: float, most: float, *kinds: type) -> Any:
        """Return a number of some kinds that the line says, above the one and up to the other."""
        value: Any = self.says.get(name)
        if type(value) not in kinds or not above < value <= most:  # True is no number
            raise InputError(f"{self.place}: {name} must be {expected}; got {checks.shown(value)}.")
        return value


def read_log(path: str | PathLike[str] | Sequence[str | PathLike[str]], *, actions: Any = None) -> Log:
    """Return the choices that ``Bandit.log_to`` wrote to a file, in order, each with its reward if that was told.

    Rewards are joined by id, however late they came, also after a restart of the process. An id that is asked for
    again, as by a bandit that was loaded as it had been before, is another choice. What was told and not asked for is
    no choice and left out, as are lines that are cut or of something else: a warning names those.

    Args:
        path: of the file, or of several, as of one that was rotated, in their order.
        actions: the features of the actions that stay, as in ``Log``. None for those that lines have, if all do:
            written with ``contexts=True`` where actions differ from round to round.

    Raises:
        FileError: if a file cannot be read.
        InputError: if there is no choice, or a line says what cannot be; the message names it.
    """
    paths = [path] if isinstance(path, (str, PathLike)) else list(checks.entries("path", path))
    choices, rewards, latest = list[_Line](), dict[int, _Line](), dict[Any, int]()
    for line in chain.from_iterable(map(_lines, paths)):
        number = None if line.says.get("id") is None else line.number("id", "a whole number", -1, math.inf, int)
        own = line.says.get("log"), number  # bandits may share a file, and rewards come after a restart
        place = latest.get(own, latest.get(number))
        if line.says["event"] == "ask" and (place is None or choices[place].says != line.says):
            latest[own] = latest[number] = len(choices)
            choices.append(line)
        elif line.says["event"] == "tell" and place is not None and line.says.get("reward") is not None:
            reward = line.number("reward", "a finite number", -math.inf, sys.float_info.max, float, int)
            before = rewards.setdefault(place, line)
            if before.says["reward"] != reward:
                expected = f"{before.says['reward']} as in {before.place}, of the same id: take one of them out"
                raise InputError(f"{line.place}: reward must be {expected}; got {reward}.")
    if not choices:
        raise InputError(f"{checks.shown(paths)} has no choice: give what bandit.log_to wrote.")
    numbers = [line.number("id", "a whole number", -1, math.inf, int) for line in choices]
    last = {number: place for place, number in enumerate(numbers)}
    columns: dict[str, Any] = {
        "rows": [line.number("row", _ROW, -1, math.inf, int) for line in choices],
        "rewards": [rewards[place].says["reward"] if place in rewards else None for place in range(len(choices))],
        "propensities": [line.number("propensity", _PROPENSITY, 0.0, 1.0, float, int) for line in choices],
        "ids": [each if last[each] == i else f"{each} of {choices[i].place}" for i, each in enumerate(numbers)],
    }
    for name, word in {
        "times": "time",
        "contexts": "context",
        "actions": "actions",
        "num_actions": "num_actions",
    }.items():
        if None not in (values := [line.says.get(word) for line in choices]):
            columns[name] = values
    columns |= {} if actions is None else {"actions": actions}
    if "actions" in columns:
        columns.pop("num_actions", None)
    return Log(**columns)


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
