"""The runs in flight on a terminal: how many are finished, and for each that is not how its bandit is doing."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require
from torch_kbandits.plotting.progress import StatusLine

#: Seconds between two statuses of a run, and between two looks at what workers sent.
INTERVAL = 0.5


@dataclass(frozen=True)
class Status:
    """How a run, of a key and a name, is doing; a value that can be sent to another process."""

    key: str
    name: str
    played: int
    rounds: int
    words: str


Report = Callable[[Status], None]


def watcher(
    report: Report, bandit: Bandit, key: str, name: str, rounds: int, center: float = 0.0
) -> Callable[[int], None]:
    """Return what a run calls with the number of rounds that it has played; from time to time that is reported."""
    line = StatusLine(bandit, interval=INTERVAL, center=center)

    def watch(played: int) -> None:
        if line.is_due:
            report(Status(key, name, played, rounds, line.read()))

    return watch


class LiveRuns:
    """Lines at the foot of a terminal, on standard error; where that is no terminal only news are printed.

    Args:
        total: how many runs there are.
        done: how many were finished before.
        name: of the experiment.
        console: of rich, to write to; None for standard error.
    """

    def __init__(self, total: int, done: int, name: str, console: Any = None) -> None:
        self._console = require("rich.console").Console(stderr=True) if console is None else console
        self.is_shown: bool = self._console.is_terminal
        rich = require("rich.progress")
        self._lines = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("{task.fields[words]}", markup=False),
            rich.TimeElapsedColumn(),
            console=self._console,
            disable=not self.is_shown,
            refresh_per_second=2,
        )
        self._all = self._lines.add_task(name, total=total, completed=done, words="runs")
        self._flying: dict[str, Any] = {}
        self._landed: set[str] = set()

    def __enter__(self) -> Self:
        self._lines.start()
        return self

    def __exit__(self, *error: object) -> None:
        for task in self._flying.values():
            self._lines.remove_task(task)
        self._lines.stop()

    def show(self, status: Status) -> None:
        """Show how a run is doing, unless it is finished by now."""
        if status.key in self._landed:
            return
        if status.key not in self._flying:
            self._flying[status.key] = self._lines.add_task(status.name, total=status.rounds, words="")
        self._lines.update(self._flying[status.key], completed=status.played, words=status.words)

    def finish(self, key: str) -> None:
        """Count a run as finished."""
        self._landed.add(key)
        if key in self._flying:
            self._lines.remove_task(self._flying.pop(key))
        self._lines.advance(self._all)

    def say(self, line: str) -> None:
        """Print a line of news above what is shown."""
        if self.is_shown:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)  # noqa: T201  (rich would wrap it)
