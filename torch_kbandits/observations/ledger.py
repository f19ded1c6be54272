"""What was asked and what was told: points pending with their numbers, rewards in order and those kept aside."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.measured import saved_columns

#: What was told is put into one tensor after so many rounds: small tensors take more memory than their numbers.
_SEPARATE_TELLS = 1000

#: So many points pending, none of which is what is told, look like a mistake.
_STALE_POINTS = 50


#: What columns of a history have of each point.
_OF_EACH = {"stages": "stage", "times": "time", "told_at": "time"}


class History(NamedTuple):
    """What was told, in order.

    Attributes:
        X: played points (n, d).
        Y: rewards (n,); NaN of a play that failed, or of which only outcomes were told.
        rounds: (n,) the round of each, counted from 0; rewards told in one call share a round.
        stages: (n,) the stage that learned each, 0 for none; None where the bandit has no stages.
        times: (n,) when the point of each was played, in double precision, in any order; None where the bandit has no
            clock.
        outcomes: (n, k) what else was measured of each, in the order of ``Bandit.outcomes``, NaN where it was not; None
            where no outcome is declared.
        told_at: (n,) the present when each was told, in double precision like the times and not before them; None
            where the bandit has no clock, or for rewards told in the order played, when their points were.
        failed: (n,) bool, which plays failed; None where no outcome is declared: then it is those without a reward.
    """

    X: Tensor
    Y: Tensor
    rounds: Tensor
    stages: Tensor | None = None
    times: Tensor | None = None
    outcomes: Tensor | None = None
    told_at: Tensor | None = None
    failed: Tensor | None = None

    @property
    def rewarded(self) -> "History":
        """What has a reward."""
        missing = self.Y.isnan()
        return self.rows(~missing) if bool(missing.any()) else self

    @property
    def lost(self) -> Tensor:
        """Which plays failed, (n,) bool."""
        return self.Y.isnan() if self.failed is None else self.failed

    @property
    def over(self) -> "History":
        """What has a reward or failed: not the plays of which only outcomes were told."""
        if self.failed is None:
            return self
        missing = self.Y.isnan() & ~self.failed
        return self.rows(~missing) if bool(missing.any()) else self

    @property
    def next_round(self) -> int:
        """The round after the last one told."""
        return int(self.rounds[-1]) + 1 if len(self.rounds) else 0

    def rows(self, which: slice | Tensor) -> "History":
        """Return the part of some rows."""
        return History(*(None if part is None else part[which] for part in self))  # pyright: ignore[reportArgumentType]

    def copied(self, device: torch.device | None = None) -> "History":
        """Return a copy that shares no memory, on a device; None for that on which it is."""
        parts = (None if part is None else part.to(device, copy=True) for part in self)
        return History(*parts)  # pyright: ignore[reportArgumentType]


def empty_history(example: Tensor, *, staged: bool = False, timed: bool = False, num_outcomes: int = 0) -> History:
    """Return a history without observations, of the kind of the example point (1, d)."""
    nothing = torch.zeros(0, dtype=torch.long)
    times = nothing.double() if timed else None
    return History(
        X=example[:0],
        Y=example.new_zeros(0),
        rounds=nothing,
        stages=nothing if staged else None,
        times=times,
        outcomes=example.new_zeros(0, num_outcomes) if num_outcomes else None,
        told_at=times,
        failed=nothing.bool() if num_outcomes else None,
    )


def joined(parts: Sequence[History]) -> History:
    """Return one history from its parts, in order; all of them have stages and times or none."""
    columns = zip(*parts, strict=True)
    return History(*(None if column[0] is None else torch.cat(column) for column in columns))  # pyright: ignore


def real_numbers(y: Any, like: Tensor) -> Tensor:
    """Return rewards in any form as a tensor on the CPU of the dtype of ``like``, of the shape they came in.

    Args:
        y: as ``checks.real_numbers`` takes it.
        like: whatever has the dtype.

    Raises:
        InputError: if it is anything else, or not finite, or beyond the range of the dtype.
    """
    given = checks.real_numbers("y", y)
    if isinstance(given, Tensor) and given.dtype == like.dtype:
        return checks.finite("y", given.detach().cpu()).clone()
    values = (given.cpu() if isinstance(given, Tensor) else torch.from_numpy(given)).double()
    converted = checks.finite("y", values).to(like.dtype)
    if converted is not values and not checks.all_finite(converted):
        raise InputError(
            f"y must be within ±{torch.finfo(like.dtype).max:.3g}, the range of the points' {like.dtype}; got "
            f"{float(values[~torch.isfinite(converted)][0])!r}."
        )
    return converted


def rewards(y: Any, X: Tensor, *, missing: bool = False) -> Tensor:
    """Return rewards (q,) of the points X (q, d), converted to their kind; see ``real_numbers``.

    Args:
        y: a reward for each.
        X: (q, d).
        missing: whether NaN stands for a play that failed.

    Raises:
        InputError: if they cannot be, or there is not one for each point: y of shape (q,) or (q, 1), or () if q = 1.
    """
    there = y.isfinite() if missing and isinstance(y, Tensor) else None
    Y = real_numbers(y if there is None else torch.where(y.isnan(), 0.0, y), X)
    Y = Y if there is None else torch.where(there, Y, torch.nan)
    number = X.shape[0]
    if tuple(Y.shape) not in ((number,), (number, 1)) and not (number == 1 and Y.dim() == 0):
        raise InputError(f"y must have a reward for each of the {number} point(s), got {checks.describe(y)}.")
    return Y.reshape(-1)


def checked_history(
    history: Any, example: Tensor, num_stages: int, num_outcomes: int, *, timed: bool, dated: bool
) -> History:
    """Return a copy of a recorded history, its columns checked as if it was told.

    Args:
        history: recorded.
        example: a point (1, d) of the bandit that takes it.
        num_stages: of that bandit.
        num_outcomes: how many outcomes it has.
        timed: whether it has a clock.
        dated: whether its points know the time, so that they are in double precision.

    Raises:
        InputError: if its parts do not belong together, or do not fit that bandit.
    """
    _check_columns(history)
    X = history.X.to(example.device, torch.float64 if dated else None, copy=True)
    X = checks.points("history.X", X, dimension=example.shape[-1], like=example)
    Y = rewards(history.Y, X, missing=True) if len(X) else example.new_zeros(0)
    times, told_at = (
        part.to(example.device, torch.float64, copy=True) if timed and part is not None else None
        for part in (history.times, history.told_at)
    )
    stages, outcomes = checked_stages(history.stages, X, num_stages), saved_columns(history.outcomes, X, num_outcomes)
    failed = saved_failures(history.failed, Y, num_outcomes)
    return History(X, Y, history.rounds.to(example.device, copy=True), stages, times, outcomes, told_at, failed)


def _check_columns(history: Any) -> None:
    """Refuse a history whose parts do not belong together."""
    checks.instance("history", history, History, "a History, as bandit.history is")
    for name, column in history._asdict().items():
        if column is not None or name in ("X", "Y", "rounds"):
            checks.instance(f"history.{name}", column, Tensor, "a torch tensor")
            checks.in_memory(f"history.{name}", cast(Tensor, column))
    if history.rounds.dim() != 1 or history.rounds.dtype != torch.long:
        raise InputError(f"The rounds of a history must be whole numbers, (n,), got {checks.describe(history.rounds)}.")
    for name, column in history._asdict().items():
        if column is not None and (not column.dim() or len(column) != len(history.rounds)):
            one = _OF_EACH.get(name, "row")
            raise InputError(
                f"The history must have as many points as rewards and rounds, and a {one} for each; got {name} as "
                f"{checks.describe(column)} and {len(history.rounds)} rounds."
            )
    if history.X.dim() != 2:
        raise InputError(f"The points of a history must be (n, d), got {checks.describe(history.X)}.")
    if bool((history.rounds.diff() < 0).any()):
        raise InputError("The rounds of a history must not decrease.")
    for name, times in (("times", history.times), ("told_at", history.told_at)):
        if times is None:
            continue
        if times.dim() != 1:
            raise InputError(f"The history must have a time for each point, got {name} as {checks.describe(times)}.")
        checks.finite(f"history.{name}", checks.floating_tensor(f"history.{name}", times))
    if history.told_at is None:
        return
    steps = history.told_at.diff()
    if bool((steps < 0).any()) or bool((steps[history.rounds.diff() == 0] != 0).any()):
        raise InputError("The times at which a history was told must not decrease, and be one for each round.")
    if history.times is not None and bool((history.times > history.told_at).any()):
        raise InputError("The points of a history must have been played before or when their rewards were told.")


def saved_failures(failed: Tensor | None, Y: Tensor, num_outcomes: int) -> Tensor | None:
    """Return which plays of rewards (n,) failed, (n,); None where no outcome is declared. Unless said, those without.

    Raises:
        InputError: if it is not said of each play, or one that failed has a reward.
    """
    if not num_outcomes:
        return None
    missing = Y.isnan()
    if failed is None:
        return missing
    if failed.shape != Y.shape or failed.dtype != torch.bool or bool((failed & ~missing).any()):
        raise InputError(f"failed must say of {len(Y)} play(s) which failed and have no reward; got {failed.tolist()}.")
    return failed.clone()


def checked_stages(stages: Tensor | None, X: Tensor, num_stages: int) -> Tensor | None:
    """Return the stages of points (n, d): 0 where none are known, None where a bandit has no stages.

    Raises:
        InputError: if they are not a whole number from 0 to ``num_stages`` for each point.
    """
    if num_stages == 0:
        return None
    if stages is None:
        return torch.zeros(len(X), dtype=torch.long)
    if stages.shape != X.shape[:1] or stages.dtype != torch.long or bool(((stages < 0) | (stages > num_stages)).any()):
        raise InputError(
            f"stages must be a whole number from 0 to {num_stages} for each of the {len(X)} point(s), got "
            f"{checks.describe(stages)}: {stages.tolist()[:10]}."
        )
    return stages.clone()


class Pending(NamedTuple):
    """Points asked for and not yet told, in the order asked.

    Attributes:
        points: (k, d).
        ids: of each, ascending.
        times: when each was asked for, ascending; the round where the bandit has no clock.
        stages: (k,) the stage that chose each, 0 for none; None where the bandit has no stages.
    """

    points: Tensor
    ids: tuple[int, ...]
    times: tuple[float, ...]
    stages: Tensor | None = None

    def without(self, told: Tensor, first: int = 0) -> "Pending":
        """Return the points without one row for each row of ``told`` (q, d) that is among them: the one asked first.

        Rows are equal if they are from column ``first`` on.
        """
        return self.without_rows(self.rows_of(told, first))

    def rows_of(self, told: Tensor, first: int = 0) -> list[int]:
        """Return which row each row of ``told`` (q, d) is, as ``without`` finds them; -1 for what is not pending."""
        if torch.equal(self.points, told) if not first else torch.equal(self.points[:, first:], told[:, first:]):
            return list(range(told.shape[0]))
        left, rows = list(range(len(self.ids))), []
        for row in told[:, first:] if left else ():
            matches = (self.points[left, first:] == row).all(-1).nonzero().flatten()
            rows.append(left.pop(int(matches[0])) if len(matches) else -1)
        return rows or [-1] * len(told)

    def found(self, told: Tensor, first: int = 0) -> tuple[Tensor, list[int]]:
        """Return points told (q, d) as nobody else has them, and which rows they are; see ``rows_of``.

        They are the very points asked for where they are all of these, so that who remembers them need not look again.
        """
        rows = self.rows_of(told, first)
        is_all = rows == list(range(len(self.ids))) and not first
        return self.points if is_all else told.detach().clone(), rows

    def rows_at(self, ids: Sequence[int]) -> list[int]:
        """Return the rows of ids, all of which are pending, in the order given."""
        row_of = {number: row for row, number in enumerate(self.ids)}
        return [row_of[number] for number in ids]

    def without_rows(self, rows: Sequence[int]) -> "Pending":
        """Return the points without some rows; -1 stands for none."""
        gone = set(rows) - {-1}
        if not gone:
            return self
        if len(gone) == len(self.ids):
            stages = None if self.stages is None else self.stages[:0]
            return Pending(self.points[:0], (), (), stages)
        return self._at([row for row in range(len(self.ids)) if row not in gone])

    def times_of(self, rows: Sequence[int]) -> list[float]:
        """Return when points were asked for, given their rows; NaN for -1."""
        return [self.times[row] if row >= 0 else math.nan for row in rows]

    def stages_of(self, rows: Sequence[int]) -> Tensor | None:
        """Return the stages of points, given their rows, (q,); 0 for -1."""
        return None if self.stages is None else torch.cat([self.stages, self.stages.new_zeros(1)])[list(rows)]

    def warn_if_stale(self, remaining: "Pending", stacklevel: int) -> bool:
        """Say that points pile up which are asked for and never told, as when they are rounded on the way.

        Args:
            remaining: what is pending once something was told.
            stacklevel: how many calls above this one the warning is about.

        Returns:
            Whether it is so.
        """
        is_stale = len(self.ids) == len(remaining.ids) >= _STALE_POINTS
        if is_stale:
            warnings.warn(
                f"What was told is not among the {len(remaining.ids)} pending points: they make every ask slower and "
                "keep the bandit away from them. Tell points exactly as they were asked for, forget(x) what was not "
                "evaluated, or ask(remember=False) if nothing is evaluated in parallel.",
                KernelBanditWarning,
                stacklevel=stacklevel,
            )
        return is_stale

    def without_ids(self, ids: Sequence[int]) -> "Pending":
        """Return the points without those of the ids, all of which are pending."""
        return self.without_rows(self.rows_at(ids))

    def _at(self, rows: list[int]) -> "Pending":
        stages = None if self.stages is None else self.stages[rows]
        ids, times = [self.ids[row] for row in rows], [self.times[row] for row in rows]
        return Pending(self.points[rows], tuple(ids), tuple(times), stages)


def as_ids(ids: Any) -> list[int]:
    """Return one id or several, as ``ask(return_ids=True)`` returns them, as a list."""
    numbers = checks.whole_numbers("ids", ids)
    if not numbers:
        raise InputError(f"ids must be one or more whole numbers, as ask returns; got {checks.describe(ids)}.")
    return numbers


@dataclass(frozen=True, eq=False)
class Ledger:
    """What was asked and what was told. A value: asking and telling return another.

    Attributes:
        told: what was told, in order, in parts.
        held: told, and kept aside by the batch rule.
        pending: points asked for and not yet told.
        num_asked: how many points were ever asked for.
        num_told: how many rewards were ever told.
        num_forgotten: how many of them, the first, were forgotten on demand.
    """

    told: tuple[History, ...]
    held: tuple[History, ...]
    pending: Pending
    num_asked: int
    num_told: int = 0
    num_forgotten: int = 0

    @classmethod
    def empty(cls, example: Tensor, *, staged: bool = False, timed: bool = False, num_outcomes: int = 0) -> Self:
        """Return the ledger in which nothing was asked or told, of the kind of the example point (1, d)."""
        history = empty_history(example, staged=staged, timed=timed, num_outcomes=num_outcomes)
        return cls((history,), (), Pending(example[:0], (), (), history.stages), 0)

    @classmethod
    def restored(
        cls, history: History, pending: Pending, num_asked: int, num_learned: int, num_forgotten: int = 0
    ) -> Self:
        """Return the ledger of a saved bandit, which had learned all but the last rewards and forgotten the first."""
        held = history.rows(slice(num_learned, None))
        number = len(history.X)
        return cls((history,), (held,) if len(held.X) else (), pending, num_asked, number, num_forgotten)

    @property
    def num_learned(self) -> int:
        """How many rewards were learned, those forgotten since included."""
        return self.num_told - sum(len(held.X) for held in self.held)

    @property
    def restarted(self) -> Self:
        """This ledger with all that was told so far forgotten."""
        return replace(self, held=(), num_forgotten=self.num_told)

    @property
    def in_one_part(self) -> Self:
        """This ledger with all that was told in one part."""
        return self if len(self.told) == 1 else replace(self, told=(joined(self.told),))

    def told_since(self, number: int) -> History:
        """Return what was told after the first ``number`` rewards. Cost: O(what is returned)."""
        left, parts = self.num_told - number, []
        for part in reversed(self.told):
            if left <= 0:
                break
            parts.append(part.rows(slice(max(len(part.X) - left, 0), None)))
            left -= len(part.X)
        return joined(parts[::-1]) if parts else self.told[-1].rows(slice(0, 0))

    @property
    def outstanding(self) -> Tensor:
        """The points of the batch so far: told and not yet learned, then pending, (k, d)."""
        held = [part.over.X for part in self.held]
        return torch.cat([*held, self.pending.points]) if held else self.pending.points

    @property
    def outstanding_stages(self) -> Tensor | None:
        """The stage that chose each of the ``outstanding`` points, (k,), 0 for none; None where there are no stages."""
        pending = self.pending.stages
        held = [stages for part in self.held if (stages := part.over.stages) is not None]
        return None if pending is None else torch.cat([*held, pending])

    def with_asked(self, X: Tensor, now: float, stages: Tensor | None = None) -> Self:
        """Return the ledger with points (q, d) pending under the next numbers, which stages (q,) chose, or none.

        Nobody may write to the points. They are asked for at the present time, or round where a bandit has no clock.
        """
        number, before = X.shape[0], self.pending
        ids = tuple(range(self.num_asked, self.num_asked + number))
        if before.stages is not None:
            stages = torch.cat([before.stages, before.stages.new_zeros(len(X)) if stages is None else stages])
        points = torch.cat([before.points, X]) if before.ids else X
        pending = Pending(points, before.ids + ids, before.times + (now,) * number, stages)
        return changed(self, pending=pending, num_asked=self.num_asked + number)

    def with_told(self, told: History, held: tuple[History, ...], pending: Pending) -> Self:
        """Return the ledger with one more round told, of which these rewards are kept aside and these points remain."""
        parts = (*self.told, told)
        parts = parts if len(parts) <= _SEPARATE_TELLS else (joined(parts),)
        return changed(self, told=parts, held=held, pending=pending, num_told=self.num_told + told.X.shape[0])

    def pending_ids(self, ids: Any, expires: str | None = None) -> list[int]:
        """Return ids as a list, all of which are pending.

        Args:
            ids: one or several.
            expires: what may have become of those that are not, besides, and what to do; None for nothing.

        Raises:
            InputError: if one is not.
        """
        numbers = as_ids(ids)
        if len(set(numbers)) != len(numbers):
            raise InputError(f"ids must differ, got {numbers}.")
        pending = set(self.pending.ids)
        for number in numbers:
            if not 0 <= number < self.num_asked:
                raise InputError(f"id {number} is unknown: {self.num_asked} point(s) were asked for, numbered from 0.")
            if number not in pending:
                hint = "" if expires is None else f", or it expired: {expires}"
                raise InputError(f"id {number} is not pending: it was told or forgotten already{hint}.")
        return numbers
