"""Regret where the noise differs from play to play and is told, or not: python -m benchmarks.noise_told --seeds 20."""

import argparse
import math
from collections.abc import Iterable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from gpytorch.kernels import MaternKernel
from scipy.stats import sem
from torch import Tensor

from torch_kbandits import Bandit, LearnedPrior
from torch_kbandits.algorithms import BKB, GPTS, GPUCB, RandomSearch
from torch_kbandits.numerics.gram import gram

#: Arms in the unit square, plays, the length scale, and standard deviations of the noise from the least to the most.
ARMS, ROUNDS, LENGTHSCALE, LEAST, MOST = 200, 100, 0.2, 0.1, 1.0
#: The mean variance of a deviation whose logarithm is uniform, which who is told nothing takes for λ.
LEVEL = (MOST**2 - LEAST**2) / (2.0 * math.log(MOST / LEAST))
PLAYERS = {
    "GP-UCB": partial(GPUCB, beta=2.0),
    "BKB": partial(BKB, beta=2.0),
    "GP-TS": partial(GPTS, beta=1.0),
    "GP-UCB, fitted": partial(GPUCB, beta=2.0, prior=LearnedPrior()),
}


def kernel() -> MaternKernel:
    """Return the kernel of which functions are drawn."""
    found = MaternKernel(nu=2.5).double()
    found.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    return found


def problem(seed: int, *, by_arm: bool) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
    """Return arms (A, 2), their means (A,), the deviations of plays of each in each round (T, A), and their noise."""
    random = np.random.default_rng([41, seed])
    arms = torch.from_numpy(random.random((ARMS, 2)))
    with torch.no_grad():
        values, vectors = np.linalg.eigh(gram(kernel(), arms).numpy())
    means = vectors @ (np.sqrt(values.clip(0.0)) * random.standard_normal(ARMS))
    share = random.random((1 if by_arm else ROUNDS, ARMS if by_arm else 1))
    deviations = np.broadcast_to(LEAST * (MOST / LEAST) ** share, (ROUNDS, ARMS))
    return arms, means, deviations, random.standard_normal((ROUNDS, ARMS))


def regrets(make: Any, seed: int, *, by_arm: bool, is_told: bool) -> tuple[float, float]:
    """Return the mean regret of the rounds of a player, and that of what it recommends in the end."""
    arms, means, deviations, noise = problem(seed, by_arm=by_arm)
    given = {} if getattr(make, "keywords", {}).get("prior") else {"kernel": kernel(), "regularization": LEVEL}
    bandit: Bandit = make(candidates=arms, seed=seed, **given)
    chosen = np.zeros(ROUNDS, dtype=int)
    for t in range(ROUNDS):
        asked = bandit.ask(details=True)
        row = chosen[t] = int(cast(Tensor, asked.rows)[0])
        deviation = deviations[t, row]
        bandit.tell(ids=asked.ids, y=means[row] + deviation * noise[t, row], sem=deviation if is_told else None)
    best = int((arms == bandit.recommend()).all(-1).nonzero()[0])
    return float((means.max() - means[chosen]).mean()), float(means.max() - means[best])


def table(seeds: Iterable[int], *, by_arm: bool) -> list[str]:
    """Return a line for each player: regret a round and in the end, not told, told, and what telling saves."""
    lines = ["| player | regret a round, not told | told | saved | in the end, not told | told | saved |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for name, make in PLAYERS.items():
        each = [[regrets(make, seed, by_arm=by_arm, is_told=told) for told in (False, True)] for seed in seeds]
        found = np.array(each)
        saved = found[:, 0] - found[:, 1]
        means = found.mean(0)
        cells = [f"{means[0, end]:.3f} | {means[1, end]:.3f} | {_spread(saved[:, end])}" for end in (0, 1)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    random = np.array([regrets(RandomSearch, seed, by_arm=by_arm, is_told=False)[0] for seed in seeds])
    return [*lines, f"| random | {random.mean():.3f} | | | | | |", "| best fixed arm | 0 | | | 0 | | |"]


def _spread(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {sem(values):.3f}"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=100, help="the first seed; those below 100 served for tuning")
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    for by_arm in (False, True):
        print("Noise differs from arm to arm" if by_arm else "Noise differs from play to play", flush=True)
        lines = table(range(parsed.first, parsed.first + parsed.seeds), by_arm=by_arm)
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
