"""What a dictionary leaves out bounds the gain, and widths made of it cover.

That every posterior knows it is in ``test_posterior`` and ``test_models``.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, matern
from scipy.stats import binom
from torch import Tensor

import torch_kbandits as kb
from torch_kbandits.confidence import (
    NystromGain,
    NystromWidth,
    RealizedGain,
    SelfNormalizedWidth,
    Width,
    information_gain,
)
from torch_kbandits.dictionaries import PlayedPoints, theoretical_oversampling


@pytest.mark.parametrize("seed", range(3))
def test_the_gain_is_at_least_the_exact_one_at_any_dictionary(seed):
    rng = np.random.default_rng(seed)
    X, Y = data(30, 2, seed)
    Z = X[rng.permutation(30)[: rng.integers(1, 20)]]
    words = {"covar_module": matern(0.3, 1.0), "regularization": 0.1}
    model, exact = kb.NystromGP(X, Y, inducing_points=Z, **words), kb.OnlineGP(X, Y, **words)
    truth = float(information_gain(matern(0.3, 1.0), X, 0.1))
    assert float(RealizedGain()(model)) < truth < float(NystromGain()(model))
    assert float(NystromGain()(exact)) == pytest.approx(truth, rel=1e-10)
    whole = kb.NystromGP(X, Y, inducing_points=X, **words)
    assert float(NystromGain()(whole)) == pytest.approx(truth, rel=1e-6)


@dataclass
class Known:
    """Evidence with numbers of our choice."""

    num_observations: int = 100
    regularization: Tensor = field(default_factory=lambda: torch.tensor(0.25, dtype=DOUBLE))
    gain: float = 3.0
    left_out: float = 0.0
    dimension: float = 4.0

    def information_gain(self) -> Tensor:
        return torch.tensor(self.gain, dtype=DOUBLE)

    def projection_error(self) -> Tensor:
        return torch.tensor(self.left_out, dtype=DOUBLE)

    def effective_dimension(self) -> Tensor:
        return torch.tensor(self.dimension, dtype=DOUBLE)

    def kernel_bound(self) -> Tensor:
        return torch.tensor(1.0, dtype=DOUBLE)

    mean_norm = kernel_bound


def test_by_hand():
    # R/√λ = 0.2, ρ = 2.25: (1 + 1.5) 2 + 0.2 √(2 · 3 + 2.25 + 2 · 2.3025850930) = 5 + 0.2 √12.8551701860
    width = NystromWidth(0.1, 2.0, 0.1)
    assert float(width(Known(left_out=2.25))) == pytest.approx(5.0 + 0.2 * math.sqrt(12.8551701860), rel=1e-9)
    assert float(width(Known())) == float(SelfNormalizedWidth(0.1, 2.0, 0.1)(Known()))
    assert width.smallest(0.25) == pytest.approx(2.0 + 0.2 * math.sqrt(4.6051701860), rel=1e-9)


# ---------------------------------------------------------------- coverage

GRID = np.linspace(0.0, 1.0, 25)[:, None]
KERNEL = oracles.matern52(0.2)
GRAM = KERNEL(GRID, GRID)
ROUNDS, DELTA = 40, 0.3


def allowed(simulations: int) -> int:
    """More misses have probability below 1e-6 if each simulation misses with probability δ."""
    return int(binom.ppf(1.0 - 1e-6, simulations, DELTA))


class Run:
    """A DTC posterior on the grid, whose dictionary a rule draws anew in every round; dense, by its definition."""

    def __init__(self, rule: kb.DictionaryRule, level: float, seed: int) -> None:
        self.rule, self.level = rule, level
        self.counts, self.sums = np.zeros(len(GRID)), np.zeros(len(GRID))
        self.order: list[int] = []
        self.generator = torch.Generator().manual_seed(seed)
        self.initial = self.generator.get_state()
        self._fit([])

    def observe(self, arm: int, value: float) -> None:
        if arm not in self.order:
            self.order.append(arm)
        self.counts[arm] += 1.0
        self.sums[arm] += value
        rows, present = self.order, torch.tensor([row in self.dictionary for row in self.order])
        played = PlayedPoints(
            torch.from_numpy(GRID[rows]),
            matern(0.2, 1.0),
            torch.tensor(self.level, dtype=DOUBLE),
            torch.from_numpy(self.counts[rows]),
            torch.from_numpy(self.variance[rows] / self.level),
            present,
        )
        if self.rule.is_coupled:
            self.generator.set_state(self.initial)
        chosen = self.rule.select(played, self.generator).indices
        self._fit([rows[i] for i in chosen.tolist()])

    def _fit(self, dictionary: list[int]) -> None:
        self.dictionary, Z = dictionary, dictionary
        z = np.linalg.solve(np.linalg.cholesky(GRAM[np.ix_(Z, Z)] + 1e-12 * np.eye(len(Z))), GRAM[Z])
        V = np.eye(len(Z)) + (z * self.counts / self.level) @ z.T
        solved = np.linalg.solve(V, z)
        self.mean = solved.T @ (z @ self.sums) / self.level
        residual = np.maximum(1.0 - (z**2).sum(0), 0.0)
        self.variance = residual + (z * solved).sum(0)
        self.left_out = float(self.counts @ residual) / self.level
        self.gain = 0.5 * np.linalg.slogdet(V)[1]

    @property
    def evidence(self) -> Known:
        level = torch.tensor(self.level, dtype=DOUBLE)
        dimension = float(self.counts @ self.variance) / self.level
        return Known(int(self.counts.sum()), level, self.gain, self.left_out, dimension)


def misses(
    width: Width, rule: kb.DictionaryRule, noise_scale: float, norm: float, level: float, simulations: int
) -> int:
    """Return in how many runs by UCB f leaves the band at any arm in any round."""
    missed = 0
    for seed in range(simulations):
        rng = np.random.default_rng([seed, 18])
        weights = rng.normal(size=len(GRID))
        f = GRAM @ (norm * weights / np.sqrt(weights @ GRAM @ weights))
        run, left = Run(rule, level, seed), False
        for _ in range(ROUNDS):
            multiplier = float(width(run.evidence))
            upper = run.mean + multiplier * np.sqrt(run.variance)
            left |= bool((np.abs(f - run.mean) > upper - run.mean + 1e-9).any())
            arm = int(upper.argmax())
            run.observe(arm, f[arm] + noise_scale * rng.normal())
        missed += left
    return missed


RULES = {
    "default": kb.RidgeLeverageSampling(),
    "theorem": kb.RidgeLeverageSampling(theoretical_oversampling(DELTA, ROUNDS)),
    "coupled, q̄ = 1": kb.RidgeLeverageSampling(1.0, "coupled"),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(), 3, "stop"),
    "uniform": kb.UniformDictionary(2),
}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize(("noise_scale", "norm"), [(0.5, 0.01), (0.02, 3.0)], ids=["noise", "norm"])
def test_it_covers_at_dictionaries_as_they_are_drawn(rule, noise_scale, norm):
    """A false alarm has probability below 1e-6."""
    width = NystromWidth(noise_scale, norm, DELTA)
    assert misses(width, rule, noise_scale, norm, noise_scale**2, 30) <= allowed(30)


def test_without_what_the_dictionary_leaves_out_it_is_caught():
    width = SelfNormalizedWidth(0.02, 3.0, DELTA)
    assert misses(width, RULES["uniform"], 0.02, 3.0, 0.0004, 20) > allowed(20)
