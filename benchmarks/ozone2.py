"""Daily ozone of the Midwest as files for ``sensor-replay``: 28 stations about each of three cities, 89 days of 1987.

    python -m benchmarks.ozone2 ozone2.rda runs/ozone2

The table is ``ozone2`` of the R package fields (GPL 2 or later): means of 9 to 16 o'clock in parts per billion at 153
stations, measured for the Environmental Protection Agency of the USA. ``rdata`` reads it: pip install rdata.

The first 29 days are to choose and to learn on, the other 60 to judge on. What is learned is printed as lines of a
spec.
"""

import argparse
import csv
import math
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.replay_data import filled

_STATIONS, _LEARNED = 28, 29

#: Where they are, in degrees east and north, and how many days a station may miss at most. No station is in two.
CITIES = {"chicago": ((-87.65, 41.85), 0), "cincinnati": ((-84.51, 39.10), 2), "detroit": ((-83.05, 42.33), 2)}


class Learned(NamedTuple):
    """What some days say: a mean, and of the squared exponential kernel the length, the variance and λ."""

    center: float
    lengthscale: float
    variance: float
    regularization: float


def about(places: np.ndarray, missing: np.ndarray, at: Sequence[float], at_most: int, taken: set[int]) -> list[int]:
    """Return the 28 stations nearest to a point, of those at places (S, 2) that are not taken and miss few days."""
    far = np.hypot(np.cos(np.radians(at[1])) * (places[:, 0] - at[0]), places[:, 1] - at[1])
    there = [int(i) for i in np.argsort(far, kind="stable") if missing[i] <= at_most and int(i) not in taken]
    return there[:_STATIONS]


def learn(places: np.ndarray, values: np.ndarray) -> Learned:
    """Return what maximises the likelihood of days (T, A) that are independent draws, given the mean of them all."""
    center = float(values.mean())
    squares = ((places[:, None] - places[None]) ** 2).sum(-1)
    start = np.log([1.0, values.var(), 0.1 * values.var()])
    found = minimize(_misfit, start, (squares, values - center), method="Nelder-Mead", options={"xatol": 1e-6})
    return Learned(center, *(float(each) for each in np.exp(found.x)))


def _misfit(logs: np.ndarray, squares: np.ndarray, values: np.ndarray) -> float:
    length, variance, noise = np.exp(logs)
    factor = np.linalg.cholesky(variance * np.exp(-squares / (2 * length**2)) + noise * np.eye(len(squares)))
    return float(len(values) * np.log(factor.diagonal()).sum() + (np.linalg.solve(factor, values.T) ** 2).sum() / 2)


def main() -> None:
    """Write the files, and print what was learned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="ozone2.rda")
    parser.add_argument("folder", type=Path, help="where the files go")
    words = parser.parse_args()
    table: Any = import_module("rdata").read_rda(words.table)["ozone2"]
    readings, places = np.asarray(table["y"], dtype=float), np.asarray(table["lon.lat"], dtype=float)
    names = [f"station {each}" for each in table["station.id"]]
    days = [f"19{text[:2]}-{text[2:4]}-{text[4:]}" for text in map(str, table["dates"])]
    words.folder.mkdir(parents=True, exist_ok=True)
    taken: set[int] = set()
    for city, (at, at_most) in CITIES.items():
        rows = about(places, np.isnan(readings).sum(0), at, at_most, taken)
        taken.update(rows)
        values, where, called = filled(readings[:, rows]), places[rows], [names[i] for i in rows]
        learned = learn(where, values[:_LEARNED])
        write(words.folder / f"{city}-places.csv", ["station", "east", "north"], called, where)
        for name, part in ((f"{city}-first.csv", slice(_LEARNED)), (f"{city}.csv", slice(_LEARNED, None))):
            write(words.folder / name, ["day", *called], days[part], (values[part] - learned.center).round(4))
        print(f"# {city}, as in a spec:\n{settings(where, values[:_LEARNED], learned)}")
        print(f"# fitted to all days: {', '.join(f'{each:.4g}' for each in learn(where, values))}")
        print(f"# average regret in the 60 days: {references(values, learned.regularization, _LEARNED)}\n")


def references(values: np.ndarray, noise: float, learned: int) -> str:
    """Return the average regrets of players without a model after so many days that are learned from."""
    lost = values[learned:].max(1, keepdims=True) - values[learned:]
    favourite = values[:learned].mean(0).argmax()
    return (
        f"random play {lost.mean():.1f}, the best station that stays {lost.mean(0).min():.1f}, the one of the highest "
        f"mean before {lost[:, favourite].mean():.1f}, the best of ⌈6 ln t⌉ stations at random, read with noise, "
        f"{looked(lost, 6.0, noise):.1f}, of ⌈ln t⌉ {looked(lost, 1.0, noise):.1f}"
    )


def looked(lost: np.ndarray, questions: float, noise: float, draws: int = 1000) -> float:
    """Return the average regret of who reads some stations each day and plays the one that reads highest.

    Of the regrets of stations (T, A) ⌈questions ln t⌉, one at least, are read in day t, at random and with noise.
    """
    generator = np.random.default_rng(0)
    totals = []
    for t, day in enumerate(lost, start=1):
        number = min(max(math.ceil(questions * math.log(t)), 1), len(day))
        seen = generator.permuted(np.tile(day, (draws, 1)), axis=1)[:, :number]
        read = seen + noise**0.5 * generator.standard_normal(seen.shape)
        totals.append(np.take_along_axis(seen, read.argmin(1, keepdims=True), 1).mean())
    return float(np.mean(totals))


def settings(where: np.ndarray, values: np.ndarray, learned: Learned) -> str:
    """Return lines of a spec: the largest norm of a day's posterior mean, and how much it changes by on average."""
    squares = ((where[:, None] - where[None]) ** 2).sum(-1)
    covariance = learned.variance * np.exp(-squares / (2 * learned.lengthscale**2))
    noisy = covariance + learned.regularization * np.eye(len(squares))
    weights = np.linalg.solve(noisy, (values - learned.center).T).T
    norms, changes = (np.sqrt(((each @ covariance) * each).sum(1)) for each in (weights, np.diff(weights, axis=0)))
    length, variance = f"{learned.lengthscale:.4g}", f"{learned.variance:.4g}"
    return f"""kernel = {{ name = "rbf", lengthscale = {length}, outputscale = {variance} }}
regularization = {learned.regularization:.4g}
noise_scale = {learned.regularization**0.5:.4g}
norm_bound = {norms.max():.2f}  # a day's norm changes by {changes.mean():.2f} on average"""


def write(path: Path, head: list[str], names: list[str], values: np.ndarray) -> None:
    """Write a table with a first column of names."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([head, *([name, *row] for name, row in zip(names, values.tolist(), strict=True))])


if __name__ == "__main__":
    main()
