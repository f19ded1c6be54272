"""R-, SW- and W-GP-UCB with a linear kernel beside D-LinUCB and SW-LinUCB, on a parameter that jumps or turns slowly.

The two problems are those of Russac et al., NeurIPS 2019, section 5: d = 2, T = 6,000, fifty new actions in each round,
drawn uniformly in [−1, 1]² and shortened to length 1 where they are longer, noise of deviation 1, λ = 0.1, δ = 0.01.
The parameter has length 1. Abrupt: it is (1, 0), (−1, 0), (0, 1) and from round 3,000 on (0, −1), for 1,000 rounds each
before. Slow: it turns by a right angle in 3,000 rounds and stays. Window and discount are their choices for the known
budget B_T: w = (d T / B_T)^(2/3) and γ = 1 − 1/w. Ours know the same.

Claimed before the seeds were played: with the widths of their theorems SW- and W-GP-UCB have no more regret than
SW-LinUCB and D-LinUCB. At one multiplier of the deviation SW-GP-UCB is SW-LinUCB, which a test says.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import LinearKernel
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks.runner import Found, Parts, Table, benchmark, kinds, mean_and_error, values
from torch_kbandits import Bandit, algorithms
from torch_kbandits.confidence import MemoryWidth
from torch_kbandits.dictionaries import SpanningDictionary

Array = NDArray[np.float64]

#: λ of the papers, where the prior variance of a coordinate is 1 / λ in units of the noise; δ; actions in a round.
_LEVEL, _DELTA, _ACTIONS = 0.1, 0.01, 50


class Problem:
    """Actions (T, 50, 2), the parameter (T, 2) and the noise (T,) of a seed, and B_T = Σ ‖θ_{t+1} − θ_t‖."""

    def __init__(self, name: str, rounds: int, seed: int) -> None:
        generator, share = np.random.default_rng(seed), np.arange(rounds) / rounds
        actions = generator.uniform(-1.0, 1.0, size=(rounds, _ACTIONS, 2))
        self.actions = actions / np.maximum(np.linalg.norm(actions, axis=2, keepdims=True), 1.0)
        self.noise = generator.normal(size=rounds)
        if name == "abrupt":
            corners = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
            self.parameter = corners[np.minimum((6.0 * share).astype(int), 3)]
        else:
            angle = 0.5 * np.pi * np.minimum(2.0 * share, 1.0)
            self.parameter = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self.budget = float(np.linalg.norm(np.diff(self.parameter, axis=0), axis=1).sum())
        self.means = np.einsum("tad,td->ta", self.actions, self.parameter)
        self.window = (2.0 * rounds / self.budget) ** (2.0 / 3.0)


class Forgetting:
    """SW-LinUCB of a window (Cheung, Simchi-Levi and Zhu, AISTATS 2019), or D-LinUCB of a discount (Russac et al.).

    With neither it is LinUCB, OFUL of Abbasi-Yadkori, Pál and Szepesvári, NIPS 2011.

    Both have the bound ⟨θ̂, a⟩ + α β ‖a‖, in the norm of V⁻¹, and of V⁻¹ Ṽ V⁻¹ under a discount γ, where V weights by
    γ and Ṽ by γ². Source: Algorithm 1 of each, with α as a factor of the theorem's β.
    """

    def __init__(self, window: float = math.inf, discount: float = 1.0, factor: float = 1.0) -> None:
        self.window, self.discount, self.factor, self._played = window, discount, factor, list[tuple[Array, float]]()
        self.gram, self.squared, self.sums = np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2)

    @property
    def _radius(self) -> float:
        if self.window < math.inf:
            return _LEVEL**0.5 + (2.0 * math.log((1.0 + self.window / _LEVEL) / _DELTA)) ** 0.5
        shares = float(len(self._played))
        if self.discount < 1.0:
            shares = -math.expm1(2.0 * shares * math.log(self.discount)) / (1.0 - self.discount**2)
        return _LEVEL**0.5 + (2.0 * math.log(1.0 / _DELTA) + 2.0 * math.log1p(shares / (2.0 * _LEVEL))) ** 0.5

    def bounds(self, actions: Array) -> Array:
        """Return the upper confidence bounds of actions, (A,)."""
        inverse = np.linalg.inv(self.gram + _LEVEL * np.eye(2))
        spread = inverse if self.discount == 1.0 else inverse @ (self.squared + _LEVEL * np.eye(2)) @ inverse
        norms = np.sqrt(np.einsum("ad,de,ae->a", actions, spread, actions))
        return actions @ (inverse @ self.sums) + self.factor * self._radius * norms

    def ask(self, actions: Array) -> int:
        """Return the row of one of the actions (A, 2)."""
        return int(self.bounds(actions).argmax())

    def tell(self, action: Array, reward: float) -> None:
        """Learn a reward."""
        square = np.outer(action, action)
        self.gram, self.squared = self.discount * self.gram + square, self.discount**2 * self.squared + square
        self.sums = self.discount * self.sums + reward * action
        self._played.append((action, reward))
        if len(self._played) > self.window:
            old, earned = self._played[-int(self.window) - 1]
            self.gram, self.sums = self.gram - np.outer(old, old), self.sums - earned * old


class Ours:
    """A bandit on the linear kernel of the same prior: variance 1 / λ for each coordinate, noise of variance 1."""

    def __init__(self, name: str, **words: object) -> None:
        kernel = LinearKernel().double().requires_grad_(False)
        kernel.variance = torch.tensor(1.0 / _LEVEL, dtype=torch.float64)
        known = {"kernel": kernel, "regularization": 1.0, "action_dim": 2, "dictionary": SpanningDictionary()}
        self._bandit: Bandit = algorithms.build(name, seed=0, **known, **words)

    def ask(self, actions: Array) -> int:
        """Return the row of one of the actions (A, 2)."""
        offered = torch.from_numpy(actions)
        return int((offered == self._bandit.ask(candidates=offered)).all(-1).nonzero()[0])

    def tell(self, action: Array, reward: float) -> None:
        """Learn a reward."""
        self._bandit.tell(ids=self._bandit.pending_ids, y=reward)


#: The width with a theorem of each round, of R = 1 and the norm of θ under the kernel, √λ.
_THEOREM = {"beta": MemoryWidth(1.0, _LEVEL**0.5, _DELTA)}

PLAYERS: dict[str, Callable[[float], Forgetting | Ours]] = {
    "D-LinUCB": lambda w: Forgetting(discount=1.0 - 1.0 / w),
    "SW-LinUCB": lambda w: Forgetting(window=int(w)),
    "R-GP-UCB": lambda w: Ours("r-gp-ucb", period=int(w), **_THEOREM),
    "SW-GP-UCB": lambda w: Ours("sw-gp-ucb", window=int(w), **_THEOREM),
    "W-GP-UCB": lambda w: Ours("w-gp-ucb", discount=1.0 - 1.0 / w, **_THEOREM),
    "D-LinUCB, α = ¼": lambda w: Forgetting(discount=1.0 - 1.0 / w, factor=0.25),
    "SW-LinUCB, α = ¼": lambda w: Forgetting(window=int(w), factor=0.25),
    "R-GP-UCB, β = 1": lambda w: Ours("r-gp-ucb", period=int(w), beta=1.0),
    "SW-GP-UCB, β = 1": lambda w: Ours("sw-gp-ucb", window=int(w), beta=1.0),
    "W-GP-UCB, β = 1": lambda w: Ours("w-gp-ucb", discount=1.0 - 1.0 / w, beta=1.0),
    "LinUCB": lambda w: Forgetting(),
}
_RANDOM, _FIXED = "random", "best fixed direction"


@benchmark(rounds=30, seeds=(0, 1))
def moving_linear(
    parts: Parts,
    problems: Sequence[str] = ("abrupt", "slow"),
    rounds: int = 6_000,
    seeds: Sequence[int] = (40, 41, 42, 43, 44, 45),
) -> Found:
    """Play all on the same actions and noise of each seed, and compare the regret seed by seed with D-LinUCB's."""
    players = (*PLAYERS, _RANDOM, _FIXED)
    found = [
        parts.measured({"problem": name, "seed": seed, "player": player}, partial(_played, name, rounds, seed, player))
        for seed in tqdm(seeds, "moving_linear")
        for name in problems
        for player in players
    ]
    there, rows = kinds(found, "problem"), list[list[str]]()
    for player in players:
        row = [player]
        for name in there:
            mine, theirs = (values(found, "regret", problem=name, player=each) for each in (player, "D-LinUCB"))
            less = [one - another for one, another in zip(mine, theirs, strict=True)]
            row += [mean_and_error(mine, 0), mean_and_error(less, 0)]
        rows.append(row)
    columns = [each for name in there for each in (name, f"{name}, less D-LinUCB's")]
    return [Table(f"Regret of {rounds:,} rounds of linear bandits that change", ["player", *columns], rows)], found


def _played(name: str, rounds: int, seed: int, player: str) -> dict[str, float]:
    """Return the cumulative regret of a player and its processor time for a round, in milliseconds."""
    problem, start = Problem(name, rounds, seed), time.process_time()
    if player == _RANDOM:
        got = problem.means.mean(1)
    elif player == _FIXED:
        angles = np.linspace(0.0, 2.0 * np.pi, 360, endpoint=False)
        rows = (problem.actions @ np.stack([np.cos(angles), np.sin(angles)])).argmax(1)
        got = np.take_along_axis(problem.means, rows, 1)
        got = got[:, got.sum(0).argmax()]
    else:
        learner, got = PLAYERS[player](problem.window), np.empty(rounds)
        for t, actions in enumerate(problem.actions):
            row = learner.ask(actions)
            got[t] = problem.means[t, row]
            learner.tell(actions[row], float(got[t] + problem.noise[t]))
    seconds = time.process_time() - start
    return {"regret": float((problem.means.max(1) - got).sum()), "ms": 1e3 * seconds / rounds}
