"""Rows of numbers and categories, as pandas or plain mappings have them, to tensors and back.

pandas is not imported and need not be there: its objects are recognised by what they offer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.observations.columns import Category, Number, ordered, refusal, repeated


@dataclass(frozen=True)
class ColumnSpec:
    """The columns that a row must have, and how each becomes columns of a tensor.

    Rows may carry more than these columns; the others are ignored. The encoded columns are in the order of the spec,
    whatever the order in the rows.

    Args:
        columns: ``Number`` and ``Category`` objects with different names.

    Raises:
        InputError: if there are none, or if names of columns or of encoded columns repeat.
    """

    columns: Sequence[Number | Category]

    def __post_init__(self) -> None:
        columns = ordered("columns", self.columns)
        for column in columns:
            if not isinstance(column, (Number, Category)):
                raise InputError(f"columns must be Number or Category objects, got {checks.describe(column)}.")
        object.__setattr__(self, "columns", columns)
        again = repeated(column.name for column in columns) or repeated(self.names)
        if again:
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
        """The least and the largest value that is expected of each encoded column, (2, width), in double precision.

        ∞ and −∞ of a ``Number`` without a range.
        """
        ends = [end for column in self.columns for end in [column.encoded_range] * len(column.names)]
        return torch.tensor(ends, dtype=torch.float64).mT

    @property
    def width(self) -> int:
        """The number of encoded columns, d."""
        return len(self.names)

    def columns_of(self, name: str) -> range:
        """Return the encoded columns of one column, to be the ``active_dims`` of a kernel.

        Raises:
            InputError: if the spec has no such column.
        """
        start = 0
        for column in self.columns:
            stop = start + len(column.names)
            if column.name == name:
                return range(start, stop)
            start = stop
        known = [column.name for column in self.columns]
        raise InputError(f"name must be one of the columns {known}, got {name!r}.{_did_you_mean(name, known)}")

    def encode(self, rows: Any, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return rows as a tensor (n, width).

        Args:
            rows: a pandas DataFrame; a pandas Series or a mapping, which is one row; or a sequence of such rows.
            dtype: ``torch.float64`` or ``torch.float32``.

        Raises:
            InputError: if a column is not there or there twice, or a value is missing, infinite, not of the column's
                kind or no level of it. The message names the column and the row, counted from 0.

        Cost: O(n width).
        """
        dtype = checks.precision("dtype", dtype)
        records = _records(rows, [column.name for column in self.columns])
        blocks = [column.encode([record[column.name] for record in records]) for column in self.columns]
        points = torch.cat(blocks, dim=-1).to(dtype)
        overflows = (~torch.isfinite(points)).nonzero().tolist()
        if overflows:
            row, name = overflows[0][0], self.names[overflows[0][1]]
            raise refusal(name, row, f"within what {dtype} holds once encoded", records[row][name])
        return points

    def decode(self, points: Tensor) -> list[dict[str, Any]]:
        """Return the rows of a tensor (n, width): the inverse of ``encode`` up to rounding.

        Numbers come as floats, not rounded to whole numbers. A category comes as the level that is nearest, or as None
        where ``other=True`` and all zeros are nearer; ``encode`` refuses that None, for the value itself is lost.

        Raises:
            InputError: if the shape or the dtype is another, or an entry or a decoded number is not finite.

        Cost: O(n width).
        """
        points = checks.finite("points", checks.rows("points", points, dimension=self.width))
        if points.dim() != 2:
            raise InputError(f"points must have shape (n, {self.width}), got {checks.describe(points)}.")
        blocks = points.split([len(column.names) for column in self.columns], dim=-1)
        decoded = [column.decode(block) for column, block in zip(self.columns, blocks, strict=True)]
        names = [column.name for column in self.columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*decoded, strict=True)]


def _records(rows: Any, names: list[str]) -> list[Mapping[str, Any]]:
    """Return rows as mappings that have the named columns."""
    if is_pandas(rows) and hasattr(rows, "columns"):
        _check_labels("the DataFrame", list(rows.columns), names)
        return rows[names].to_dict(orient="records")
    if isinstance(rows, Mapping) or is_pandas(rows):
        rows = [rows]
    if not isinstance(rows, Sequence) or isinstance(rows, (str, bytes)):
        raise InputError(
            "rows must be a pandas DataFrame or Series, a mapping from column names to values, or a list of these, "
            f"got {checks.describe(rows)}."
        )
    return [_record(index, row, names) for index, row in enumerate(rows)]


def _record(index: int, row: Any, names: list[str]) -> Mapping[str, Any]:
    if not isinstance(row, Mapping) and (not is_pandas(row) or hasattr(row, "columns")):
        raise InputError(f"row {index} must be a mapping or a pandas Series, got {checks.describe(row)}.")
    _check_labels(f"row {index}", list(row if isinstance(row, Mapping) else row.index), names)
    return row if isinstance(row, Mapping) else row.to_dict()


def is_pandas(rows: Any) -> bool:
    """Whether this is a DataFrame or a Series; lists and tuples also have an ``index``, but no ``to_dict``."""
    return hasattr(rows, "to_dict") and hasattr(rows, "index")


def _check_labels(where: str, labels: list[Any], names: list[str]) -> None:
    for name in names:
        times = labels.count(name)
        if times == 0:
            raise InputError(f"{where} must have column {name!r}, got columns {labels}.{_did_you_mean(name, labels)}")
        if times > 1:
            raise InputError(f"{where} must have column {name!r} once, got it {times} times.")


def _did_you_mean(name: object, known: list[Any]) -> str:
    near = checks.nearest_name(name, known)
    return "" if near is None else f" Did you mean {near!r}?"
