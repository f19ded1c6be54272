"""Sensor readings from a CSV file: rows are times, columns are sensors."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.options import choice
from torch_kbandits.errors import InputError

_GAPS = frozenset({"", "nan", "na", "n/a", "null", "none"})


class Readings(NamedTuple):
    """What a file holds: sensor names (A,) and their readings, (times, A)."""

    names: list[str]
    values: Tensor


def read_sensor_csv(
    path: str | Path, *, gaps: str = "refuse", header: bool | None = None, delimiter: str = ","
) -> Readings:
    """Return the readings of a CSV file in double precision.

    Args:
        path: the file, UTF-8.
        gaps: what to do with a row that has an empty cell or NaN, NA, null, none: "refuse" it or "drop" the row.
        header: whether the first row names the sensors. None: it does if none of its cells is a number or a gap.
        delimiter: between cells.

    Raises:
        InputError: if the file cannot be read, has a single column, rows of different lengths, a cell that is no finite
            number, or a gap that is to be refused; the message has the line and the column, both from 1.
    """
    choice("gaps", gaps, ("refuse", "drop"))
    choice("header", header, (True, False, None))
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise InputError(f"delimiter must be a single character, got {checks.describe(delimiter)}.")
    rows = _lines(path, delimiter)
    if not rows:
        raise InputError(f"{path} is empty.")
    first = rows[0][1]
    if header is None:
        header = all(_is_text(cell) for cell in first)
    names = [cell.strip() for cell in first] if header else [str(i + 1) for i in range(len(first))]
    if len(names) < 2:
        raise InputError(
            f"{path} has one column and a choice needs two sensors at least. If its cells are not separated by "
            f"{delimiter!r}, give their delimiter."
        )
    values: list[list[float]] = []
    for line, cells in rows[1:] if header else rows:
        if len(cells) != len(names):
            raise InputError(f"{path}, line {line}: expected {len(names)} cells, got {len(cells)}.")
        numbers = [_number(path, line, i, names, cell) for i, cell in enumerate(cells)]
        if None not in numbers:
            values.append([number for number in numbers if number is not None])
        elif gaps == "refuse":
            where = _place(path, line, numbers.index(None), names)
            raise InputError(f"{where}: the reading is missing. Fill it, or drop such rows with gaps='drop'.")
    return Readings(names, torch.tensor(values, dtype=torch.float64).reshape(-1, len(names)))


def _lines(path: str | Path, delimiter: str) -> list[tuple[int, list[str]]]:
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"csv must be the path of a file, got {checks.describe(path)}.")

    def filled() -> Iterator[tuple[int, list[str]]]:
        # utf-8-sig: spreadsheets begin their files with a byte order mark
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells

    try:
        return list(filled())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}.") from None


def _is_text(cell: str) -> bool:
    if cell.strip().lower() in _GAPS:
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


def _number(path: str | Path, line: int, column: int, names: list[str], cell: str) -> float | None:
    """Return the number in a cell, or None for a gap."""
    if cell.strip().lower() in _GAPS:
        return None
    if _is_text(cell) or not math.isfinite(float(cell)):
        hint = " Name the sensors with header=true." if line == 1 else ""
        raise InputError(f"{_place(path, line, column, names)}: {cell!r} is not a finite number.{hint}")
    return float(cell)


def _place(path: str | Path, line: int, column: int, names: list[str]) -> str:
    return f"{path}, line {line}, column {column + 1} ({names[column]})"
