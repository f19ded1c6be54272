"""How accurate the dictionary is: variances of BKB over the exact ones, on all arms along runs."""

import statistics
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from tqdm import tqdm

from benchmarks.arm_bandits import BETA, LENGTHSCALE, REGULARIZATION, bkb
from benchmarks.references import Array, ExactGPUCB, Problem, bkb_posterior
from benchmarks.report import Report, Table
from benchmarks.resampling_regret import RULES
from torch_kbandits.dictionaries import Resampling
from torch_kbandits.environments import FiniteArms, gaussian_bumps

#: The factor α of BKB's theorem at ε = 1/2.
ALPHA = 3.0


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another environment, another noise and another bandit."""

    arms: int = 2_000
    dimension: int = 2
    oversamplings: tuple[float, ...] = (2.0, 3.0)
    rounds: int = 500
    every: int = 10
    seeds: int = 10


QUICK = Sizes(arms=100, rounds=15, every=5, seeds=2)


def run(quick: bool = False) -> Report:
    """Play BKB in its three kinds of resampling; the noise of a round is the same for each of them."""
    sizes = QUICK if quick else Sizes()
    measurements, rows = [], []
    for oversampling, resampling in tqdm(list(product(sizes.oversamplings, RULES)), desc="variance_ratio", unit="rule"):
        runs = []
        for seed in range(sizes.seeds):
            environment = gaussian_bumps(sizes.arms, sizes.dimension, lengthscale=LENGTHSCALE, seed=seed)
            ratios, dictionary = play(environment, resampling, oversampling, sizes, seed)
            runs.append((ratios, dictionary))
            measurements.append(
                {
                    "resampling": resampling,
                    "oversampling": oversampling,
                    "seed": seed,
                    "least": ratios.min(1).tolist(),
                    "largest": ratios.max(1).tolist(),
                    "dictionary": dictionary,
                }
            )
        rows.append(_row(f"{RULES[resampling]}, q̄ = {oversampling:g}", runs))
    title = (
        f"DTC variance / exact variance on {sizes.arms:,} arms, d = {sizes.dimension}, in every {sizes.every}th of "
        f"{sizes.rounds} rounds of {sizes.seeds} seeds"
    )
    columns = [
        "BKB",
        "least",
        "0.1%",
        "1%",
        "median",
        "99%",
        "99.9%",
        "largest",
        f"rounds with an arm outside [1/{ALPHA:g}, {ALPHA:g}], %",
        "dictionary, mean",
    ]
    return Report("variance_ratio", asdict(sizes), [Table(title, columns, rows)], measurements)


def play(
    environment: FiniteArms, resampling: Resampling, oversampling: float, sizes: Sizes, seed: int
) -> tuple[Array, list[int]]:
    """Return the ratio of all arms in the rounds looked at, (rounds, A), and the sizes of the dictionaries there."""
    bandit = bkb(environment.arms, seed, oversampling=oversampling, resampling=resampling)
    problem = Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)
    exact = ExactGPUCB(problem, sizes.rounds, seed)
    played, ratios, dictionary = [], [], []
    for t in range(sizes.rounds):
        x = bandit.ask()
        y = environment.pull(x, t)
        bandit.tell(x, y)
        played += environment.indices(x)
        exact.tell(played[-1], float(y))
        if (t + 1) % sizes.every == 0:
            rows = np.array(environment.indices(bandit.inducing_points))
            variance = bkb_posterior(problem, rows, np.array(played), np.zeros(len(played)))[1]
            ratios.append(variance / exact.variance)
            dictionary.append(len(rows))
    return np.stack(ratios), dictionary


def _row(name: str, runs: list[tuple[Array, list[int]]]) -> list[str]:
    ratios = np.concatenate([ratios for ratios, _ in runs])
    quantiles = np.quantile(ratios, [0.0, 0.001, 0.01, 0.5, 0.99, 0.999, 1.0])
    outside = ((ratios < 1.0 / ALPHA) | (ratios > ALPHA)).any(1).mean()
    size = statistics.fmean(size for _, dictionary in runs for size in dictionary)
    return [name, *(f"{value:.3f}" for value in quantiles), f"{100.0 * outside:.1f}", f"{size:.0f}"]
