"""Rows of numbers and categories, as pandas or plain mappings have them, to tensors and back.

pandas is not imported and need not be there: its objects are recognised by what they offer.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError

Level = str | int | float | bool
_LEVEL = "a string, a boolean or a finite number"


@dataclass(frozen=True)
class Number:
    """A column of numbers, encoded as one column.

    Args:
        name: of the column.
        low: what becomes 0. Without a range a value is encoded as it is; values outside of it continue the same line.
        high: what becomes 1, above ``low``.
        log: whether ratios matter rather than differences: the line is one of logarithms. Then there must be a range,
            and all is above 0.
    """

    name: str
    low: float | None = None
    high: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        _check(self.name, "log", self.log)
        if self.low is None and self.high is None and not self.log:
            return
        low, high = _as_float(self.low), _as_float(self.high)
        if not (low < high and math.isfinite(high - low)) or (self.log and low <= 0.0):
            raise InputError(
                f"column {self.name!r} must have finite numbers low < high, above 0 if log=True, or no range and "
                f"log=False; got low={checks.shown(self.low)}, high={checks.shown(self.high)}, log={self.log}."
            )
        checks.keep(self, low=checks.number, high=checks.number)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the encoded column."""
        return (self.name,)

    def encode(self, values: Sequence[Any]) -> Tensor:
        """Return n values as (n, 1), in double precision."""
        numbers = [_as_float(value) for value in values]
        for row, number in enumerate(numbers):
            if not math.isfinite(number) or (self.log and number <= 0.0):
                above = " above 0, since log=True" if self.log else ""
                hint = " Convert it, or make the column a Category."
                raise _refusal(self.name, row, f"a finite number{above}", values[row], hint)
        # The range goes through the same logarithm as the values, so that its ends are exactly 0 and 1.
        scaled = map(math.log, numbers) if self.log else numbers
        column = torch.tensor(list(scaled), dtype=torch.float64).reshape(-1, 1)
        low, high = self._line
        return (column - low) / (high - low)

    def decode(self, block: Tensor) -> list[float]:
        """Return the numbers of (n, 1)."""
        low, high = self._line
        column = low + block.squeeze(-1).double() * (high - low)
        return checks.finite(f"the decoded column {self.name!r}", column.exp() if self.log else column).tolist()

    @property
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
        levels: all values it may take: different strings, booleans or finite numbers, in an order that stays.
        other: whether a value that is no level is encoded as all zeros; otherwise it is refused. A missing value is
            refused either way.
    """

    name: str
    levels: Sequence[Level]
    other: bool = False

    def __post_init__(self) -> None:
        _check(self.name, "other", self.other)
        levels = tuple(map(checks.scalar, _entries(f"levels of column {self.name!r}", self.levels)))
        for level in levels:
            if not _may_be_level(level):
                raise InputError(f"a level of column {self.name!r} must be {_LEVEL}, got {checks.describe(level)}.")
        if again := _repeated(levels) or _repeated(map(str, levels)):
            raise InputError(f"levels of column {self.name!r} must differ, also as text; these repeat: {again}.")
        object.__setattr__(self, "levels", levels)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns, such as ``"city=Paris"``."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, values: Sequence[Any]) -> Tensor:
        """Return n values as (n, number of levels), in double precision."""
        column_of = {level: column for column, level in enumerate(self.levels)}
        block = torch.zeros(len(values), len(self.levels), dtype=torch.float64)
        for row, value in enumerate(map(checks.scalar, values)):
            if not _may_be_level(value):
                raise _refusal(self.name, row, _LEVEL, value)
            if value in column_of:
                block[row, column_of[value]] = 1.0
            elif not self.other:
                hint = " Add the value to levels, or set other=True."
                raise _refusal(self.name, row, f"one of its levels {checks.shown(list(self.levels))}", value, hint)
        return block

    def decode(self, block: Tensor) -> list[Level | None]:
        """Return the levels nearest to the rows of (n, number of levels); None where all zeros are nearer."""
        largest, columns = block.max(-1)
        # |x − e_i|² − |x|² = 1 − 2 x_i, so all zeros are nearer than every level where all x_i are below a half.
        is_level = (largest >= 0.5).tolist() if self.other else [True] * len(block)
        return [self.levels[i] if known else None for i, known in zip(columns.tolist(), is_level, strict=True)]


@dataclass(frozen=True)
class ColumnSpec:
    """The columns that a row must have, beside any others, and how each becomes columns of a tensor, in this order.

    Args:
        columns: ``Number`` and ``Category`` objects with different names, also of encoded columns.
    """

    columns: Sequence[Number | Category]

    def __post_init__(self) -> None:
        checks.keep(self, columns=_entries)
        for column in self.columns:
            checks.instance("each of the columns", column, (Number, Category), "a Number or Category object")
        if again := _repeated(column.name for column in self.columns) or _repeated(self.names):
            raise InputError(f"columns must have different names, also once encoded; these repeat: {again}.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns, such as ``("age", "city=Paris", "city=Rome")``."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def groups(self) -> tuple[int, ...]:
        """Of each encoded column the number of the column that it encodes, (width,); see ``GroupedKernel``."""
        return tuple(number for number, column in enumerate(self.columns) for _ in column.names)

    @property
    def ranges(self) -> Tensor:
        """The least and the largest value expected of each encoded column, (2, width); ∞ and −∞ where none is known."""
        unknown = [isinstance(column, Number) and column.low is None for column in self.columns for _ in column.names]
        ends = [(math.inf, -math.inf) if nothing else (0.0, 1.0) for nothing in unknown]
        return torch.tensor(ends, dtype=torch.float64).mT

    @property
    def width(self) -> int:
        """The number of encoded columns, d."""
        return len(self.names)

    def columns_of(self, name: str) -> range:
        """Return the encoded columns of one column, to be the ``active_dims`` of a kernel."""
        known = [column.name for column in self.columns]
        if name not in known:
            raise InputError(f"name must be one of the columns {known}, got {name!r}.")
        place = known.index(name)
        return range(self.groups.index(place), self.groups.index(place) + self.groups.count(place))

    def encode(self, rows: Any, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return rows as a tensor (n, width): a pandas DataFrame, a Series or mapping as one row, or a list of these.

        Raises:
            InputError: if a column is not there once, or a value is missing, infinite, not of the column's kind or no
                level of it. The message names the column and the row, counted from 0.
        """
        dtype = checks.precision("dtype", dtype)
        records = _records(rows, [column.name for column in self.columns])
        blocks = [column.encode([record[column.name] for record in records]) for column in self.columns]
        points = torch.cat(blocks, dim=-1).to(dtype)
        for row, place in (~torch.isfinite(points)).nonzero().tolist():
            name = self.names[place]
            raise _refusal(name, row, f"within what {dtype} holds once encoded", records[row][name])
        return points

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the rows of a tensor (n, width): the inverse of ``encode`` up to rounding.

        Numbers come as floats. A category comes as the level that is nearest, or as None where ``other=True`` and all
        zeros are nearer; ``encode`` refuses that None.
        """
        points = checks.finite("points", checks.rows("points", points, dimension=self.width))
        if points.dim() != 2:
            raise InputError(f"points must have shape (n, {self.width}), got {checks.describe(points)}.")
        blocks = points.split([len(column.names) for column in self.columns], dim=-1)
        decoded = {column.name: column.decode(block) for column, block in zip(self.columns, blocks, strict=True)}
        return [dict(zip(decoded, values, strict=True)) for values in zip(*decoded.values(), strict=True)]


def is_pandas(rows: Any) -> bool:
    """Whether this is a DataFrame or a Series; lists and tuples also have an ``index``, but no ``to_dict``."""
    return hasattr(rows, "to_dict") and hasattr(rows, "index")


def _records(rows: Any, names: list[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings that have the named columns."""
    if is_pandas(rows) and hasattr(rows, "columns"):
        _check_labels("the DataFrame", list(rows.columns), names)
        return rows[names].to_dict(orient="records")
    rows = [rows] if isinstance(rows, Mapping) or is_pandas(rows) else rows
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise InputError(f"rows must be a data frame, a mapping, or a list of these, got {checks.describe(rows)}.")
    records = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) and (not is_pandas(row) or hasattr(row, "columns")):
            raise InputError(f"row {number} must be a mapping or a pandas Series, got {checks.describe(row)}.")
        _check_labels(f"row {number}", list(row if isinstance(row, Mapping) else row.index), names)
        records.append(row if isinstance(row, Mapping) else row.to_dict())
    return records


def _check_labels(where: str, labels: list[Any], names: list[str]) -> None:
    for name in names:
        if (times := labels.count(name)) != 1:
            got = f"it {times} times" if times else f"columns {labels}"
            raise InputError(f"{where} must have column {name!r} once, got {got}.")


def _refusal(column: str, row: int, expected: str, value: Any, hint: str = "") -> InputError:
    """Return the error for a value that does not belong into its column."""
    value = checks.scalar(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        hint = " The value is missing: drop the row, or fill it in (in a Category, with a level of its own)."
    return InputError(f"column {column!r} must be {expected}; row {row} has {checks.describe(value)}.{hint}")


def _entries(name: str, values: Any) -> tuple[Any, ...]:
    if not (entries := checks.entries(name, values)):
        raise InputError(f"{name} must have at least one entry, got none.")
    return entries


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


def _check(name: str, flag: str, value: bool) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"the name of a column must be a non-empty string, got {checks.shown(name)}.")
    checks.instance(f"{flag} of column {name!r}", value, bool, "True or False")


def _as_float(value: Any) -> float:
    """Return a number as a float, NaN for everything that is none."""
    try:
        return checks.number("a value", value)
    except InputError:
        return math.nan


def _may_be_level(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
