"""What a policy did, choice by choice: contexts, actions, propensities and rewards."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.observations.clock import read_times


@dataclass(frozen=True, eq=False)
class Log:
    """Choices of a logging policy and what came of them, in order: one row for each action that was played.

    Args:
        rows: (n,) which action was played: its row in the set of its round, counted from 0.
        rewards: (n,) in reward units; None or NaN where none came, or none yet: see ``rewarded``.
        propensities: (n,) in (0, 1], the probabilities with which the logging policy chose these actions.
        contexts: (n, c); None without.
        actions: one set for all rounds, (A, a); or a set for each, as n tensors (Aₜ, a) or one (n, A, a). None where
            features are not known.
        num_actions: without ``actions``: how many there were to choose from, for all rounds or for each, (n,). None: as
            many as the largest row says. It is kept as (n,).
        times: (n,) numbers or dates; None where they do not matter.
        ids: (n,) whole numbers or texts, no two of them equal; None without.
        slates: (n,) whole numbers: actions with the same one were shown together. None: each alone.

    Raises:
        InputError: if a column does not fit; the message names the first row that does not.
    """

    rows: Tensor
    rewards: Tensor
    propensities: Tensor
    contexts: Tensor | None = None
    actions: Tensor | tuple[Tensor, ...] | None = None
    num_actions: Any = None
    times: tuple[Any, ...] | None = None
    ids: tuple[int | str, ...] | None = None
    slates: Tensor | None = None

    def __post_init__(self) -> None:
        rows = whole_numbers("rows", self.rows)
        n, optional = len(rows), checks.optional
        if self.actions is not None and self.num_actions is not None:
            raise InputError("Give either actions or num_actions, not both.")
        checks.keep(
            self,
            rows=lambda name, _: rows,
            rewards=lambda name, value: numbers(name, value, n, may_miss=True),
            propensities=lambda name, value: checked_propensities(numbers(name, value, n)),
            contexts=optional(checks.listed_points),
            actions=optional(_action_sets),
            times=optional(lambda _, value: _checked_times(value, n)),
            ids=optional(lambda _, value: _checked_ids(value)),
            slates=optional(lambda name, value: whole_numbers(name, value, n)),
        )
        for name in ("contexts", "ids", *(("actions",) if isinstance(self.actions, tuple) else ())):
            if (column := getattr(self, name)) is not None and len(column) != n:
                raise InputError(f"{name} must be one for each of the {n} rows, got {len(column)}.")
        counts = self._counts(n)
        object.__setattr__(self, "num_actions", counts)
        refuse("rows", rows, (rows < 0) | (rows >= counts), "at least 0 and below the number of actions")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def rewarded(self) -> Self:
        """The rows that have a reward: as good as all where whether one came has nothing to do with what it was."""
        return self.part(~self.rewards.isnan())

    @property
    def played(self) -> Tensor:
        """The actions that were played, (n, a)."""
        if isinstance(self.actions, Tensor):
            return self.actions[self.rows.to(self.actions.device)]
        return torch.stack([self.actions_of(number)[row] for number, row in enumerate(self.rows.tolist())])

    def actions_of(self, number: int) -> Tensor:
        """Return the actions (A, a) from which that of a row of the log was chosen."""
        if self.actions is None:
            raise InputError("The features of the actions are missing: make the log with actions=.")
        return self.actions if isinstance(self.actions, Tensor) else self.actions[number]

    def part(self, which: Tensor | slice | Sequence[int]) -> Self:
        """Return the log of some rows, at least one: a slice, their numbers, or a mask (n,)."""
        kept = torch.arange(len(self))[which if isinstance(which, slice) else torch.as_tensor(which)]
        numbers = kept.tolist()
        if not numbers:
            raise InputError("No row of the log is left, and a log has one at least.")
        words: dict[str, Any] = {}
        for name in ("rows", "rewards", "propensities", "contexts", "times", "ids", "slates"):
            column = getattr(self, name)
            tensor = isinstance(column, Tensor)
            words[name] = column[kept.to(column.device)] if tensor else column and [column[row] for row in numbers]
        if self.actions is None:
            words["num_actions"] = self.num_actions[kept]
        elif isinstance(self.actions, Tensor):
            words["actions"] = self.actions
        else:
            words["actions"] = [self.actions[row] for row in numbers]
        return type(self)(**words)

    def _counts(self, n: int) -> Tensor:
        """Return how many actions there were to choose from, (n,)."""
        if isinstance(self.actions, tuple):
            return torch.tensor([len(actions) for actions in self.actions])
        if self.actions is not None:
            return torch.full((n,), len(self.actions))
        if self.num_actions is None:
            return torch.full((n,), int(self.rows.max()) + 1)
        counts = whole_numbers("num_actions", self.num_actions)
        if len(counts) not in (1, n):
            raise InputError(f"num_actions must be one for all or for each of the {n} rows, got {len(counts)}.")
        return counts.expand(n)


def require_log(log: Any) -> None:
    """Refuse what is no log."""
    checks.instance("log", log, Log, "a Log of torch_kbandits.evaluation")


def require_rewards(log: Any) -> None:
    """Refuse what is no log, and logs in which rewards are missing."""
    require_log(log)
    if missing := int(log.rewards.isnan().sum()):
        advice = "log.rewarded leaves them out; where no news means no reward, make the log with 0"
        raise InputError(f"{missing} of {len(log)} rewards of the log are missing: {advice}.")


def numbers(name: str, values: Any, n: int | None = None, *, may_miss: bool = False) -> Tensor:
    """Return a column (n,) of finite numbers in double precision; where some may miss, None and NaN are NaN."""
    if may_miss and isinstance(values, (list, tuple)):
        values = [math.nan if value is None else value for value in values]
    column = torch.as_tensor(checks.real_numbers(name, values)).to("cpu", torch.float64)
    if column.dim() != 1 or not len(column) or len(column) != (n or len(column)):
        size = "n" if n is None else str(n)
        raise InputError(f"{name} must be ({size},), one for each row of the log, got {checks.describe(values)}.")
    words = "finite, or NaN where there is none" if may_miss else "finite"
    return refuse(name, column, column.isinf() if may_miss else ~column.isfinite(), words)


def whole_numbers(name: str, values: Any, n: int | None = None) -> Tensor:
    """Return a column (n,) of whole numbers, at least one of them."""
    if isinstance(values, Tensor) and values.dtype == torch.int64 and values.dim() == 1:
        column = values.to("cpu")
    else:
        column = torch.tensor(checks.whole_numbers(name, values), dtype=torch.int64)
    if not len(column) or len(column) != (n or len(column)):
        size = "at least one" if n is None else f"one for each of the {n} rows"
        raise InputError(f"{name} must be whole numbers, {size}, got {len(column)}.")
    return column


def checked_propensities(column: Tensor) -> Tensor:
    """Return propensities (n,), which must lie in (0, 1]."""
    advice = (
        "in (0, 1]: the probability with which the logging policy chose what it played. What could not be chosen was "
        "not played: look for propensities that were rounded, or belong to other rows"
    )
    return refuse("propensities", column, (column <= 0.0) | (column > 1.0), advice)


def refuse(name: str, column: Tensor, wrong: Tensor, expected: str) -> Tensor:
    """Return a column (n,), of which no row may be wrong, (n,) bool."""
    if len(bad := wrong.nonzero().flatten()):
        first = f"row {int(bad[0])} with {column[bad[0]].item():g}"
        raise InputError(f"{name} must be {expected}; {len(bad)} of {len(column)} rows are not, the first is {first}.")
    return column


# ---------------------------------------------------------------- inside


def depth(values: Any) -> int:
    """Return in how many dimensions numbers are given, as lists or arrays: 0, 1, 2, or 3 for more."""
    for dimension in range(3):
        if not isinstance(values, (list, tuple)) or not values:
            return min(3, dimension + int(getattr(values, "ndim", isinstance(values, (list, tuple)))))
        values = values[0]
    return 3


def _action_sets(name: str, values: Any) -> Tensor | tuple[Tensor, ...]:
    """Return one set of actions (A, a), or a set for each row of the log."""
    if depth(values) < 3 or not hasattr(values, "__len__"):
        return checks.listed_points(name, values)
    sets = tuple(checks.listed_points(f"{name} of row {row}", value) for row, value in enumerate(values))
    widths = {value.shape[-1] for value in sets}
    if len(widths) > 1:
        raise InputError(f"{name} of all rows must have the same number of columns, got {sorted(widths)}.")
    return sets


def _checked_times(values: Any, n: int) -> tuple[Any, ...]:
    """Return times as they were given, once they were seen to be of one kind."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype("datetime64[us]").tolist()
    times = checks.entries("times", values)
    read_times(times, n)
    return times


def _checked_ids(values: Any) -> tuple[int | str, ...]:
    """Return ids, no two of which are equal."""
    given = checks.entries("ids", values)
    ids = tuple(each if isinstance(each, str) else checks.whole_number("each of the ids", each) for each in given)
    if again := [each for each, times in Counter(ids).items() if times > 1]:
        rows = [row for row, each in enumerate(ids) if each == again[0]]
        advice = "drop the copies, or give the lines of a retry one id and keep the last"
        got = f"{len(again)} come again, the first is {again[0]!r} in rows {rows[:5]}"
        raise InputError(f"ids must differ: {got}; {advice}.")
    return ids
