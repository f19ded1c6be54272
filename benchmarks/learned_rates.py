"""What it costs TV-GP-UCB not to know how fast its problem changes: ε learned as rewards come, against ε given."""

import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel
from torch import Tensor
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import algorithms
from torch_kbandits.memory import BackToPrior
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors import default_kernel
from torch_kbandits.priors.evidence import Data, fit_evidence
from torch_kbandits.priors.fitting import center_and_scale

#: Of the kernel of the problems, and of the noise.
LENGTHSCALE, NOISE = 0.2, 0.1

#: The first fit, and how many times as many rewards there are at the next.
_FIRST, _GROWTH = 10, 1.5

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


class Prior(NamedTuple):
    """What a bandit is built with, for rewards less ``center`` and over ``scale``."""

    kernel: Kernel
    regularization: float
    forgetting: float
    center: float = 0.0
    scale: float = 1.0


#: Takes points (n, 2), rewards (n,) and the seed, and returns what is believed then.
Learner = Callable[[Tensor, Tensor, int], Prior]


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


def known(forgetting: float) -> Prior:
    """Return the prior of the problems but for its ε."""
    return Prior(kernel(), NOISE**2, forgetting)


def learned_rate(X: Tensor, Y: Tensor, seed: int) -> Prior:
    """Fit ε, where all else is known."""
    fit = fit_evidence(
        _timed(X, Y), kernel(), regularization=NOISE**2, memory=BackToPrior(0.0), learn_memory=True, seed=seed
    )
    assert isinstance(fit.memory, BackToPrior)
    return known(fit.memory.forgetting)


def learned_all(X: Tensor, Y: Tensor, seed: int) -> Prior:
    """Fit kernel, λ, mean and ε to rewards of any units."""
    center, scale = center_and_scale(Y)
    told, forgetting = _timed(X, (Y - center) / scale), BackToPrior(0.0)
    fit = fit_evidence(told, default_kernel(2), memory=forgetting, learn_memory=True, learn_mean=True, seed=seed)
    assert isinstance(fit.memory, BackToPrior)
    return Prior(fit.kernel, fit.regularization, fit.memory.forgetting, center + scale * fit.mean, scale)


def _timed(X: Tensor, Y: Tensor) -> Data:
    times = torch.arange(len(Y), dtype=torch.float64)
    return Data(torch.cat([times.unsqueeze(-1), X], dim=-1), Y, times, float(len(Y)))


def regret(problem: Problem, rounds: int, prior: Prior, learner: Learner | None, seed: int) -> tuple[float, float]:
    """Play; return the mean regret of a round and the ε in force in the end."""
    bandit = _bandit(problem, prior, seed)
    total, due = 0.0, _FIRST
    rewards = torch.empty(0, dtype=torch.float64)
    for t in range(rounds):
        if learner is not None and t == due:
            told = bandit.history
            prior, due = learner(told.X[:, -2:], rewards, seed), math.ceil(_GROWTH * due)
            bandit = _bandit(problem, prior, seed)
            bandit.replay(told._replace(Y=(rewards - prior.center) / prior.scale))
        x = bandit.ask()
        row = int((problem.arms == x).all(-1).nonzero())
        total += float(problem.values[t].max() - problem.values[t, row])
        reward = problem.values[t, row] + problem.noise[t]
        rewards = torch.cat([rewards, reward.reshape(1)])
        bandit.tell(x, (reward - prior.center) / prior.scale)
    return total / rounds, prior.forgetting


def _bandit(problem: Problem, prior: Prior, seed: int) -> algorithms.TVGPUCB:
    return algorithms.TVGPUCB(
        kernel=prior.kernel,
        regularization=prior.regularization,
        forgetting=prior.forgetting,
        candidates=problem.arms,
        seed=seed,
    )


def run(quick: bool = False) -> Report:
    """Play every player on every problem; regrets are against the best arm of each round."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    for rate, seed in tqdm(list(product(sizes.rates, sizes.seeds)), desc="learned_rates", unit="problem"):
        problem = Problem(sizes.arms, sizes.rounds, rate, seed)
        for name, (prior, learner) in _players(rate).items():
            mean, forgetting = regret(problem, sizes.rounds, prior, learner, seed)
            measurements.append({"rate": rate, "seed": seed, "player": name, "regret": mean, "forgetting": forgetting})
        random = float((problem.values.max(-1).values - problem.values.mean(-1)).mean())
        measurements.append({"rate": rate, "seed": seed, "player": "random", "regret": random, "forgetting": None})
    return Report(
        "learned_rates", asdict(sizes), [_table(measurements, rate, sizes) for rate in sizes.rates], measurements
    )


def _players(rate: float) -> dict[str, tuple[Prior, Learner | None]]:
    share = math.sqrt(2.0 - 2.0 * math.sqrt(1.0 - rate))  # ‖f_(t+1) − f_t‖ / ‖f_t‖
    return {
        "the true ε": (known(rate), None),
        "ε learned": (known(0.03), learned_rate),
        "kernel, λ, mean, units and ε learned": (known(0.03), learned_all),
        f"ε the share that changes, {share:.2g}": (known(share), None),
        "a tenth of the true ε": (known(0.1 * rate), None),
        "ten times the true ε": (known(10.0 * rate), None),
        "ε = 0": (known(0.0), None),
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
