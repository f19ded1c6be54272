"""Kinds of columns: how the values of one column become numbers, and back."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

Level = str | int | float | bool


@dataclass(frozen=True)
class Number:
    """A column of numbers, encoded as one column.

    A range maps to [0, 1], linearly or in the logarithm. Values outside the range are allowed and continue the same
    line: a context may leave the range that was expected, and kernels are defined there too.

    Args:
        name: of the column.
        low: what becomes 0. Without a range a value is encoded as it is.
        high: what becomes 1, above ``low``.
        log: whether ratios matter rather than differences; the range and all values must then be above 0.

    Raises:
        InputError: if the range is not finite, upside down, or missing while ``log`` is true.
    """

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        checks.instance(f"log of column {self.name!r}", self.log, bool, "True or False")
        if self.low is None and self.high is None and not self.log:
            return
        low, high = _bound(self.low), _bound(self.high)
        if not (low < high and math.isfinite(high - low)) or (self.log and low <= 0.0):
            raise InputError(
                f"column {self.name!r} must have finite numbers low < high, above 0 if log=True, or no range and "
                f"log=False; got low={checks.shown(self.low)}, high={checks.shown(self.high)}, log={self.log}."
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the encoded column."""
        return (self.name,)

    @property
    def encoded_range(self) -> tuple[float, float]:
        """The ends of the range once encoded; ∞ and −∞ without one."""
        return (math.inf, -math.inf) if self.low is None else (0.0, 1.0)

    def encode(self, values: Sequence[Any]) -> Tensor:
        """Return n values as (n, 1), in double precision."""
        numbers = [_as_float(value) for value in values]
        for row, number in enumerate(numbers):
            if not math.isfinite(number):
                hint = " Convert it, or make the column a Category."
                raise refusal(self.name, row, "a finite number", values[row], hint)
            if self.log and number <= 0.0:
                raise refusal(self.name, row, "a number above 0, since log=True", values[row])
        # The range goes through the same logarithm as the values, so that its ends are exactly 0 and 1.
        scale = math.log if self.log else float
        column = torch.tensor([scale(number) for number in numbers], dtype=torch.float64).reshape(-1, 1)
        low, high = self._line()
        return (column - low) / (high - low)

    def decode(self, block: Tensor) -> list[float]:
        """Return the numbers of (n, 1)."""
        low, high = self._line()
        column = low + block.squeeze(-1).double() * (high - low)
        return checks.finite(f"the decoded column {self.name!r}", column.exp() if self.log else column).tolist()

    def _line(self) -> tuple[float, float]:
        if self.low is None or self.high is None:
            return 0.0, 1.0
        return (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)


@dataclass(frozen=True)
class Category:
    """A column of categories, encoded one-hot: a column for each level, in the order given.

    Values are compared by ``==``: 1, 1.0 and True are one level.

    Args:
        name: of the column.
        levels: all values it may take: strings, booleans or finite numbers, in an order that stays.
        other: whether a value that is no level is encoded as all zeros; otherwise it is refused. A missing value is
            refused either way.

    Raises:
        InputError: if there are no levels, levels that repeat, also as text, or levels of other kinds.
    """

    name: str
    levels: Sequence[Level]
    other: bool = False

    def __post_init__(self) -> None:
        _check_name(self.name)
        checks.instance(f"other of column {self.name!r}", self.other, bool, "True or False")
        levels = tuple(_plain(level) for level in ordered(f"levels of column {self.name!r}", self.levels))
        for level in levels:
            if not _may_be_level(level):
                raise InputError(
                    f"levels of column {self.name!r} must be strings, booleans or finite numbers, "
                    f"got {checks.describe(level)}."
                )
        again = repeated(levels) or repeated(str(level) for level in levels)
        if again:
            raise InputError(f"levels of column {self.name!r} must differ, also as text; these repeat: {again}.")
        object.__setattr__(self, "levels", levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns, such as ``"city=Paris"``."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    @property
    def encoded_range(self) -> tuple[float, float]:
        """The least and the largest value of each encoded column."""
        return 0.0, 1.0

    def encode(self, values: Sequence[Any]) -> Tensor:
        """Return n values as (n, number of levels), in double precision."""
        column_of = {level: column for column, level in enumerate(self.levels)}
        known: list[tuple[int, int]] = []
        for row, value in enumerate(map(_plain, values)):
            if not _may_be_level(value):
                raise refusal(self.name, row, "a string, a boolean or a finite number", value)
            if value in column_of:
                known.append((row, column_of[value]))
            elif not self.other:
                raise refusal(self.name, row, f"one of its {len(self.levels)} levels", value, self._nearest(value))
        block = torch.zeros(len(values), len(self.levels), dtype=torch.float64)
        rows, columns = torch.tensor(known, dtype=torch.long).reshape(-1, 2).unbind(-1)
        block[rows, columns] = 1.0
        return block

    def decode(self, block: Tensor) -> list[Level | None]:
        """Return the levels nearest to the rows of (n, number of levels); None where all zeros are nearer."""
        largest, columns = block.max(-1)
        # |x − e_i|² − |x|² = 1 − 2 x_i, so all zeros are nearer than every level where all x_i are below a half.
        is_level = (largest >= 0.5).tolist() if self.other else [True] * len(block)
        return [self.levels[i] if known else None for i, known in zip(columns.tolist(), is_level, strict=True)]

    def _nearest(self, value: Level) -> str:
        name = checks.nearest_name(value, self.levels, cutoff=0.0)
        level = next(level for level in self.levels if str(level) == name)
        return f" The nearest is {level!r}; add the value to levels, or set other=True."


def refusal(column: str, row: int, expected: str, value: Any, hint: str = "") -> InputError:
    """Return the error for a value that does not belong into its column."""
    value = _plain(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        hint = " The value is missing: drop the row, or fill it in (in a Category, with a level of its own)."
    return InputError(f"column {column!r} must be {expected}; row {row} has {checks.describe(value)}.{hint}")


def ordered(name: str, values: Any) -> tuple[Any, ...]:
    """Return values as a tuple with at least one entry; text is no list of letters, and a set has no order."""
    if not (entries := checks.entries(name, values)):
        raise InputError(f"{name} must have at least one entry, got none.")
    return entries


def repeated(values: Iterable[Any]) -> list[Any]:
    """Return what occurs more than once."""
    return [value for value, times in Counter(values).items() if times > 1]


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of a column must be a non-empty string, got {checks.shown(name)}.")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _as_float(value: Any) -> float:
    """Return a number as a float, NaN for everything that is none."""
    value = _plain(value)
    try:
        return float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.inf


def _bound(value: Any) -> float:
    """Return the end of a range as a float, NaN for everything that is no number."""
    try:
        return checks.number("the end of a range", value)
    except InputError:
        return math.nan


def _may_be_level(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
