"""Sensor readings from a CSV file, rows being times and columns sensors; and from another one where the sensors are."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from torch_kbandits.environments.csv_cells import is_text, number, place, read_lines
from torch_kbandits.environments.options import choice, nearest
from torch_kbandits.errors import InputError

#: What to do with a missing reading.
GAPS = ("refuse", "drop", "previous")
#: How the error about one ends.
_ADVICE = {
    "refuse": ". Fill it, or drop such rows with gaps='drop', or take the reading before with gaps='previous'.",
    "previous": " and there is none before it. Fill it.",
}


class Readings(NamedTuple):
    """What a file holds: sensor names (A,), their readings (times, A), and the times as they are written, if any."""

    names: list[str]
    values: Tensor
    times: list[str] | None


def read_sensor_csv(
    path: str | Path,
    *,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    delimiter: str = ",",
) -> Readings:
    """Return the readings of a CSV file in double precision.

    Args:
        path: the file, UTF-8.
        gaps: what to do with an empty cell or NaN, NA, null, none: "refuse" it, "drop" its row, or take the "previous"
            reading of the sensor.
        header: whether the first row names the sensors. None: it does if none of its cells is a number or a gap; a
            first cell that may stand over times is not looked at.
        times: whether the first column has times, which are kept as they are written. None: it has if none of its cells
            below the names is a number or a gap.
        delimiter: between cells.

    Raises:
        InputError: if the file cannot be read, has no two sensors, rows of different lengths, a cell that is no finite
            number, or a gap that is to be refused or has no previous reading; the message has the line and the column,
            both from 1.
    """
    choice("gaps", gaps, GAPS)
    for name, value in (("header", header), ("times", times)):
        choice(name, value, (True, False, None))
    rows = read_lines("csv", path, delimiter)
    first = rows[0][1]
    if header is None:
        header = all(is_text(cell) for cell in (first if times is False or len(first) == 1 else first[1:]))
    if header:
        rows = rows[1:]
    if times is None:
        times = bool(rows) and all(is_text(cells[0]) for _, cells in rows)
    names = [cell.strip() for cell in first] if header else [str(i + (not times)) for i in range(len(first))]
    if len(names) - times < 2:
        raise InputError(
            f"{path} has {'one column' if len(names) < 2 else 'one column of readings'} and a choice needs two sensors "
            f"at least. If its cells are not separated by {delimiter!r}, give their delimiter."
        )
    kept: list[str] = []
    values: list[list[float]] = []
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(f"{path}, line {line}: expected {len(names)} cells, got {len(cells)}.")
        hint = " Name the sensors with header=true." if line == 1 else ""
        row = [number(path, line, i, names, cells[i], hint) for i in range(times, len(names))]
        if gaps == "previous" and values:
            row = [before if value is None else value for value, before in zip(row, values[-1], strict=True)]
        missing = [i + times for i, value in enumerate(row) if value is None]
        if not missing:
            kept.append(cells[0].strip())
            values.append([value for value in row if value is not None])
        elif gaps != "drop":
            raise InputError(f"{place(path, line, missing[0], names)}: the reading is missing{_ADVICE[gaps]}")
    readings = torch.tensor(values, dtype=torch.float64).reshape(-1, len(names) - times)
    return Readings(names[times:], readings, kept if times else None)


def read_locations(path: str | Path, names: list[str], *, delimiter: str = ",") -> Tensor:
    """Return where sensors are, (A, d), from a CSV file: a row for each sensor, its name and then its coordinates.

    Args:
        path: the file, UTF-8; a first row of which no coordinate is a number is a header. Rows may be in any order.
        names: the sensors, (A,), in the order of the result.
        delimiter: between cells.

    Raises:
        InputError: if the file cannot be read, a coordinate is no finite number, or a sensor is missing, unknown or
            there twice.
    """
    rows = read_lines("locations", path, delimiter)
    first = rows[0][1]
    header = len(first) > 1 and all(is_text(cell) for cell in first[1:])
    columns = [cell.strip() for cell in first] if header else [str(i + 1) for i in range(len(first))]
    if len(columns) < 2:
        raise InputError(f"{path} must have the names of sensors and at least one coordinate; it has one column.")
    found: dict[str, list[float]] = {}
    for line, cells in rows[1:] if header else rows:
        if len(cells) != len(columns):
            raise InputError(f"{path}, line {line}: expected {len(columns)} cells, got {len(cells)}.")
        name = cells[0].strip()
        if name not in names:
            raise InputError(f"{path}, line {line}: there are no readings of a sensor {name!r}{nearest(name, names)}.")
        if name in found:
            raise InputError(f"{path}, line {line}: the sensor {name!r} is there twice.")
        found[name] = []
        for i in range(1, len(columns)):
            value = number(path, line, i, columns, cells[i])
            if value is None:
                raise InputError(f"{place(path, line, i, columns)}: the coordinate is missing.")
            found[name].append(value)
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path} lacks the sensor(s) {', '.join(missing)}.")
    return torch.tensor([found[name] for name in names], dtype=torch.float64)
