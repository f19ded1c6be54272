"""What was asked and what was told: points pending with their numbers, rewards in order and those kept aside."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.history import History, joined

#: What was told is put into one tensor after so many rounds: small tensors take more memory than their numbers.
_SEPARATE_TELLS = 1000

#: So many points pending, none of which is what is told, look like a mistake.
_STALE_POINTS = 50


class Pending(NamedTuple):
    """Points asked for and not yet told, in the order asked.

    Attributes:
        points: (k, d).
        ids: of each, ascending.
        times: when each was asked for, ascending; the round where the bandit has no clock.
        rows: which of the actions of its round each was, -1 where that was not noted.
        propensities: with what probability each was chosen, 0 where that was not noted.
        stages: (k,) the stage that chose each, 0 for none; None where the bandit has no stages.
    """

    points: Tensor
    ids: tuple[int, ...]
    times: tuple[float, ...]
    rows: tuple[int, ...]
    propensities: tuple[float, ...]
    stages: Tensor | None = None

    def found(self, told: Tensor, first: int = 0, noted: Sequence[int] = ()) -> tuple[Tensor, list[int]]:
        """Return points told (q, d) as nobody else has them, and which row each is from column ``first`` on; or -1.

        Of equal ones it is the first that is left, or the first that was ``noted`` in ``rows`` as told, if any was.
        """
        every = list(range(len(self.ids)))
        is_all = torch.equal(self.points[:, first:], told[:, first:]) if first else torch.equal(self.points, told)
        if is_all and (not noted or self.rows == tuple(noted)):
            return told.detach().clone() if first else self.points, every
        left, rows = [*every], [-1] * len(told)
        for place, row in enumerate(told[:, first:] if left else ()):
            matches = (self.points[left, first:] == row).all(-1).nonzero().flatten().tolist()
            if matches:
                same = [match for match in matches if noted and self.rows[left[match]] == noted[place]]
                rows[place] = left.pop((same or matches)[0])
        return told.detach().clone(), rows

    def without_rows(self, rows: Sequence[int]) -> "Pending":
        """Return the points without some rows; -1 stands for none."""
        gone = {row for row in rows if row >= 0}
        if not gone:
            return self
        if len(gone) == len(self.ids):
            return Pending(self.points[:0], (), (), (), (), None if self.stages is None else self.stages[:0])
        left = [row for row in range(len(self.ids)) if row not in gone]
        ids, times, noted, stated = (tuple(part[row] for row in left) for part in cast(Any, self[1:5]))
        stages = None if self.stages is None else self.stages[left]
        return Pending(self.points[left], ids, times, noted, stated, stages)

    def without(self, told: Tensor, first: int = 0) -> "Pending":
        """Return the points without one row for each row of ``told`` (q, d) that is among them; see ``found``."""
        return self.without_rows(self.found(told, first)[1])

    def times_of(self, rows: Sequence[int]) -> list[float]:
        """Return when points were asked for, given their rows; NaN for -1."""
        return [self.times[row] if row >= 0 else math.nan for row in rows]

    def stages_of(self, rows: Sequence[int]) -> Tensor | None:
        """Return the stages of points, given their rows, (q,); 0 for -1."""
        return None if self.stages is None else torch.cat([self.stages, self.stages.new_zeros(1)])[list(rows)]

    def propensities_of(self, rows: Sequence[int]) -> Tensor | None:
        """Return the propensities of points, given their rows, (q,), NaN where not noted; None if none was."""
        noted = [(self.propensities[row] if row >= 0 else 0.0) or math.nan for row in rows]
        return None if all(map(math.isnan, noted)) else torch.tensor(noted, dtype=torch.float64)

    def warn_if_stale(self, remaining: "Pending", stacklevel: int) -> bool:
        """Warn, so many calls above this one, if points pile up of which none is what was told; say whether they do."""
        is_stale = len(self.ids) == len(remaining.ids) >= _STALE_POINTS
        if is_stale:
            message = (
                f"What was told is not among the {len(self.ids)} pending points: they make every ask slower and keep "
                "the bandit away from them. Tell points exactly as they were asked for, forget(x) what was not "
                "evaluated, or ask(remember=False) if nothing is evaluated in parallel."
            )
            warnings.warn(message, KernelBanditWarning, stacklevel)
        return is_stale


@dataclass(frozen=True, eq=False)
class Ledger:
    """What was asked and what was told. A value: asking and telling return another.

    Attributes:
        told: what was told, in order, in parts.
        held: the last of it, which the batch rule keeps aside.
        pending: points asked for and not yet told.
        num_asked: how many points were ever asked for.
        num_observations: how many rewards were ever told.
        num_forgotten: how many of them, the first, were forgotten on demand.
    """

    told: tuple[History, ...]
    held: tuple[History, ...]
    pending: Pending
    num_asked: int
    num_observations: int = 0
    num_forgotten: int = 0

    @classmethod
    def empty(cls, example: Tensor, *, staged: bool = False, timed: bool = False, num_outcomes: int = 0) -> Self:
        """Return the ledger in which nothing was asked or told, of the kind of the example point (1, d)."""
        nothing = torch.zeros(0, dtype=torch.long)
        stages, times = nothing if staged else None, nothing.double() if timed else None
        outcomes, failed = (example.new_zeros(0, num_outcomes), nothing.bool()) if num_outcomes else (None, None)
        parts = example[:0], example.new_zeros(0), nothing, stages, times, outcomes, times, failed
        return cls((History(*parts),), (), Pending(example[:0], (), (), (), (), stages), 0)

    @classmethod
    def restored(
        cls, history: History, pending: Pending, num_asked: int, num_learned: int, num_forgotten: int = 0
    ) -> Self:
        """Return the ledger of a saved bandit, which had learned all but the last rewards and forgotten the first."""
        number, held = len(history.X), history.rows(slice(num_learned, None))
        return cls((history,), (held,) if len(held.X) else (), pending, num_asked, number, num_forgotten)

    @property
    def num_learned(self) -> int:
        """How many rewards were learned, those forgotten since included."""
        return self.num_observations - sum(len(held.X) for held in self.held) if self.held else self.num_observations

    @property
    def in_one_part(self) -> Self:
        """This ledger with all that was told in one part."""
        return self if len(self.told) == 1 else replace(self, told=(joined(self.told),))

    def history_since(self, number: int) -> History:
        """Return what was told after the first ``number`` rewards. Cost: O(what is returned)."""
        left, parts = self.num_observations - number, []
        for part in reversed(self.told):
            if left <= 0:
                break
            parts.append(part.rows(slice(max(len(part.X) - left, 0), None)))
            left -= len(part.X)
        return joined(parts[::-1]) if parts else self.told[-1].rows(slice(0, 0))

    @property
    def outstanding(self) -> Tensor:
        """The points of the batch so far: told and not yet learned, then pending, (k, d)."""
        if not self.held:
            return self.pending.points
        return torch.cat([*(part.over.X for part in self.held), self.pending.points])

    @property
    def outstanding_stages(self) -> Tensor | None:
        """The stage that chose each of the ``outstanding`` points, (k,), 0 for none; None where there are no stages."""
        if self.pending.stages is None:
            return None
        return torch.cat([*(part.over.stages for part in self.held), self.pending.stages])  # pyright: ignore

    def with_asked(self, X: Tensor, now: float, stages: Tensor | None = None, rows: Any = (), stated: Any = ()) -> Self:
        """Return the ledger with points (q, d), to which nobody may write, pending since now, as was noted."""
        before, end = self.pending, self.num_asked + X.shape[0]
        if before.stages is not None:
            stages = torch.cat([before.stages, before.stages.new_zeros(len(X)) if stages is None else stages])
        ids, times = before.ids + tuple(range(self.num_asked, end)), before.times + (now,) * X.shape[0]
        noted = before.rows + (tuple(rows) if rows else (-1,) * X.shape[0])
        stated = before.propensities + (tuple(stated) if stated else (0.0,) * X.shape[0])
        pending = Pending(torch.cat([before.points, X]) if before.ids else X, ids, times, noted, stated, stages)
        return changed(self, pending=pending, num_asked=end)

    def with_told(self, told: History, held: tuple[History, ...], pending: Pending) -> Self:
        """Return the ledger with one more round told, of which these rewards are kept aside and these points remain."""
        parts = (*self.told, told)
        parts, number = parts if len(parts) <= _SEPARATE_TELLS else (joined(parts),), told.X.shape[0]
        return changed(self, told=parts, held=held, pending=pending, num_observations=self.num_observations + number)

    def pending_rows(self, ids: Any, expires: str | None = None) -> list[int]:
        """Return the rows of pending points of ids; ``expires`` says what else may have become of them."""
        numbers = checks.whole_numbers("ids", ids)
        if not numbers or len(set(numbers)) != len(numbers):
            raise InputError(f"ids must be one or more that differ, as ask returns; got {checks.describe(ids)}.")
        row_of = {number: row for row, number in enumerate(self.pending.ids)}
        for number in numbers:
            if not 0 <= number < self.num_asked:
                raise InputError(f"id {number} is unknown: {self.num_asked} point(s) were asked for, numbered from 0.")
            if number not in row_of:
                hint = "" if expires is None else f", or it expired: {expires}"
                raise InputError(f"id {number} is not pending: it was told or forgotten already{hint}.")
        return [row_of[number] for number in numbers]


@dataclass(frozen=True)
class Expiry:
    """Points that are pending for too long are given up at the next call of ``ask``, ``mark_pending`` or ``tell``.

    Args:
        after: the age at which a point is given up, above 0: in rounds or, where times are given, in their units, of
            dates in seconds.
        then: "drop": as if it was forgotten; "fail": as if it was told that it failed, in a round of its own.
    """

    after: float
    then: Literal["drop", "fail"] = "drop"

    def __post_init__(self) -> None:
        checks.keep(self, after=checks.positive)
        checks.one_of("then", self.then, ("drop", "fail"))

    @classmethod
    def of(cls, word: Any) -> Self | None:
        """Return the expiry that an argument ``expire_after`` stands for: an age means that points are dropped."""
        return word if word is None or isinstance(word, cls) else cls(checks.positive("expire_after", word))

    def rows(self, pending: Pending, now: float) -> list[int]:
        """Return which of the points that are pending are given up at a time, the longest pending first."""
        return list(range(sum(now - time >= self.after for time in pending.times)))  # those asked for first are first

    def __str__(self) -> str:
        return f"expire_after={self.after:g} {self.then}s what is pending so long"
