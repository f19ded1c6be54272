"""When points that were asked for and never told are given up, and what becomes of them."""

from dataclasses import dataclass
from typing import Any, Literal

from torch_kbandits import checks
from torch_kbandits.observations.ledger import Pending


@dataclass(frozen=True)
class Expiry:
    """Points that are pending for too long are given up at the next call of ``ask``, ``mark_pending`` or ``tell``.

    Args:
        after: the age at which a point is given up, above 0, in the units of the bandit's time: rounds unless times are
            given, of dates seconds.
        then: "drop": as if it was forgotten; "fail": as if it was told that it failed, in a round of its own.

    Raises:
        InputError: if the age is not a positive number, or nothing is known of what is to become of them.
    """

    after: float
    then: Literal["drop", "fail"] = "drop"

    def __post_init__(self) -> None:
        checks.keep(self, after=checks.positive)
        checks.one_of("then", self.then, ("drop", "fail"))

    def rows(self, pending: Pending, now: float) -> list[int]:
        """Return which of the points that are pending are given up at a time, the longest pending first."""
        return list(range(sum(now - time >= self.after for time in pending.times)))  # those asked for first are first

    def __str__(self) -> str:
        """Return what it does to a point, for messages."""
        return f"expire_after={self.after:g} {self.then}s what is pending so long"


def expiry_of(word: Any) -> Expiry | None:
    """Return the expiry that an argument ``expire_after`` stands for: an age means that points are dropped then."""
    return word if word is None or isinstance(word, Expiry) else Expiry(checks.positive("expire_after", word))
