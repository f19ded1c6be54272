"""What was told of plays, in order: rewards, which of them failed, and what else was measured."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Noise told counts as at least, and at most, so many times λ: beyond that numbers lose all digits, or nothing changes.
_LEAST_NOISE, _LARGEST_NOISE = 1e-6, 1e30


class History(NamedTuple):
    """What was told, in order.

    Attributes:
        X: played points (n, d).
        Y: rewards (n,); NaN of a play that failed, or of which only outcomes were told.
        rounds: (n,) the round of each, counted from 0; rewards told in one call share a round.
        stages: (n,) the stage that learned each, 0 for none; None where the bandit has no stages.
        times: (n,) when the point of each was played, in double precision, in any order; None without a clock.
        outcomes: (n, k) what else was measured of each, in the order of ``Bandit.outcomes``, NaN where it was not; None
            where no outcome is declared.
        told_at: (n,) when each was told, in double precision, not before it was played; None without a clock, or where
            rewards were told in the order played, when their points were.
        failed: (n,) bool, which plays failed; None where no outcome is declared: then it is those without a reward.
        propensities: (n,) with what probability the point of each was chosen when it was asked for, in double
            precision, NaN where that was not noted; None where it never was. See ``Bandit.propensities``.
        noise: (n,) the noise variance told of each reward, in reward units squared and in double precision, NaN where
            it is not known; None where none ever was.
    """

    X: Tensor
    Y: Tensor
    rounds: Tensor
    stages: Tensor | None = None
    times: Tensor | None = None
    outcomes: Tensor | None = None
    told_at: Tensor | None = None
    failed: Tensor | None = None
    propensities: Tensor | None = None
    noise: Tensor | None = None

    @property
    def rewarded(self) -> "History":
        """What has a reward."""
        return self._without(self.Y.isnan())

    @property
    def lost(self) -> Tensor:
        """Which plays failed, (n,) bool."""
        return self.Y.isnan() if self.failed is None else self.failed

    @property
    def over(self) -> "History":
        """What has a reward or failed: not the plays of which only outcomes were told."""
        return self if self.failed is None else self._without(self.Y.isnan() & ~self.failed)

    @property
    def next_round(self) -> int:
        """The round after the last one told."""
        return int(self.rounds[-1]) + 1 if len(self.rounds) else 0

    def noise_or(self, regularization: float | Tensor) -> float | Tensor:
        """Return the noise variance of each reward, (n,): λ where none was told; λ alone if none ever was."""
        return regularization if self.noise is None else own_or(self.noise, regularization)

    def rows(self, which: slice | Tensor) -> "History":
        """Return the part of some rows."""
        return History(*(None if part is None else part[which] for part in self))  # pyright: ignore[reportArgumentType]

    def copied(self, device: torch.device | None = None) -> "History":
        """Return a copy that shares no memory, on a device; None for that on which it is."""
        parts = (None if part is None else part.to(device, copy=True) for part in self)
        return History(*parts)  # pyright: ignore[reportArgumentType]

    def _without(self, rows: Tensor) -> "History":
        return self.rows(~rows) if bool(rows.any()) else self


def joined(parts: Sequence[History]) -> History:
    """Return one history from its parts, in order; all of them have stages and times or none."""
    for name in ("propensities", "noise"):
        if len({getattr(part, name) is None for part in parts}) > 1:
            for place, part in enumerate(parts := [*parts]):
                none = {name: torch.full_like(part.Y, math.nan, dtype=torch.float64)}
                parts[place] = part if getattr(part, name) is not None else part._replace(**none)
    columns = zip(*parts, strict=True)
    return History(*(None if column[0] is None else torch.cat(column) for column in columns))  # pyright: ignore


def own_or(noise: Tensor, regularization: float | Tensor) -> Tensor:
    """Return noise variances as they count, (n,): λ where one is NaN, and none so far from it that digits are lost."""
    level = torch.as_tensor(regularization, dtype=torch.float64, device=noise.device)
    return torch.where(noise.isnan(), level, noise.clamp(_LEAST_NOISE * level, _LARGEST_NOISE * level))


def checked_history(
    history: Any, example: Tensor, num_stages: int, num_outcomes: int, *, timed: bool, dated: bool
) -> History:
    """Return a copy of a recorded history, its columns checked as if it was told to a bandit.

    That has points of the kind of the example (1, d), and maybe a clock, or points that know the time, in float64.
    """
    _check_columns(history)
    X = history.X.to(example.device, torch.float64 if dated else None, copy=True)
    X = checks.points("history.X", X, dimension=example.shape[-1], like=example)
    missing = history.Y.isnan()
    Y = rewards(history.Y.masked_fill(missing, 0.0), X).masked_fill_(missing.to(X.device), math.nan)
    outcomes, failed = history.outcomes, history.failed
    stages = None if num_stages == 0 else history.rounds.new_zeros(len(X), device="cpu")  # none are known
    if stages is not None and history.stages is not None:
        stages = history.stages.clone()
        if stages.dtype != torch.long or bool(((stages < 0) | (stages > num_stages)).any()):
            got = stages.tolist()[:10]
            raise InputError(f"history.stages must be whole numbers from 0 to {num_stages}, got {got}.")
    if (0 if outcomes is None else outcomes.shape[-1]) != num_outcomes:
        got = "none" if outcomes is None else checks.describe(outcomes)
        raise InputError(f"The history must have {num_outcomes} outcome(s) of each play, got {got}.")
    if outcomes is not None:
        outcomes = checks.floating_tensor("history.outcomes", outcomes).to(X, copy=True)
        if bool(outcomes.isinf().any()):
            raise InputError("The outcomes of a history must be finite, or NaN where they were not measured.")
    failed = (Y.isnan() if failed is None else failed.clone()) if num_outcomes else None
    if failed is not None and (failed.dtype != torch.bool or bool((failed & ~missing).any())):
        raise InputError(f"history.failed must be True for plays without a reward alone, got {failed.tolist()}.")
    times, told_at = (
        part.to(example.device, torch.float64, copy=True) if timed and part is not None else None
        for part in (history.times, history.told_at)
    )
    propensities = history.propensities
    if propensities is not None:
        propensities = propensities.to(example.device, torch.float64, copy=True)
        if bool(((propensities <= 0.0) | (propensities > 1.0)).any()):
            raise InputError("history.propensities must lie in (0, 1], or be NaN where they are not known.")
    noise = history.noise
    if noise is not None:
        noise = _as_variances("history.noise", noise.to(example.device, torch.float64, copy=True))
    rounds = history.rounds.to(example.device, copy=True)
    return History(X, Y, rounds, stages, times, outcomes, told_at, failed, propensities, noise)


def _check_columns(history: Any) -> None:
    """Refuse a history whose parts do not belong together."""
    checks.instance("history", history, History, "a History, as bandit.history is")
    for name, column in history._asdict().items():
        if column is None and name not in ("X", "Y", "rounds"):
            continue
        checks.instance(f"history.{name}", column, Tensor, "a torch tensor")
        column = cast(Tensor, column)
        checks.in_memory(f"history.{name}", column)
        if column.dim() != (2 if name in ("X", "outcomes") else 1) or len(column) != len(history.rounds):
            got = f"{name} as {checks.describe(column)} and {len(history.rounds)} rounds"
            raise InputError(f"The history must have a row for each of its rewards; got {got}.")
        if name in ("times", "told_at"):
            checks.finite(f"history.{name}", checks.floating_tensor(f"history.{name}", column))
    if history.rounds.dtype != torch.long or bool((history.rounds.diff() < 0).any()):
        raise InputError("The rounds of a history must be whole numbers and must not decrease.")
    if history.told_at is None:
        return
    steps = history.told_at.diff()
    if bool((steps < 0).any()) or bool((steps[history.rounds.diff() == 0] != 0).any()):
        raise InputError("The times at which a history was told must not decrease, and be one for each round.")
    if history.times is not None and bool((history.times > history.told_at).any()):
        raise InputError("The points of a history must have been played before or when their rewards were told.")


def rewards(y: Any, X: Tensor) -> Tensor:
    """Return rewards (q,) of the points X (q, d), converted to their kind; y is (q,), (q, 1), or () if q = 1."""
    values = checks.finite("y", torch.as_tensor(checks.real_numbers("y", y)).cpu())
    Y = values.to(X.dtype, copy=True)
    if Y.dtype != values.dtype and not checks.all_finite(Y):
        largest, got = torch.finfo(X.dtype).max, float(values[~torch.isfinite(Y)][0])
        raise InputError(f"y must be within ±{largest:.3g}, the range of the points' {X.dtype}; got {got!r}.")
    return _one_for_each("y", Y, len(X))


def _one_for_each(name: str, values: Tensor, number: int) -> Tensor:
    """Return values (q,), given them as (q,) or (q, 1), or () if q = 1."""
    if tuple(values.shape) not in ((number,), (number, 1)) and not (number == 1 and values.dim() == 0):
        what = "reward" if name == "y" else "number"
        raise InputError(f"{name} must have a {what} for each of the {number} point(s), got {checks.describe(values)}.")
    return values.reshape(-1)


def told_rewards(y: Any, failed: Any, X: Tensor) -> Tensor:
    """Return rewards (q,) of the points X (q, d), NaN of those that failed, where y may have None or NaN."""
    lost = torch.tensor(_which(failed, len(X)), dtype=torch.bool)
    if y is None:
        if lost.all():
            return X.new_full((len(X),), math.nan)
        raise InputError("y is missing: give a reward for each point, tell(x, y), tell(ids=ids, y=y) or failed=True.")
    if not lost.any():
        return rewards(y, X)
    given = checks.listed("y", y)
    if isinstance(given, (list, tuple)):
        given = [each[0] if isinstance(each, (list, tuple)) and len(each) == 1 else each for each in given]
    Y = _one_for_each("y", _numbers("y", given), len(X))
    if len(more := Y[lost & ~Y.isnan()]):
        hint = "leave out y, or say None or NaN for it, or failed=False"
        raise InputError(f"A play that failed has no reward: {hint}; got {more[0].item()!r}.")
    told = X.new_full((len(X),), math.nan)
    told[~lost] = rewards(Y[~lost], X[~lost])
    return told


def told_noise(noise: Any, sem: Any, Y: Tensor) -> Tensor | None:
    """Return the noise variances told of rewards (q,), NaN of what failed or where none is known; None if none is.

    They are given as such or as standard errors, whose squares they are: one for all, or one for each reward.
    """
    if noise is not None and sem is not None:
        raise InputError("Give either noise, a variance, or sem, a standard error, whose square is the noise variance.")
    name, given = ("sem", sem) if noise is None else ("noise", noise)
    values = _as_variances(name, _numbers(name, checks.listed(name, given)))
    values = values.reshape(-1).expand(len(Y)) if values.numel() == 1 else _one_for_each(name, values, len(Y))
    if name == "sem":
        values = _as_variances("the square of sem", values.square())
    found = values.masked_fill(Y.isnan(), math.nan)
    return None if bool(found.isnan().all()) else found


def _as_variances(name: str, values: Tensor) -> Tensor:
    """Return numbers above 0, or NaN where none is known; refuse others."""
    if bool((wrong := (values <= 0.0) | values.isinf()).any()):
        hint = "a finite number above 0, or None or NaN where it is not known"
        raise InputError(f"{name} must be {hint}; got {float(values[wrong][0])!r}.")
    return values


def _which(failed: Any, number: int) -> list[bool]:
    """Return which of so many plays failed, (q,)."""
    given = checks.listed("failed", failed)
    given = [given] * number if isinstance(given, bool) else given
    given = [checks.scalar(each) for each in given] if isinstance(given, (list, tuple)) else [None]
    if not all(isinstance(each, (bool, np.bool_)) for each in given) or len(given) != number:
        hint = f"True or False, or one for each of the {number} point(s)"
        raise InputError(f"failed must be {hint}, got {checks.describe(failed)}.")
    return list(map(bool, given))


def _numbers(name: str, values: Any) -> Tensor:
    """Return numbers in double precision, NaN for None."""
    if isinstance(values, (list, tuple)):
        values = [math.nan if each is None else each for each in values]
    return torch.as_tensor(checks.real_numbers(name, values)).to("cpu", torch.float64)


def measured(outcomes: Mapping[str, Any] | None, names: Sequence[str], X: Tensor) -> Tensor | None:
    """Return outcomes (q, k) of the points X (q, d), in the order of the names declared; None if none is.

    For each name there is a number, or one for each point; None, NaN or no name where it was not measured.
    """
    given = {} if outcomes is None else outcomes
    checks.instance("outcomes", given, Mapping, "a mapping from names to numbers")
    if unknown := [name for name in given if name not in names]:
        near = checks.nearest_name(unknown[0], names)
        hint = f"did you mean {near!r}?" if near else f"this bandit has {list(names) or 'none'}: declare it, outcomes=."
        raise InputError(f"The outcome {unknown[0]!r} is not declared; {hint}")
    if not names:
        return None
    columns = list[Tensor]()
    for name in names:
        values = given.get(name)
        column = _numbers(f"outcome {name!r}", X.new_full((len(X),), math.nan) if values is None else values)
        converted = column.to(X.dtype)
        if bool((converted.isinf() | (converted.isnan() & ~column.isnan())).any()):
            raise InputError(f"outcome {name!r} must be a finite number within the range of {X.dtype}, or NaN.")
        columns.append(_one_for_each(f"outcome {name!r}", converted, len(X)))
    return torch.stack(columns, dim=-1)
