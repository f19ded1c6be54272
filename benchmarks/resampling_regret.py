"""What coupled resampling and growth only cost in regret and save in changes of the dictionary."""

import statistics
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from tqdm import tqdm

from benchmarks.arm_bandits import LENGTHSCALE, bkb
from benchmarks.bkb_regret import exact_regret
from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits.dictionaries import Resampling
from torch_kbandits.environments import FiniteArms, gaussian_bumps

RULES: dict[Resampling, str] = {"fresh": "fresh", "coupled": "coupled", "growth": "growth only"}


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another environment, another noise and another bandit."""

    arms: int = 2_000
    dimensions: tuple[int, ...] = (2, 6)
    oversamplings: tuple[float, ...] = (3.0, 5.0)
    rounds: int = 500
    seeds: int = 10


QUICK = Sizes(arms=100, dimensions=(1, 2), rounds=15, seeds=2)


def run(quick: bool = False) -> Report:
    """Play all algorithms on every environment; the noise of a round is the same for each of them."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    seeds = list(product(sizes.dimensions, range(sizes.seeds)))
    for dimension, seed in tqdm(seeds, desc="resampling_regret", unit="seed"):
        environment = gaussian_bumps(sizes.arms, dimension, lengthscale=LENGTHSCALE, seed=seed)
        exact = exact_regret(environment, sizes.rounds, seed)
        for resampling, oversampling in product(RULES, sizes.oversamplings):
            played = play(environment, resampling, oversampling, sizes.rounds, seed)
            measurements.append({"dimension": dimension, "seed": seed, "exact_regret": exact, **played})
    tables = [_table(measurements, dimension, sizes) for dimension in sizes.dimensions]
    return Report("resampling_regret", asdict(sizes), tables, measurements)


def play(
    environment: FiniteArms, resampling: Resampling, oversampling: float, rounds: int, seed: int
) -> dict[str, Any]:
    """Return the cumulative pseudo-regret of BKB, its last dictionary's size and the changes of the dictionary.

    Every point that joins or leaves the dictionary is a change.
    """
    bandit = bkb(environment.arms, seed, oversampling=oversampling, resampling=resampling)
    added = dropped = 0
    held: set[int] = set()
    for t in range(rounds):
        x = bandit.ask()
        bandit.tell(x, environment.pull(x, t))
        now = set(environment.indices(bandit.inducing_points))
        added, dropped, held = added + len(now - held), dropped + len(held - now), now
    return {
        "resampling": resampling,
        "oversampling": oversampling,
        "regret": float(environment.regret(bandit.history.X).sum()),
        "dictionary": len(held),
        "added": added,
        "dropped": dropped,
    }


def _table(measurements: list[dict[str, Any]], dimension: int, sizes: Sizes) -> Table:
    here = [run for run in measurements if run["dimension"] == dimension]

    def of(resampling: Resampling, oversampling: float) -> list[dict[str, Any]]:
        return [run for run in here if (run["resampling"], run["oversampling"]) == (resampling, oversampling)]

    exact = [run["exact_regret"] for run in of("fresh", sizes.oversamplings[0])]
    rows = [["exact GP-UCB", mean_and_error(exact, 1), "1", "–", "–", "–"]]
    for oversampling, resampling in product(sizes.oversamplings, RULES):
        runs = of(resampling, oversampling)
        differences = [
            run["regret"] - fresh["regret"] for run, fresh in zip(runs, of("fresh", oversampling), strict=True)
        ]
        rows.append(
            [
                f"BKB, {RULES[resampling]}, q̄ = {oversampling:g}",
                mean_and_error([run["regret"] for run in runs], 1),
                mean_and_error([run["regret"] / run["exact_regret"] for run in runs]),
                "–" if resampling == "fresh" else mean_and_error(differences, 1),
                mean_and_error([(run["added"] + run["dropped"]) / sizes.rounds for run in runs]),
                f"{statistics.fmean(run['dictionary'] for run in runs):.0f}",
            ]
        )
    title = (
        f"Regret after {sizes.rounds} rounds on {sizes.arms:,} arms, d = {dimension}: "
        f"mean ± standard error of {sizes.seeds} seeds"
    )
    columns = [
        "algorithm",
        "cumulative regret",
        "paired ratio to exact",
        "paired difference to fresh",
        "changes of the dictionary a round",
        "dictionary at the end",
    ]
    return Table(title, columns, rows)
