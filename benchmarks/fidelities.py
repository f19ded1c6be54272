"""A fidelity as a column of the candidates: the best configuration found, against what was spent to find it."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.learning_curves import CURVES, Curves
from benchmarks.runner import Found, Measurement, Parts, benchmark, chosen, crossed, tabulated
from torch_kbandits import Fidelity, LearnedPrior
from torch_kbandits.algorithms import GPEI, GPUCB

#: What was spent when the configuration that would be used is looked at, in evaluations at the target.
_SPENDS = (5.0, 10.0, 20.0)
#: What a player would use after each of its plays, and what it spent by then.
Trace = Iterator[tuple[int, float]]


def _with_fidelity(X: Tensor, scores: Tensor, curves: Curves, seed: int) -> Trace:
    """Play GP-UCB, β = 2, over configurations and the logarithm of the fidelity."""
    levels = [math.log(level) for level in curves.levels]
    number = len(X)
    column = torch.tensor(levels, dtype=X.dtype).repeat_interleave(number).unsqueeze(-1)
    arms = torch.cat([X.repeat(len(levels), 1), column], dim=-1)
    fidelity = Fidelity(column=X.shape[1], levels=levels, costs=curves.levels)
    bandit = GPUCB(candidates=arms, prior=LearnedPrior(), beta=2.0, fidelity=fidelity, seed=seed)
    while True:
        row = _row_of(arms, bandit.ask())
        bandit.tell(arms[row, None], scores[row % number, row // number])
        yield _row_of(X, bandit.recommend()[:, :-1]), bandit.spent


def _at_the_target(kind: type[GPUCB] | type[GPEI], X: Tensor, scores: Tensor, curves: Curves, seed: int) -> Trace:
    """Play at the target alone."""
    words: dict[str, Any] = {"beta": 2.0} if kind is GPUCB else {}
    bandit = kind(candidates=X, prior=LearnedPrior(), seed=seed, **words)
    for rounds in range(1, len(X)):
        x = bandit.ask()
        bandit.tell(x, scores[_row_of(X, x), -1])
        yield _row_of(X, bandit.recommend()), rounds * curves.levels[-1]


def _random(X: Tensor, scores: Tensor, curves: Curves, seed: int) -> Trace:
    """Evaluate random configurations at the target, and use the best."""
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    for rounds in range(1, len(X)):
        seen = order[:rounds]
        yield int(seen[scores[seen, -1].argmax()]), rounds * curves.levels[-1]


def _hyperband(X: Tensor, scores: Tensor, curves: Curves, seed: int) -> Trace:
    """Hyperband, whose brackets begin at each level in turn; going on with a configuration costs the difference.

    Source: Li et al., JMLR 2018, with the ratio of two levels as η. What is used is the best at the highest level.
    """
    generator, costs, spent, best = torch.Generator().manual_seed(seed), curves.levels, 0.0, (-1, -math.inf, 0)
    eta = round((costs[-1] / costs[0]) ** (1.0 / (len(costs) - 1)))
    while True:
        for first in range(len(costs)):
            stages = len(costs) - first
            rows = torch.randperm(len(X), generator=generator)[: math.ceil(len(costs) / stages * eta ** (stages - 1))]
            for level in range(first, len(costs)):
                for row in rows.tolist():
                    spent += costs[level] - (costs[level - 1] if level > first and curves.resumes else 0.0)
                    best = max(best, (level, float(scores[row, level]), row))
                    yield best[2], spent
                rows = rows[scores[rows, level].argsort(descending=True)][: max(1, len(rows) // eta)]


_PLAYERS = {
    "GPUCB, Fidelity": _with_fidelity,
    "GPUCB, target only": partial(_at_the_target, GPUCB),
    "GPEI, target only": partial(_at_the_target, GPEI),
    "Hyperband": _hyperband,
    "random": _random,
}


def _row_of(X: Tensor, x: Tensor) -> int:
    return int((x == X).all(-1).nonzero()[0])


def _played(problem: str, player: str, seed: int, size: int, spends: tuple[float, ...]) -> Measurement:
    """Return the regret of what a player would use after each spend, 1 being that of the median configuration."""
    curves = CURVES[problem]
    X, scores = curves.table(problem, size)
    best, regrets, used, plays = scores[:, -1].max(), dict[str, float](), -1, 0
    scale, left = float(best - scores[:, -1].median()), [*spends]
    for row, spent in _PLAYERS[player](X, scores, curves, seed):
        while left and spent > left[0] * curves.levels[-1] * (1.0 + 1e-9):
            regrets[_after(left.pop(0))] = float(best - scores[used, -1]) / scale if plays else math.nan
        if not left:
            break
        used, plays = row, plays + 1
    return {**regrets, "plays": plays}


@benchmark(seeds=1, size=12, spends=(2.0, 3.0))
def fidelities(
    parts: Parts, seeds: int = 10, first: int = 100, size: int = 250, spends: tuple[float, ...] = _SPENDS
) -> Found:
    """Look for the best of some configurations at the target fidelity, which others tell something of for less."""
    keys = crossed(seed=range(first, first + seeds), problem=CURVES, player=_PLAYERS)
    found = parts.all("fidelities", keys, partial(_played, size=size, spends=spends))
    columns, title = [*map(_after, spends)], "regret after so many evaluations' cost at the target; the median has 1"
    tables = [
        tabulated(chosen(found, problem=problem), f"{problem}: {title}", "player", None, [*columns, "plays"], 2)
        for problem in CURVES
    ]
    return tables, found


def _after(spend: float) -> str:
    return f"after {spend:g}"
