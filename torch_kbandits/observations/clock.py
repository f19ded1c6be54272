"""When things happen: rounds, numbers or dates, one kind for a bandit. The current time never goes backwards."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: What the times of a bandit are: its own rounds, numbers of any unit, or dates without or with a time zone. A history
#: that was replayed does not say which of the latter.
Kind = Literal["rounds", "numbers", "dates", "dates with a time zone", "numbers or dates"]


def read_time(time: Any) -> tuple[Kind, float]:
    """Return the kind and the value of a number or a date: seconds since 1970, in UTC if naive."""
    given, is_numpy = time, isinstance(time, np.datetime64)
    if is_numpy:
        time = time.astype("datetime64[us]").item()
    elif isinstance(time, datetime) and hasattr(type(time), "to_pydatetime"):
        time = time.to_pydatetime(warn=False)  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(time, date) and not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if isinstance(time, datetime) and time == time:  # the date of pandas that is none differs from itself
        if time.tzinfo is None:
            return "dates", time.replace(tzinfo=UTC).timestamp()
        return "dates with a time zone", time.timestamp()
    if is_numpy or isinstance(time, (bool, datetime)) or not isinstance(checks.scalar(time), Real):
        raise InputError(f"time must be a number or a date of the years 1 to 9999, got {checks.describe(given)}.")
    return "numbers", checks.finite_number("time", time)


def read_times(time: Any, number: int) -> tuple[Kind, Tensor]:
    """Return the kind and the values (q,) of the times of so many rewards, one for all or one for each."""
    if isinstance(time, np.ndarray) and time.dtype.kind == "M":
        time = time.astype("datetime64[us]").astype(object)
    listed = time if isinstance(time, np.datetime64) else checks.listed("time", time)
    if not isinstance(listed, (list, tuple)):
        kind, value = read_time(time)
        return kind, torch.full((number,), value, dtype=torch.float64)
    if len(listed) != number:
        raise InputError(f"time must be one for all {number} reward(s), or one for each; got {len(listed)}.")
    kinds, values = zip(*map(read_time, listed), strict=True)
    if len(set(kinds)) > 1:
        raise InputError(f"time must be of one kind for all rewards, got {' and '.join(sorted(set(kinds)))}.")
    return kinds[0], torch.tensor(values, dtype=torch.float64)


class Clock(NamedTuple):
    """The time of a bandit, at which points are asked for; rewards may be of earlier ones. A value.

    Attributes:
        now: the latest time, minus infinity before the first; see ``read_time``.
        kind: what times are; None where the next one decides.
        matters: whether it matters when something is asked or told; where not, every time is refused.
    """

    now: float = -math.inf
    kind: Kind | None = None
    matters: bool = True

    def moved_to(self, time: Any, round_number: int) -> "Clock":
        """Return the clock at the time of an ``ask``: a number or a date; None for the current round."""
        if not self.matters:
            if time is not None:
                raise InputError("This bandit has no memory, so it knows no time: give it memory=, or leave out time.")
            return self
        if time is None:
            if self.kind not in (None, "rounds"):
                raise InputError(f"time is missing: this bandit's times are {self.kind}, so give time= here too.")
            return Clock(float(round_number), "rounds")
        kind, now = read_time(time)
        self._require(kind, time)
        self._require_not_before(kind, now, "got")
        return Clock(now, kind)

    def at_rewards(self, time: Any, round_number: int, asked: Sequence[float]) -> tuple["Clock", Tensor | None]:
        """Return the clock once rewards are told, and when their points were played, (q,); None if it does not matter.

        Args:
            time: when they were played, one for all or one for each: a later one moves now. None: when each was asked
                for, or now.
            round_number: the current round.
            asked: when each of q points was asked for; NaN for what was not.
        """
        if not self.matters:
            return self.moved_to(time, round_number), None
        if time is None:
            clock = self if self.kind not in (None, "rounds") else self.moved_to(None, round_number)
            times = [clock.now if math.isnan(each) else each for each in asked]
            return clock, torch.from_numpy(np.array(times, np.float64))
        kind, times = read_times(time, len(asked))
        self._require(kind, time)
        return Clock(max(self.now, float(times.max())), kind), times

    def _require(self, kind: Kind, time: Any) -> None:
        """Refuse a time of another kind than those before it."""
        if self.kind not in (None, "numbers or dates", kind):
            hint = "leave out time" if self.kind == "rounds" else "give times of one kind"
            got = f"and time={checks.shown(time)} is not"
            raise InputError(f"This bandit's times are {self.kind} so far, {got}: {hint}.")

    def _require_not_before(self, kind: Kind, time: float, what: str) -> None:
        if time < self.now:
            is_date = kind.startswith("dates")
            said = [datetime.fromtimestamp(t, UTC).isoformat() if is_date else f"{t:.10g}" for t in (self.now, time)]
            raise InputError(f"Time must not go backwards: the latest was {said[0]}, {what} {said[1]}.")

    def replayed(self, times: Tensor | None, told_at: Tensor | None, rounds: Tensor) -> tuple["Clock", ...]:
        """Return the clock at each round of a recorded history, given its columns (n,) or None.

        Times told at are by default the latest times of play so far. If they are 0, 1, …, they are taken for rounds,
        unless times were given already.
        """
        if not self.matters:
            return (self,) * len(rounds.unique_consecutive())
        if times is None:
            raise InputError("This bandit has a memory, so a history to replay needs times.")
        told_at = times.cummax(0).values if told_at is None else told_at
        last = told_at[rounds.diff(append=rounds[-1:] + 1) != 0].tolist()
        kind = self.kind
        if kind in (None, "rounds"):
            kind = "rounds" if last == list(range(len(last))) else "numbers or dates"
        elif last:
            self._require_not_before(kind, last[0], "and the history begins at")
        return tuple(Clock(time, kind) for time in last)

    @property
    def undecided(self) -> "Clock":
        """This clock, if its rounds may have been given as numbers: then the next time decides what times are."""
        return self._replace(kind=None) if self.kind == "rounds" else self

    def after_reward(self, round_number: int) -> "Clock":
        """Return the clock once a reward is told, before a round: rounds go on by themselves."""
        return Clock(float(round_number), self.kind) if self.kind == "rounds" else self
