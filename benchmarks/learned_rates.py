"""What it costs TV-GP-UCB not to know how fast its problem changes: ε learned as rewards come, against ε given."""

import math
import statistics
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel, MaternKernel
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import LearnedPrior, Prior, algorithms
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

#: Of the kernel of the problems, and of the noise.
LENGTHSCALE, NOISE = 0.2, 0.1

#: The ε that is played with until it is learned.
_FIRST = 0.03

#: How many times the mean regret of the true ε the learned one may have: fixed before the seeds were looked at.
_AT_MOST = 1.15


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another function, another noise and another bandit."""

    rounds: int = 200
    arms: int = 50
    rates: tuple[float, ...] = (0.03, 0.01, 0.003)
    seeds: tuple[int, ...] = tuple(range(100, 110))


QUICK = Sizes(rounds=14, arms=10, rates=(0.03,), seeds=(0,))


class Problem:
    """A draw of the prior of TV-GP-UCB: each round replaces a share of the function, whose values are N(0, 1)."""

    def __init__(self, arms: int, rounds: int, forgetting: float, seed: int) -> None:
        generator = generator_for(seed, 0, "learned rates")
        self.arms = torch.rand(arms, 2, generator=generator, dtype=torch.float64)
        root = jittered_cholesky(kernel()(self.arms).to_dense().detach())
        draws = torch.randn(rounds, arms, generator=generator, dtype=torch.float64) @ root.mT
        self.noise = NOISE * torch.randn(rounds, generator=generator, dtype=torch.float64)
        values = [draws[0]]
        for fresh in draws[1:]:
            values.append(math.sqrt(1.0 - forgetting) * values[-1] + math.sqrt(forgetting) * fresh)
        self.values = torch.stack(values)


def kernel() -> Kernel:
    """Return the kernel of the problems at one time, which no fit moves."""
    made = MaternKernel(nu=2.5).double().requires_grad_(False)
    made.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    return made


def regret(problem: Problem, rounds: int, bandit: algorithms.TVGPUCB) -> tuple[float, float | None]:
    """Play; return the mean regret of a round and the ε that was learned."""
    total = 0.0
    for t in range(rounds):
        x = bandit.ask()
        row = int((problem.arms == x).all(-1).nonzero())
        total += float(problem.values[t].max() - problem.values[t, row])
        bandit.tell(x, problem.values[t, row] + problem.noise[t])
    return total / rounds, None if bandit.memory is None else cast(TemporalPrior, bandit.memory).forgetting


def run(quick: bool = False) -> Report:
    """Play every player on every problem; regrets are against the best arm of each round."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    for rate, seed in tqdm(list(product(sizes.rates, sizes.seeds)), desc="learned_rates", unit="problem"):
        problem = Problem(sizes.arms, sizes.rounds, rate, seed)
        for name, (first, prior) in _players(rate).items():
            bandit = algorithms.TVGPUCB(candidates=problem.arms, prior=prior, forgetting=first, seed=seed)
            mean, last = regret(problem, sizes.rounds, bandit)
            forgetting = first if last is None else last
            measurements.append({"rate": rate, "seed": seed, "player": name, "regret": mean, "forgetting": forgetting})
        random = float((problem.values.max(-1).values - problem.values.mean(-1)).mean())
        measurements.append({"rate": rate, "seed": seed, "player": "random", "regret": random, "forgetting": None})
    return Report(
        "learned_rates", asdict(sizes), [_table(measurements, rate, sizes) for rate in sizes.rates], measurements
    )


def _players(rate: float) -> dict[str, tuple[float, Prior | LearnedPrior]]:
    """Return of each player the ε that it starts with, or keeps, and its prior."""
    known, share = Prior(kernel(), NOISE**2), math.sqrt(2.0 - 2.0 * math.sqrt(1.0 - rate))  # ‖f_(t+1) − f_t‖ / ‖f_t‖
    return {
        "the true ε": (rate, known),
        "ε learned": (_FIRST, LearnedPrior(kernel(), NOISE**2, 0.0, learn_memory=True)),
        "kernel, λ, mean, units and ε learned": (_FIRST, LearnedPrior(learn_memory=True)),
        f"ε the share that changes, {share:.2g}": (share, known),
        "a tenth of the true ε": (0.1 * rate, known),
        "ten times the true ε": (10.0 * rate, known),
        "ε = 0": (0.0, known),
    }


def _table(measurements: list[dict[str, Any]], rate: float, sizes: Sizes) -> Table:
    here = [run for run in measurements if run["rate"] == rate]
    base = [run["regret"] for run in here if run["player"] == "the true ε"]
    rows = []
    for name in dict.fromkeys(run["player"] for run in here):
        runs = [run for run in here if run["player"] == name]
        regrets = [run["regret"] for run in runs]
        ratio = statistics.fmean(regrets) / statistics.fmean(base)
        verdict = {"ε learned": " ✓" if ratio <= _AT_MOST else " ✗"}.get(name, "")
        shares = [run["forgetting"] for run in runs if run["forgetting"] is not None]
        last = f"{statistics.median(shares):.2g} ({min(shares):.2g}–{max(shares):.2g})" if shares else "–"
        rows.append([name, mean_and_error(regrets, 3), f"{ratio:.2f}{verdict}", last])
    title = (
        f"Mean regret of a round of {sizes.rounds} on {sizes.arms} arms, draws of TV's prior with ε = {rate:g}: mean ± "
        f"standard error of {len(sizes.seeds)} seeds"
    )
    return Table(title, ["player", "regret", "ratio of means to the true ε", "ε in the end, median (range)"], rows)
