"""Cells of CSV files; errors name the file, the line and the column, both from 1."""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from torch_kbandits import checks
from torch_kbandits.errors import InputError

_GAPS = frozenset({"", "nan", "na", "n/a", "null", "none"})


@dataclass(frozen=True)
class Table:
    """Rows of a file, each with its line, and what their columns are called."""

    path: str | Path
    names: list[str]
    rows: list[tuple[int, list[str]]]

    def place(self, line: int, column: int) -> str:
        """Return the words for a cell: file, line, column and its name."""
        return f"{self.path}, line {line}, column {column + 1} ({self.names[column]})"

    def gap_or_number(self, line: int, column: int, cell: str) -> float | None:
        """Return the number in a cell, or None for a gap."""
        if is_gap(cell):
            return None
        if is_text(cell) or not math.isfinite(float(cell)):
            hint = " Name the columns with header=true." if line == 1 else ""
            raise InputError(f"{self.place(line, column)}: {cell!r} is not a finite number.{hint}")
        return float(cell)

    def number(self, line: int, column: int, cell: str, what: str = "value") -> float:
        """Return the number in a cell."""
        if (value := self.gap_or_number(line, column, cell)) is None:
            raise InputError(f"{self.place(line, column)}: the {what} is missing. Fill it, or leave the row out.")
        return value


def read_rows(name: str, path: str | Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the lines of a file in UTF-8 that are not empty, each with its number and as many cells as the first.

    Args:
        name: what error messages call the path.
        path: of the file.
        delimiter: between cells.

    Raises:
        InputError: if an argument does not fit, or the file is empty, cannot be read or has rows of different lengths.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise InputError(f"delimiter must be a single character, got {checks.describe(delimiter)}.")
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"{name} must be the path of a file, got {checks.describe(path)}.")
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:  # spreadsheets begin files with a mark
            reader = csv.reader(file, delimiter=delimiter)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}.") from None
    if not rows:
        raise InputError(f"{path} is empty.")
    for line, cells in rows:
        if len(cells) != len(rows[0][1]):
            raise InputError(f"{path}, line {line}: expected {len(rows[0][1])} cells, got {len(cells)}.")
    return rows


def is_gap(cell: str) -> bool:
    """Say whether a cell is empty or has NaN, NA, null or none in it."""
    return cell.lower() in _GAPS


def is_text(cell: str) -> bool:
    """Say whether a cell is neither a number nor a gap."""
    if is_gap(cell):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False
