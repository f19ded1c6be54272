"""What memories lose whose number is learned as they play, against the best of some numbers in hindsight.

Before it was run it was fixed what is to be shown: on each problem the prior on time with a learned ε, and the window
and the discount with a learned number, have at most 1.25 times the mean regret of the best fixed number of their kind.
"""

import statistics
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, cast

from gpytorch.kernels import Kernel
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import Bandit, LearnedPrior, Prior, algorithms, environments
from torch_kbandits.environments import DynamicEnvironment
from torch_kbandits.memory import (
    Discount,
    LinearGrowth,
    Memory,
    Restart,
    SlidingWindow,
    TemporalPrior,
    UncertaintyInjection,
)

#: Multiplier of the deviation for all, and how much more the learned may have than the best in hindsight.
_BETA, _AT_MOST = 2.0, 1.25


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another function, another noise and another bandit."""

    rounds: int = 300
    arms: int = 100
    seeds: tuple[int, ...] = (100, 101)
    problems: tuple[str, ...] = ("drift, P_T = 20", "drift, P_T = 80", "switch every 100")


QUICK = Sizes(rounds=12, arms=15, seeds=(0,), problems=("switch every 100",))

#: The problems of docs/reproducing.md, whose drift is for 500 rounds.
_PROBLEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "drift, P_T = 20": ("drift", {"variation_budget": 20.0, "horizon": 500}),
    "drift, P_T = 80": ("drift", {"variation_budget": 80.0, "horizon": 500}),
    "switch every 100": ("abrupt", {"switches": 100}),
}

#: The numbers of each kind that are tried there; the first is that from which a fit starts.
_TRIED: dict[str, tuple[Memory, ...]] = {
    "window": (SlidingWindow(50.0), SlidingWindow(20.0), SlidingWindow(100.0)),
    "restarts": (Restart(100.0), Restart(33.0)),
    "discount": (Discount(0.95), Discount(0.98)),
    "growing noise": (UncertaintyInjection(LinearGrowth(0.01), 4.0),),
    "prior on time": (TemporalPrior(0.01), TemporalPrior(0.003), TemporalPrior(0.03)),
}

_CLAIMED = ("window", "discount", "prior on time")


def _players() -> dict[str, Callable[[DynamicEnvironment, int], Bandit]]:
    def known(
        environment: DynamicEnvironment, seed: int, memory: Memory | None = None, name: str = "igp-ucb"
    ) -> Bandit:
        prior = Prior(cast(Kernel, environment.kernel), cast(float, environment.regularization))
        words = {} if memory is None else {"memory": memory}
        return algorithms.build(name, candidates=environment.arms, prior=prior, beta=_BETA, seed=seed, **words)

    def learned(environment: DynamicEnvironment, seed: int, memory: Memory, all_of_it: bool = False) -> Bandit:
        kernel = deepcopy(cast(Kernel, environment.kernel)).requires_grad_(False)
        words = {} if all_of_it else {"kernel": kernel, "regularization": environment.regularization, "mean": 0.0}
        prior = LearnedPrior(learn_memory=True, **words)
        return algorithms.build(
            "igp-ucb", candidates=environment.arms, prior=prior, memory=memory, beta=_BETA, seed=seed
        )

    players: dict[str, Callable[[DynamicEnvironment, int], Bandit]] = {
        "no memory": known,
        "ET": lambda environment, seed: known(environment, seed, name="et-gp-ucb"),
    }
    for kind, tried in _TRIED.items():
        for memory in tried:
            players[f"{kind}, {_number(memory):g}"] = lambda e, s, m=memory: known(e, s, m)
        players[f"{kind}, learned"] = lambda e, s, m=tried[0]: learned(e, s, m)
    players["kernel, λ, mean and ε of a prior on time, all learned"] = lambda e, s: learned(
        e, s, TemporalPrior(0.01), True
    )
    return players


def _number(memory: Memory) -> float:
    """Return the number of a memory that a fit would learn."""
    if isinstance(memory, UncertaintyInjection):
        return memory.growth.value
    return float(next(iter(vars(memory).values())))


def play(bandit: Bandit, environment: DynamicEnvironment, rounds: int) -> float:
    """Return the cumulative regret against the best arm of each round."""
    total = 0.0
    for t in range(rounds):
        x = bandit.ask()
        total += float(environment.regret(x, round=t))
        bandit.tell(x, environment.pull(x, round=t) - environment.center)
    return total


def run(quick: bool = False) -> Report:
    """Play every player on every problem."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    for seed, problem in tqdm(list(product(sizes.seeds, sizes.problems)), desc="learned_memories", unit="problem"):
        name, words = _PROBLEMS[problem]
        environment = cast(DynamicEnvironment, environments.build(name, num_arms=sizes.arms, seed=seed, **words))
        for player, make in _players().items():
            regret = play(make(environment, seed), environment, sizes.rounds)
            measurements.append({"problem": problem, "seed": seed, "player": player, "regret": regret})
    return Report("learned_memories", asdict(sizes), [_table(measurements, sizes)], measurements)


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    def of(player: str, problem: str) -> list[float]:
        return [run["regret"] for run in measurements if (run["player"], run["problem"]) == (player, problem)]

    rows = []
    for player in dict.fromkeys(run["player"] for run in measurements):
        kind, cells = player.split(", ")[0], []
        for problem in sizes.problems:
            cell = mean_and_error(of(player, problem), 0)
            if kind in _TRIED and player == f"{kind}, learned":
                tried = [statistics.fmean(of(f"{kind}, {_number(memory):g}", problem)) for memory in _TRIED[kind]]
                ratio = statistics.fmean(of(player, problem)) / min(tried)
                cell += (
                    f" ({ratio:.2f}{' ✓' if ratio <= _AT_MOST else ' ✗'})" if kind in _CLAIMED else f" ({ratio:.2f})"
                )
            cells.append(cell)
        rows.append([player, *cells])
    title = (
        f"Regret after {sizes.rounds} rounds on {sizes.arms} arms, mean ± standard error of {len(sizes.seeds)} seeds, "
        "and that with a learned number over that of the best number of its kind"
    )
    return Table(title, ["memory", *sizes.problems], rows)
