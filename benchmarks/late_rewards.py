"""What delays cost where a function drifts: rewards of the time at which they were played, or at which they came.

Before it was run it was fixed what is to be shown: under both memories and with every delay, dating a reward when its
point was played has at most the mean regret of dating it when it came; and up to a delay of 20 rounds it has less than
the best fixed arm in hindsight.
"""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, cast

import torch
from gpytorch.kernels import Kernel
from tqdm import tqdm

from benchmarks.report import Report, Table, mean_and_error
from torch_kbandits import Bandit, algorithms, environments
from torch_kbandits.environments import DynamicEnvironment
from torch_kbandits.memory import Discount, LinearGrowth, Memory, UncertaintyInjection

#: Multiplier of the deviation for all.
_BETA = 2.0

#: As in learned_memories, where rewards come at once.
_MEMORIES: dict[str, Memory] = {
    "discount 0.95": Discount(0.95, 1e-3),
    "injection 0.01": UncertaintyInjection(LinearGrowth(0.01), 4.0),
}


@dataclass(frozen=True)
class Sizes:
    """What is run; each seed is another function, other delays, another noise and another bandit."""

    rounds: int = 200
    arms: int = 40
    seeds: tuple[int, ...] = tuple(range(200, 210))
    delays: tuple[int, ...] = (0, 5, 20, 50)
    budget: float = 8.0


QUICK = Sizes(rounds=12, arms=8, seeds=(0,), delays=(0, 3))


def told_when_played(bandit: Bandit, t: int, played: list[tuple[int, torch.Tensor, Any]]) -> None:
    """Tell rewards by the ids of their points."""
    bandit.tell(ids=[number for number, _, _ in played], y=torch.cat([y for _, _, y in played]))


def told_when_come(bandit: Bandit, t: int, played: list[tuple[int, torch.Tensor, Any]]) -> None:
    """Tell rewards as if their points had been played now."""
    bandit.tell(ids=[number for number, _, _ in played], y=torch.cat([y for _, _, y in played]), time=t)


def told_unseen(bandit: Bandit, t: int, played: list[tuple[int, torch.Tensor, Any]]) -> None:
    """Tell rewards of when they were played; while they are waited for, no choice knows of their points."""
    X, Y = torch.cat([x for _, x, _ in played]), torch.cat([y for _, _, y in played])
    bandit.tell(X, Y, time=[number for number, _, _ in played])


_WAYS: dict[str, Callable[[Bandit, int, list[tuple[int, torch.Tensor, Any]]], None]] = {
    "when played": told_when_played,
    "when it came": told_when_come,
    "when played, nothing pending": told_unseen,
}


def delays_of(mean: int, is_random: bool, rounds: int, seed: int) -> list[int]:
    """Return by how many rounds each reward is late: always by as many, or geometric with this mean."""
    if not is_random or mean == 0:
        return [mean] * rounds
    lots = torch.rand(rounds, generator=torch.Generator().manual_seed(1000 * seed + mean), dtype=torch.float64)
    return (lots.log() / torch.tensor(mean / (1.0 + mean), dtype=torch.float64).log()).floor().long().tolist()


def play(way: str, memory: Memory, environment: DynamicEnvironment, late: list[int], seed: int) -> float:
    """Return the cumulative regret against the best arm of each round."""
    bandit = algorithms.build(
        "igp-ucb",
        candidates=environment.arms,
        kernel=cast(Kernel, environment.kernel),
        regularization=cast(float, environment.regularization),
        memory=memory,
        beta=_BETA,
        seed=seed,
    )
    waiting: dict[int, list[tuple[int, torch.Tensor, Any]]] = {}
    is_seen, total = way != "when played, nothing pending", 0.0
    for t, delay in enumerate(late):
        asked = bandit.ask(time=t, return_ids=True)
        x, y = asked.actions, environment.pull(asked.actions, round=t) - environment.center
        if not is_seen:
            bandit.forget(ids=asked.ids)
        total += float(environment.regret(x, round=t))
        waiting.setdefault(t + delay, []).append((t, x, y))  # its number is that of its round
        if t in waiting:
            _WAYS[way](bandit, t, waiting.pop(t))
    return total


def run(quick: bool = False) -> Report:
    """Play every way to tell rewards under every memory with every delay."""
    sizes = QUICK if quick else Sizes()
    measurements = []
    for seed in tqdm(sizes.seeds, desc="late_rewards", unit="seed"):
        words = {"variation_budget": sizes.budget, "horizon": sizes.rounds}
        environment = cast(DynamicEnvironment, environments.build("drift", num_arms=sizes.arms, seed=seed, **words))
        means = torch.stack([environment.means(t) for t in range(sizes.rounds)])
        losses = means.amax(1, keepdim=True) - means
        for player, regret in (("random play", losses.mean(1).sum()), ("the best fixed arm", losses.sum(0).min())):
            measurements.append({"seed": seed, "player": player, "delay": "any", "regret": float(regret)})
        for mean, is_random in product(sizes.delays, (False, True)):
            if mean == 0 and is_random:
                continue
            late = delays_of(mean, is_random, sizes.rounds, seed)
            for (name, memory), way in product(_MEMORIES.items(), _WAYS):
                if mean == 0 and way != "when played":
                    continue  # all are the same
                regret = play(way, memory, environment, late, seed)
                words = {"player": f"{name}, {way}", "delay": _named(mean, is_random)}
                measurements.append({"seed": seed, **words, "regret": regret})
    return Report("late_rewards", asdict(sizes), [_table(measurements, sizes)], measurements)


def _named(mean: int, is_random: bool) -> str:
    return "none" if mean == 0 else f"{mean}{', geometric' if is_random else ''}"


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    columns = [_named(mean, is_random) for is_random in (False, True) for mean in sizes.delays if mean or not is_random]

    def of(player: str, delay: str) -> list[float]:
        return [run["regret"] for run in measurements if run["player"] == player and run["delay"] in (delay, "any")]

    rows, best = [], "the best fixed arm"
    for player in dict.fromkeys(run["player"] for run in measurements):
        cells, (name, _, way) = [], player.partition(", ")
        for delay in columns:
            regrets = of(player, delay) or of(f"{name}, when played", delay)
            cell, mean = mean_and_error(regrets, 0), statistics.fmean(regrets)
            if way == "when played":
                came = of(f"{name}, when it came", delay)
                is_met = not came or mean <= statistics.fmean(came)
                if delay == "none" or int(delay.split(",")[0]) <= 20:
                    is_met &= mean < statistics.fmean(of(best, delay))
                cell += " ✓" if is_met else " ✗"
            cells.append(cell)
        rows.append([player, *cells])
    title = (
        f"Regret after {sizes.rounds} rounds on {sizes.arms} arms by mean delay in rounds, mean ± standard error of "
        f"{len(sizes.seeds)} seeds"
    )
    return Table(title, ["rewards are dated", *columns], rows)
