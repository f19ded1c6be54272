"""A line of progress for a loop that plays a bandit: rounds a second, rewards, dictionary and width."""

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require

#: So many of the latest rewards make the mean that is shown; seconds between two readings.
_RECENT, _INTERVAL = 50, 0.5


class Progress(AbstractContextManager["Progress"]):
    """A line of progress on a terminal for your own loop; silent where standard error is no terminal.

    It shows the rounds a second, the largest reward told since it began, noise and all, the mean of the latest 50, the
    number m of inducing points, or of distinct points if the posterior is exact, and β. A loop with a turn for each
    round goes over it, ``for t in Progress(bandit, 500)``; in another call ``update``, and use it as a context, or
    ``close`` it in the end.

    Args:
        bandit: that is played; what it was told before does not enter the rewards.
        rounds: how many rounds there will be; None if that is not known.
        center: constant to add to rewards: what you subtracted before you told them.
        name: before the line.

    Cost: reading the clock in a round; twice a second O(new rewards + m d), and what the width costs.
    """

    def __init__(
        self, bandit: Bandit, rounds: int | None = None, *, center: float = 0.0, name: str | None = None
    ) -> None:
        checks.instance("bandit", bandit, Bandit, "a bandit such as algorithms.BKB(...)")
        self._bandit, self._center = bandit, checks.finite_number("center", center)
        self._rounds = checks.optional(checks.positive_integer)("rounds", rounds)
        self._told, self._best, self._recent = bandit.num_observations, -float("inf"), deque[float](maxlen=_RECENT)
        self._round = bandit.round
        words = {"mininterval": _INTERVAL, "miniters": 1, "dynamic_ncols": True, "unit": " rounds"}
        self._bar: Any = require("tqdm").tqdm(total=rounds, desc=name, disable=None, **words)

    def reading(self) -> str:
        """Return how the bandit is doing now, in words; nothing changes for it."""
        bandit = self._bandit
        # A bandit that loaded a shorter history begins anew.
        fresh = (bandit.history_since(min(self._told, bandit.num_observations)).Y.double() + self._center).tolist()
        self._told = bandit.num_observations
        self._recent.extend(fresh)
        self._best = max([self._best, *fresh])
        recent = sum(self._recent) / max(len(self._recent), 1)
        rewards = f"best {self._best:.3g}, recent {recent:.3g}, " if self._recent else ""
        return f"{rewards}m = {len(bandit.inducing_points)}, β = {float(bandit.beta):.3g}"

    def update(self, rounds: int | None = None) -> None:
        """Say that rounds have passed; None for those that the bandit was told since the last call."""
        if not self._bar.disable:
            before, self._round = self._round, self._bandit.round
            if self._bar.update(max(self._round - before, 0) if rounds is None else rounds):
                self._bar.set_postfix_str(self.reading())

    def close(self) -> None:
        """Show the last reading and leave the line as it is."""
        if not self._bar.disable:
            self._bar.set_postfix_str(self.reading())
        self._bar.close()

    def __iter__(self) -> Iterator[int]:
        with self:
            for turn in range(checks.positive_integer("rounds", self._rounds)):
                yield turn
                self.update(1)

    def __exit__(self, *error: object) -> None:
        self.close()
