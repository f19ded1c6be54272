"""When things happen: rounds, numbers or dates, one kind for a bandit, and never backwards."""

import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from numbers import Real
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What the times of a bandit are: its own rounds, numbers of any unit, or dates without or with a time zone. A history
#: that was replayed does not say which of the latter.
Kind = Literal["rounds", "numbers", "dates", "dates with a time zone", "numbers or dates"]


@dataclass(frozen=True)
class Clock:
    """The time of a bandit. A value: moving on gives another.

    Attributes:
        now: the latest time, minus infinity before the first; dates are seconds since 1970 (without a time zone as if
            in UTC).
        kind: what times are; None where the next one decides.
        matters: whether it matters when something is asked or told; where not, every time is refused.
    """

    now: float = -math.inf
    kind: Kind | None = None
    matters: bool = True

    def moved_to(self, time: Any, round_number: int) -> Self:
        """Return the clock at the time of an ``ask``.

        Args:
            time: a number, or a date of Python, NumPy or pandas; None for the round.
            round_number: the present round.

        Raises:
            InputError: if the time is before the latest, or of another kind than those before it; if one is given
                where it does not matter.
        """
        if not self.matters:
            if time is not None:
                raise InputError("This bandit has no memory, so it knows no time: give it memory=, or leave out time.")
            return self
        if time is None:
            if self.kind not in (None, "rounds"):
                raise InputError(f"time is missing: this bandit's times are {self.kind}, so give time= here too.")
            return type(self)(float(round_number), "rounds")
        kind, now = _read(time)
        if self.kind not in (None, "numbers or dates", kind):
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

    def replayed(self, times: Tensor | None, rounds: Tensor) -> tuple[Self, ...]:
        """Return the clock at each round of a recorded history.

        Times that are the numbers of their rounds are taken for rounds, unless times were given already.

        Args:
            times: of each reward, (n,), in order; None if the history has none.
            rounds: of each reward, counted from 0, (n,), in order.

        Raises:
            InputError: if there are no times, the rewards of a round differ in time, or the history begins before the
                latest time.
        """
        if not self.matters:
            return (self,) * len(rounds.unique_consecutive())
        if times is None:
            raise InputError("This bandit has a memory, so a history to replay needs times.")
        starts = rounds.diff(prepend=rounds[:1] - 1) != 0
        firsts = times[starts]
        if not torch.equal(firsts[starts.long().cumsum(0) - 1], times):
            raise InputError("The rewards of a round must have one time, that of the call that told them.")
        kind, now = self.kind, self.now
        if kind in (None, "rounds"):
            counted = torch.arange(len(firsts), dtype=firsts.dtype, device=firsts.device)
            kind, now = "rounds" if torch.equal(firsts, counted) else "numbers or dates", -math.inf
        if len(firsts) and float(firsts[0]) < now:
            raise InputError(
                f"Time must not go backwards: the latest was {_words(kind, now)}, and the history begins at "
                f"{_words(kind, float(firsts[0]))}."
            )
        return tuple(type(self)(float(first), kind) for first in firsts)

    def stamps(self, X: Tensor) -> Tensor | None:
        """Return the present time for each of the points (q, d) that are told now, (q,); None if it does not matter."""
        if not self.matters:
            return None
        return torch.full((len(X),), self.now, dtype=torch.float64, device=X.device)

    def check(self, times: Tensor) -> None:
        """Refuse a clock that is none, or times (n,), in order, that are later than it shows.

        Raises:
            InputError: if so.
        """
        if self.kind not in (None, *get_args(Kind)):
            raise InputError(f"the clock is of an unknown kind, {self.kind!r}.")
        if not self.now < math.inf or (len(times) and float(times[-1]) > self.now):
            raise InputError(f"the clock shows {self.now!r}, which is before what was told.")

    @property
    def undecided(self) -> Self:
        """This clock, if its rounds may have been given as numbers: then the next time decides what times are."""
        return replace(self, kind=None) if self.kind == "rounds" else self

    def after_reward(self, round_number: int) -> Self:
        """Return the clock once a reward is told, before a round: rounds go on by themselves."""
        return type(self)(float(round_number), self.kind) if self.kind == "rounds" else self


def _words(kind: Kind, now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat() if kind.startswith("dates") else f"{now:.10g}"


def _read(time: Any) -> tuple[Kind, float]:
    """Return the kind and the value of a time."""
    given = time
    if hasattr(type(time), "to_pydatetime"):
        time = time.to_pydatetime(warn=False)
    elif type(time).__name__ == "datetime64":
        time = time.astype("datetime64[us]").item()
        if not isinstance(time, datetime):
            raise InputError(f"time must be a date of the years 1 to 9999, got {given!r}.")
    elif isinstance(time, date) and not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if isinstance(time, datetime):
        if time != time:  # the date of pandas that is none
            raise InputError(f"time must be a number or a date, got {given!r}.")
        if time.tzinfo is None:
            return "dates", time.replace(tzinfo=UTC).timestamp()
        return "dates with a time zone", time.timestamp()
    if isinstance(time, Tensor) and time.dim() == 0:
        time = time.item()
    if isinstance(time, bool) or not isinstance(time, Real):
        raise InputError(f"time must be a number or a date, got {checks.describe(given)}.")
    return "numbers", checks.finite_number("time", time)  # pyright: ignore[reportArgumentType]
