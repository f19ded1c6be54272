"""When things happen: rounds, numbers or dates, one kind for a bandit, and never backwards."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from numbers import Real
from typing import Any, Literal, Self

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What the times of a bandit are: its own rounds, numbers of any unit, or dates without or with a time zone.
Kind = Literal["rounds", "numbers", "dates", "dates with a time zone"]


@dataclass(frozen=True)
class Clock:
    """The time of a bandit. A value: moving on gives another.

    Attributes:
        now: the latest time, minus infinity before the first; dates are seconds since 1970 (without a time zone as if
            in UTC).
        kind: what times are; None before the first.
    """

    now: float = -math.inf
    kind: Kind | None = None

    def moved_to(self, time: Any, round_number: int) -> Self:
        """Return the clock at the time of an ``ask``.

        Args:
            time: a number, or a date of Python, NumPy or pandas; None for the round.
            round_number: the present round.

        Raises:
            InputError: if the time is before the latest, or of another kind than those before it.
        """
        if time is None:
            if self.kind not in (None, "rounds"):
                raise InputError(f"time is missing: this bandit's times are {self.kind}, so give time= here too.")
            return type(self)(float(round_number), "rounds")
        kind, now = _read(time)
        if self.kind not in (None, kind):
            hint = "leave out time" if self.kind == "rounds" else "give times of one kind"
            raise InputError(f"This bandit's times are {self.kind} so far, and time={time!r} is not: {hint}.")
        if now < self.now:
            raise InputError(
                f"Time must not go backwards: the latest was {_words(kind, self.now)}, got {_words(kind, now)}."
            )
        return type(self)(now, kind)

    def at_reward(self, time: Any, round_number: int) -> Self:
        """Return the clock at the time of a ``tell``: as ``moved_to``, but no time is that of the last ``ask``."""
        if time is None and self.kind not in (None, "rounds"):
            return self
        return self.moved_to(time, round_number)

    def after_reward(self, round_number: int) -> Self:
        """Return the clock once a reward is told, before a round: rounds go on by themselves."""
        return type(self)(float(round_number), self.kind) if self.kind == "rounds" else self


def _words(kind: Kind, now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat() if kind.startswith("dates") else f"{now:.10g}"


def _read(time: Any) -> tuple[Kind, float]:
    """Return the kind and the value of a time."""
    if hasattr(time, "to_pydatetime"):
        time = time.to_pydatetime()
    elif type(time).__name__ == "datetime64":
        time = time.astype("datetime64[us]").item()
    if isinstance(time, datetime):
        if time.tzinfo is None:
            return "dates", time.replace(tzinfo=UTC).timestamp()
        return "dates with a time zone", time.timestamp()
    if isinstance(time, Tensor) and time.dim() == 0:
        time = time.item()
    if isinstance(time, bool) or not isinstance(time, Real):
        raise InputError(f"time must be a number or a date, got {checks.describe(time)}.")
    return "numbers", checks.finite_number("time", float(time))
