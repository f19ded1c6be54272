"""The runs in flight on a terminal: how many are finished, and for each that is not how its bandit is doing."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require
from torch_kbandits.looking.progress import Gauge, Reading

#: Seconds between two readings of a run, and between two looks at what workers sent.
INTERVAL = 0.5


@dataclass(frozen=True)
class Status:
    """How a run is doing; a value that can be sent to another process.

    Args:
        key: of the run.
        name: of the run, in words.
        played: how many of its rounds are played.
        rounds: T.
        reading: of its bandit.
    """

    key: str
    name: str
    played: int
    rounds: int
    reading: Reading

    def __str__(self) -> str:
        return f"{self.name}: {self.played}/{self.rounds}, {self.reading.rate:.3g} rounds/s, {self.reading}"


Report = Callable[[Status], None]


def watcher(
    report: Report, bandit: Bandit, *, key: str, name: str, rounds: int, center: float = 0.0
) -> Callable[[int], None]:
    """Return what a run calls with the number of rounds that it has played; from time to time that is reported."""
    gauge = Gauge(bandit, interval=INTERVAL, center=center)

    def watch(played: int) -> None:
        if gauge.is_due:
            report(Status(key, name, played, rounds, gauge.read()))

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
        self._flying: dict[str, Status] = {}
        self._landed: set[str] = set()
        columns = require("rich.progress")
        self._bar = columns.Progress(
            columns.TextColumn("{task.description}"),
            columns.BarColumn(),
            columns.MofNCompleteColumn(),
            columns.TextColumn("runs,"),
            columns.TimeElapsedColumn(),
            columns.TextColumn("elapsed"),
            console=self._console,
        )
        self._task = self._bar.add_task(name, total=total, completed=done)
        self._live = require("rich.live").Live(
            console=self._console, get_renderable=self._lines, refresh_per_second=2, redirect_stdout=False
        )

    def __enter__(self) -> Self:
        if self.is_shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flying = {}
        if self.is_shown:
            self._live.stop()

    def show(self, status: Status) -> None:
        """Show how a run is doing, unless it is finished by now."""
        if status.key not in self._landed:
            self._flying[status.key] = status

    def finish(self, key: str) -> None:
        """Count a run as finished."""
        self._landed.add(key)
        self._flying.pop(key, None)
        self._bar.advance(self._task)

    def say(self, line: str) -> None:
        """Print a line of news above what is shown."""
        if self.is_shown:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)  # noqa: T201  (rich would wrap it)

    def _lines(self) -> Any:
        text = require("rich.text").Text
        runs = [text(f"  {status}", no_wrap=True, overflow="ellipsis") for status in self._flying.values()]
        return require("rich.console").Group(self._bar, *runs)
