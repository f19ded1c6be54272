"""When things happen: rounds, numbers or dates, one kind for a bandit. The present never goes backwards."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from numbers import Real
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What the times of a bandit are: its own rounds, numbers of any unit, or dates without or with a time zone. A history
#: that was replayed does not say which of the latter.
Kind = Literal["rounds", "numbers", "dates", "dates with a time zone", "numbers or dates"]


def read_time(time: Any) -> tuple[Kind, float]:
    """Return the kind and the value of a time; of a date the seconds since 1970, without a time zone as if in UTC.

    Args:
        time: a number, or a date of Python, NumPy or pandas.

    Raises:
        InputError: if it is none.
    """
    given = time
    if isinstance(time, datetime) and hasattr(type(time), "to_pydatetime"):
        time = time.to_pydatetime(warn=False)  # pyright: ignore[reportAttributeAccessIssue]
    elif type(time).__name__ == "datetime64":
        time = np.datetime64(time, "us").item()  # pyright: ignore[reportCallIssue, reportArgumentType]
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
    if isinstance(time, bool) or not isinstance(checks.scalar(time), Real):
        raise InputError(f"time must be a number or a date, got {checks.describe(given)}.")
    return "numbers", checks.finite_number("time", time)


def read_times(time: Any, number: int) -> tuple[Kind, Tensor]:
    """Return the kind and the values (q,) of the times of so many rewards, in double precision.

    Args:
        time: one for all, as ``read_time`` takes it; or one for each: a list, a tuple, an array, a tensor, or a series
            or an index of pandas, (q,).
        number: q >= 1.

    Raises:
        InputError: if it is neither, or they are of several kinds.
    """
    if not _is_column(time):
        kind, value = read_time(time)
        return kind, torch.full((number,), value, dtype=torch.float64)
    if len(time) != number:
        raise InputError(f"time must be one for all {number} reward(s), or one for each; got {len(time)}.")
    if isinstance(time, Tensor):
        time = time.detach().to("cpu", torch.float64).numpy()
    column = time if isinstance(time, (list, tuple)) else np.asarray(time)
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiu":
        return "numbers", checks.finite("time", torch.from_numpy(column.astype(np.float64)))
    kinds, values = zip(*map(read_time, column), strict=True)
    if len(set(kinds)) > 1:
        raise InputError(f"time must be of one kind for all rewards, got {' and '.join(sorted(set(kinds)))}.")
    return kinds[0], torch.tensor(values, dtype=torch.float64)


def _is_column(time: Any) -> bool:
    """Say whether a time is a list of them."""
    if isinstance(time, Tensor):
        is_real = not time.is_complex() and time.dtype != torch.bool
        return is_real and time.dim() == 1 and time.layout == torch.strided and not time.is_meta
    if isinstance(time, np.ndarray):
        return time.ndim == 1
    if isinstance(time, (list, tuple)):
        return True
    return isinstance(time, Iterable) and hasattr(time, "to_numpy") and getattr(time, "ndim", 1) == 1


@dataclass(frozen=True)
class Clock:
    """The time of a bandit. A value: moving on gives another.

    What is asked for is asked for now. A reward is of the time at which its point was played, which may lie before now.

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
            round_number: the current round.

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
        kind, now = read_time(time)
        self._require(kind, time)
        if now < self.now:
            raise InputError(
                f"Time must not go backwards: the latest was {_words(kind, self.now)}, got {_words(kind, now)}."
            )
        return type(self)(now, kind)

    def at_rewards(self, time: Any, round_number: int, asked: Sequence[float]) -> tuple[Self, Tensor | None]:
        """Return the clock once rewards are told, and when their points were played, (q,).

        Args:
            time: when they were played: one time for all or one for each, before now or after it, which moves now; None
                for when they were asked for, and for what was not asked for the current time.
            round_number: the current round.
            asked: when each of q points was asked for; NaN for what was not.

        Returns:
            The times in double precision, none of them after the clock's; None if it does not matter.

        Raises:
            InputError: if the times are of another kind than those before, or not one for each.
        """
        if time is None:
            clock = self if self.kind not in (None, "rounds") else self.moved_to(None, round_number)
            if not self.matters:
                return clock, None
            times = [clock.now if math.isnan(each) else each for each in asked]
            return clock, torch.from_numpy(np.array(times, np.float64))
        if not self.matters:
            return self.moved_to(time, round_number), None
        kind, times = read_times(time, len(asked))
        self._require(kind, time)
        return type(self)(max(self.now, float(times.max())), kind), times

    def _require(self, kind: Kind, time: Any) -> None:
        """Refuse a time of another kind than those before it."""
        if self.kind not in (None, "numbers or dates", kind):
            hint = "leave out time" if self.kind == "rounds" else "give times of one kind"
            raise InputError(
                f"This bandit's times are {self.kind} so far, and time={checks.shown(time)} is not: {hint}."
            )

    def replayed(self, times: Tensor | None, told_at: Tensor | None, rounds: Tensor) -> tuple[Self, ...]:
        """Return the clock at each round of a recorded history.

        Times told at that are the numbers of their rounds are taken for rounds, unless times were given already.

        Args:
            times: at which each point was played, (n,); None if the history has none.
            told_at: when each reward was told, (n,), in order; None for the latest time of play so far.
            rounds: of each reward, counted from 0, (n,), in order.

        Raises:
            InputError: if there are no times, or the history begins before the latest time.
        """
        if not self.matters:
            return (self,) * len(rounds.unique_consecutive())
        if times is None:
            raise InputError("This bandit has a memory, so a history to replay needs times.")
        told_at = times.cummax(0).values if told_at is None else told_at
        last = told_at[rounds.diff(append=rounds[-1:] + 1) != 0].double()
        kind, now = self.kind, self.now
        if kind in (None, "rounds"):
            counted = torch.arange(len(last), dtype=last.dtype)
            kind, now = "rounds" if torch.equal(last, counted) else "numbers or dates", -math.inf
        if len(last) and float(last[0]) < now:
            raise InputError(
                f"Time must not go backwards: the latest was {_words(kind, now)}, and the history begins at "
                f"{_words(kind, float(last[0]))}."
            )
        return tuple(type(self)(time, kind) for time in last.tolist())

    def check(self, times: Tensor) -> None:
        """Refuse a clock that is none, or times (n,) that are later than it shows.

        Raises:
            InputError: if so.
        """
        if self.kind not in (None, *get_args(Kind)):
            raise InputError(f"the clock is of an unknown kind, {self.kind!r}.")
        if not self.now < math.inf or (len(times) and float(times.max()) > self.now):
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
