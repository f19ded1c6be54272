"""What the dictionary costs in regret: BKB against exact GP-UCB and its authors' BKB on the same rewards."""

import statistics
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import torch
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
from benchmarks.references import AuthorsBKB, ExactGPUCB, Problem
from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits.environments import FiniteArms, gaussian_bumps

OVERSAMPLINGS = (1.0, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another environment, another noise and another bandit."""

    arms: int = 2_000
    dimensions: tuple[int, ...] = (2, 6)
    rounds: int = 500
    seeds: tuple[int, ...] = tuple(range(7100, 7110))


QUICK = Sizes(arms=100, dimensions=(1, 2), rounds=15, seeds=(0, 1))


def run(quick: bool = False) -> Report:
    """Play all algorithms on every environment; the noise of a round is the same for each of them."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    for dimension, seed in tqdm(list(product(sizes.dimensions, sizes.seeds)), desc="bkb_regret", unit="seed"):
        environment = gaussian_bumps(sizes.arms, dimension, lengthscale=LENGTHSCALE, seed=seed)
        exact = exact_regret(environment, sizes.rounds, seed)
        uniform = sizes.rounds * float(environment.best_mean - environment.means.mean())
        for oversampling in OVERSAMPLINGS:
            regret, dictionary = bkb_regret(environment, oversampling, sizes.rounds, seed)
            authors, authors_dictionary = authors_regret(environment, oversampling, sizes.rounds, seed)
            measurements.append(
                {
                    "dimension": dimension,
                    "seed": seed,
                    "oversampling": oversampling,
                    "regret": regret,
                    "exact_regret": exact,
                    "uniform_regret": uniform,
                    "dictionary": dictionary,
                    "authors_regret": authors,
                    "authors_dictionary": authors_dictionary,
                }
            )
    tables = [_table(measurements, dimension, sizes) for dimension in sizes.dimensions]
    return Report("bkb_regret", asdict(sizes), tables, measurements)


def bkb_regret(environment: FiniteArms, oversampling: float, rounds: int, seed: int) -> tuple[float, int]:
    """Return the cumulative pseudo-regret of BKB and the size of its last dictionary."""
    bandit = bkb(environment.arms, seed, oversampling=oversampling)
    for t in range(rounds):
        x = bandit.ask()
        bandit.tell(x, environment.pull(x, t))
    return float(environment.regret(bandit.history.X).sum()), len(bandit.inducing_points)


def authors_regret(environment: FiniteArms, oversampling: float, rounds: int, seed: int) -> tuple[float, int]:
    """Return the same of the authors' BKB, which is given the first arm that ours plays."""
    problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    authors = AuthorsBKB(problem, oversampling, seed)
    first = bkb(environment.arms, seed, oversampling=oversampling).ask(remember=False)
    played = environment.indices(first)
    for t in range(rounds):
        if t > 0:
            played.append(authors.ask())
        authors.tell(played[-1], float(environment.pull(environment.arms[played[-1], None], t)))
    return float(environment.regret(environment.arms[torch.tensor(played)]).sum()), len(authors.dictionary)


def exact_regret(environment: FiniteArms, rounds: int, seed: int) -> float:
    """Return the cumulative pseudo-regret of exact GP-UCB."""
    problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    exact = ExactGPUCB(problem, rounds, seed)
    played = []
    for t in range(rounds):
        row = exact.ask()
        exact.tell(row, float(environment.pull(environment.arms[row, None], t)))
        played.append(row)
    return float(environment.regret(environment.arms[torch.tensor(played)]).sum())


def _table(measurements: list[dict[str, Any]], dimension: int, sizes: Sizes) -> Table:
    here = [run for run in measurements if run["dimension"] == dimension]
    environments = [run for run in here if run["oversampling"] == OVERSAMPLINGS[0]]
    exact = [run["exact_regret"] for run in environments]

    def cells(name: str, regrets: list[float], dictionary: str, more: str = "–") -> list[str]:
        ratio = f"{statistics.fmean(regrets) / statistics.fmean(exact):.2f}"
        paired = mean_and_error([regret / base for regret, base in zip(regrets, exact, strict=True)])
        return [name, mean_and_error(regrets, 1), ratio, paired, more, dictionary]

    rows = [["exact GP-UCB", mean_and_error(exact, 1), "1", "1", "–", "–"]]
    for oversampling in OVERSAMPLINGS:
        runs = [run for run in here if run["oversampling"] == oversampling]
        ours, theirs = ([run[key] for run in runs] for key in ("regret", "authors_regret"))
        sizes_at_end = [
            f"{statistics.fmean(run[key] for run in runs):.0f}" for key in ("dictionary", "authors_dictionary")
        ]
        more = mean_and_error([own - other for own, other in zip(ours, theirs, strict=True)], 1)
        rows.append(cells(f"BKB, q̄ = {oversampling:g}", ours, sizes_at_end[0], more))
        rows.append(cells(f"authors' code, q̄ = {oversampling:g}", theirs, sizes_at_end[1]))
    rows.append(cells("arms drawn uniformly, expected", [run["uniform_regret"] for run in environments], "–"))
    title = (
        f"Regret after {sizes.rounds} rounds on {sizes.arms:,} arms, d = {dimension}: "
        f"mean ± standard error of {len(sizes.seeds)} seeds"
    )
    columns = [
        "algorithm",
        "cumulative regret",
        "ratio of means",
        "mean of paired ratios",
        "paired difference to the authors' code",
        "dictionary at the end",
    ]
    return Table(title, columns, rows)
