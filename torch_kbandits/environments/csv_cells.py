"""Lines and cells of CSV files; errors name the file, the line and the column, both from 1."""

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch_kbandits import checks
from torch_kbandits.errors import InputError

_GAPS = frozenset({"", "nan", "na", "n/a", "null", "none"})


def read_lines(name: str, path: str | Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the lines of a file that are not empty, each with its number; at least one.

    Args:
        name: what error messages call the path.
        path: the file, UTF-8.
        delimiter: between cells.

    Raises:
        InputError: if the path or the delimiter does not fit, or the file is empty or cannot be read.
    """
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise InputError(f"delimiter must be a single character, got {checks.describe(delimiter)}.")
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"{name} must be the path of a file, got {checks.describe(path)}.")

    def filled() -> Iterator[tuple[int, list[str]]]:
        # utf-8-sig: spreadsheets begin their files with a byte order mark
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            for cells in reader:
                if cells:
                    yield reader.line_num, cells

    try:
        lines = list(filled())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}.") from None
    if not lines:
        raise InputError(f"{path} is empty.")
    return lines


def is_gap(cell: str) -> bool:
    """Say whether a cell is empty or has NaN, NA, null or none in it."""
    return cell.strip().lower() in _GAPS


def is_text(cell: str) -> bool:
    """Say whether a cell is neither a number nor a gap."""
    if is_gap(cell):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


def number(path: str | Path, line: int, column: int, names: Sequence[str], cell: str, hint: str = "") -> float | None:
    """Return the number in a cell, or None for a gap.

    Raises:
        InputError: if there is something else; the message has the place and ends with the hint.
    """
    if is_gap(cell):
        return None
    if is_text(cell) or not math.isfinite(float(cell)):
        raise InputError(f"{place(path, line, column, names)}: {cell!r} is not a finite number.{hint}")
    return float(cell)


def place(path: str | Path, line: int, column: int, names: Sequence[str]) -> str:
    """Return the words for a cell: file, line, column and its name."""
    return f"{path}, line {line}, column {column + 1} ({names[column]})"
