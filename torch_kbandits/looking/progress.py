"""A line of progress for a loop that plays a bandit: rounds a second, rewards, dictionary and width."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TextIO

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require

#: So many of the latest rewards make the mean that is shown.
RECENT = 50


@dataclass(frozen=True)
class Reading:
    """What is shown of a bandit that plays.

    Args:
        round: how many rounds were told.
        rate: rounds a second since the last reading.
        best: the largest reward told since the gauge began, noise and all; None before any.
        recent: the mean of the latest 50 rewards, of fewer while there are not so many; None before any.
        dictionary_size: m, or the number of distinct points that count if the posterior is exact.
        beta: the multiplier of σ in force.
    """

    round: int
    rate: float
    best: float | None
    recent: float | None
    dictionary_size: int
    beta: float

    def __str__(self) -> str:
        rewards = "" if self.best is None else f"best {self.best:.3g}, recent {self.recent:.3g}, "
        return f"{rewards}m = {self.dictionary_size}, β = {self.beta:.3g}"


class Gauge:
    """Reads how a bandit is doing, from time to time.

    Args:
        bandit: that is played; what it was told before does not enter the rewards.
        interval: seconds between two readings.
        center: constant to add to rewards: what you subtracted before you told them.

    Cost: a look at the clock in a round; in a reading O(rewards since the last one) for these, never the whole history,
    O(m d) for the dictionary, and what the width costs, which ``ask`` computes as well.
    """

    def __init__(self, bandit: Bandit, *, interval: float = 0.5, center: float = 0.0) -> None:
        checks.instance("bandit", bandit, Bandit, "a bandit such as algorithms.BKB(...)")
        self._bandit = bandit
        self._interval = checks.non_negative("interval", interval)
        self._center = checks.finite_number("center", center)
        self._known = bandit.num_told
        self._best: float | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._last, self._round = time.monotonic(), bandit.round

    @property
    def is_due(self) -> bool:
        """Whether the interval since the last reading is over."""
        return time.monotonic() - self._last >= self._interval

    def read(self) -> Reading:
        """Return how the bandit is doing now; nothing changes for it."""
        bandit, now = self._bandit, time.monotonic()
        rate = max(bandit.round - self._round, 0) / max(now - self._last, 1e-9)
        self._last, self._round = now, bandit.round
        # A bandit that loaded a shorter history begins anew.
        fresh = (bandit.told_since(min(self._known, bandit.num_told)).Y.double() + self._center).tolist()
        self._known = bandit.num_told
        if fresh:
            self._recent.extend(fresh)
            self._best = max(fresh) if self._best is None else max(self._best, *fresh)
        recent = sum(self._recent) / len(self._recent) if self._recent else None
        return Reading(bandit.round, rate, self._best, recent, len(bandit.inducing_points), float(bandit.beta))


class Progress:
    """A line on a terminal for your own loop; silent where the stream is no terminal.

    Call ``update`` once a round. Use it as a context, or ``close`` it in the end.

    Args:
        bandit: that is played.
        rounds: how many rounds there will be; None if that is not known.
        interval: seconds between two looks at the bandit.
        center: as in ``Gauge``: constant to add to rewards.
        stream: where the line goes; None for standard error.
        name: what stands before the line.

    Raises:
        InputError: if an argument does not fit.
        MissingExtraError: if tqdm is not installed.

    Cost: as ``Gauge``; where nothing is shown next to nothing.
    """

    def __init__(
        self,
        bandit: Bandit,
        rounds: int | None = None,
        *,
        interval: float = 0.5,
        center: float = 0.0,
        stream: TextIO | None = None,
        name: str | None = None,
    ) -> None:
        if rounds is not None:
            rounds = checks.positive_integer("rounds", rounds)
        self._gauge = Gauge(bandit, interval=interval, center=center)
        self._bandit, self._round, self._passed = bandit, bandit.round, 0
        # Every call of its update is to be shown: it is called only when a reading is due.
        self._bar: Any = require("tqdm").tqdm(
            total=rounds,
            desc=name,
            unit="round",
            disable=None,
            file=sys.stderr if stream is None else stream,
            mininterval=0.0,
            miniters=1,
            dynamic_ncols=True,
        )

    def update(self, rounds: int | None = None) -> None:
        """Say that rounds have passed; None for those that the bandit was told since the last call."""
        if self._bar.disable:
            return
        now = self._bandit.round
        self._passed += max(now - self._round, 0) if rounds is None else rounds
        self._round = now
        if self._gauge.is_due:
            self._show()

    def close(self) -> None:
        """Show the last reading and leave the line as it is."""
        if not self._bar.disable:
            self._show()
        self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _show(self) -> None:
        self._bar.set_postfix_str(str(self._gauge.read()), refresh=False)
        self._bar.update(self._passed)
        self._passed = 0


def track(
    bandit: Bandit, rounds: int, *, interval: float = 0.5, center: float = 0.0, stream: TextIO | None = None
) -> Iterator[int]:
    """Yield 0, …, rounds − 1 and show how the bandit is doing; see ``Progress``.

    ::

        for t in track(bandit, 500):
            x = bandit.ask()
            bandit.tell(x, evaluate(x))

    Args:
        bandit: that is played in the loop.
        rounds: how many turns the loop has.
        interval: as in ``Progress``, like the words that follow.
        center: constant to add to rewards.
        stream: where the line goes.
    """
    with Progress(bandit, rounds, interval=interval, center=center, stream=stream) as progress:
        for t in range(rounds):
            yield t
            progress.update(1)
