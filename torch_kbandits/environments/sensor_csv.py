"""Sensor readings from a CSV file: rows are times, columns are sensors."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torch_kbandits.environments.csv_cells import is_text, number, place, read_lines
from torch_kbandits.environments.options import choice
from torch_kbandits.errors import InputError


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
    rows = read_lines("csv", path, delimiter)
    first = rows[0][1]
    if header is None:
        header = all(is_text(cell) for cell in first)
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
        hint = " Name the sensors with header=true." if line == 1 else ""
        row = [number(path, line, i, names, cell, hint) for i, cell in enumerate(cells)]
        if None not in row:
            values.append([value for value in row if value is not None])
        elif gaps == "refuse":
            where = place(path, line, row.index(None), names)
            raise InputError(f"{where}: the reading is missing. Fill it, or drop such rows with gaps='drop'.")
    return Readings(names, torch.tensor(values, dtype=torch.float64).reshape(-1, len(names)))
