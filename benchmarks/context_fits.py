"""What fits of a learned prior cost in contexts: rounds with a known prior, with fits in ``tell``, and in a thread."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Table, benchmark, chosen, kinds, spread
from torch_kbandits import LearnedPrior, Prior, environments
from torch_kbandits.algorithms import EKUCB
from torch_kbandits.environments.base import ContextualEnvironment

#: How the prior is had; the known one is what was fitted in the end where each fit was in a ``tell``.
_PLAYERS = {"fits in tell": LearnedPrior(), "fits in a thread": LearnedPrior(background=True), "known": None}


def _waves(seed: int) -> ContextualEnvironment:
    generator = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights, actions = generator(16, 4), generator(10, 4).sigmoid()

    def mean(X: Tensor) -> Tensor:
        return torch.sin(3.0 * (X[:, :16] @ weights * X[:, 16:]).sum(-1))

    return environments.ContextualFunction(mean, 16, actions, 0.1, seed)


PROBLEMS: dict[str, Callable[[int], ContextualEnvironment]] = {
    "waves, 16 columns": _waves,
    "digits, 20 components": lambda seed: environments.digits(20, seed=seed),
    "step diagonal": lambda seed: environments.step_diagonal(seed=seed),
}


@benchmark(rounds=14, seeds=1)
def context_fits(rounds: int = 1_000, seeds: int = 3) -> Found:
    """Play EK-UCB, β = 1, on each problem with each prior, one after another; nothing else should run."""
    found = list[Measurement]()
    for problem in PROBLEMS:
        for seed in tqdm(range(seeds), problem):
            known: Prior | None = None
            for player, prior in _PLAYERS.items():
                bandit, measured = _played(PROBLEMS[problem](seed), prior or known, rounds, seed)
                known = known or bandit.prior
                found.append({"problem": problem, "seed": seed, "prior": player, **measured})
    columns = {"mean": "round", "median": "round", "p99": "tell", "largest": "tell", "regret": "regret"}
    rows = []
    for problem in kinds(found, "problem"):
        for player in _PLAYERS:
            runs = chosen(found, problem=problem, prior=player)
            rows.append([problem, player, *(spread([run[column] for run in runs]) for column in columns)])
    names = [f"{column} of a {of}, ms" if of != column else column for column, of in columns.items()]
    return [
        Table(f"Milliseconds of {rounds:,} rounds of EK-UCB in contexts", ["problem", "prior", *names], rows)
    ], found


def _played(
    problem: ContextualEnvironment, prior: Prior | LearnedPrior | None, rounds: int, seed: int
) -> tuple[EKUCB, Measurement]:
    words = {"candidates": problem.actions, "context_dim": problem.context_dim, "beta": 1.0, "seed": seed}
    bandit, regret, seconds = EKUCB(prior=prior, **words), 0.0, np.zeros((rounds, 2))
    for t in range(rounds):
        context, began = problem.context(t), time.perf_counter()
        x = bandit.ask(context=context)
        seconds[t, 0] = time.perf_counter() - began
        played = problem.joint_points(x, t)
        regret += float(problem.means_of_round(t).max() - problem.mean(played, t))
        y, began = problem.pull(played, t), time.perf_counter()
        bandit.tell(x, y, context=context)
        seconds[t, 1] = time.perf_counter() - began
    of_rounds, of_tells = 1e3 * seconds.sum(1), 1e3 * seconds[:, 1]
    times = {"mean": of_rounds.mean(), "median": np.median(of_rounds)}
    times |= {"p99": np.percentile(of_tells, 99), "largest": of_tells.max()}
    return bandit, {name: float(value) for name, value in times.items()} | {"regret": regret}
