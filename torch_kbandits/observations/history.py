"""What was told, in order."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.observations.told import rewards

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
        told_at: (n,) the time when each was told, in double precision like the times and not before them; None
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


def saved_columns(outcomes: Tensor | None, X: Tensor, number: int) -> Tensor | None:
    """Return recorded outcomes (n, k) of points X (n, d), of which there must be a number; None of none.

    Raises:
        InputError: if there are others, or one is infinite.
    """
    if number == 0 and outcomes is None:
        return None
    if outcomes is None or outcomes.shape != (len(X), number) or not outcomes.is_floating_point():
        got = "none" if outcomes is None else checks.describe(outcomes)
        raise InputError(f"The history must have {number} outcome(s) of each of {len(X)} play(s), got {got}.")
    columns = outcomes.to(X).clone()
    if bool(columns.isinf().any()):
        raise InputError("The outcomes of a history must be finite, or NaN where they were not measured.")
    return columns
