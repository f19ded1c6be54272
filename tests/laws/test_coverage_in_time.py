"""The widths for memories cover a function that stands still, at least as often as they say.

Posteriors are dense NumPy formulas, all simulations at once; points are chosen by UCB with the width under test, so
what is remembered was chosen in the light of what is forgotten. Missed is where any combination of arms leaves its
band, which is what the theorems bound. A test fails if more simulations miss than the binomial quantile that a
failure probability of exactly δ exceeds with probability 1e-6.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import oracles
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from torch_kbandits.confidence import ConstantGain, Evidence, MemoryWidth, SparQWidth, Width

SIMULATIONS, ROUNDS = 400, 50
DELTA = 0.3
FALSE_ALARM = 1e-6
ARMS = np.linspace(0.0, 1.0, 8)[:, None]
GRAM = oracles.matern52(0.2)(ARMS, ARMS)
ROWS = np.arange(SIMULATIONS)


@dataclass
class Posteriors:
    """Exact posteriors on the arms, from the summed precisions Σ 1/λ_s and Σ y_s/λ_s of each arm, (N, A)."""

    precision: np.ndarray
    weighted: np.ndarray
    num_observations: int
    level: float

    def __post_init__(self) -> None:
        root = np.sqrt(self.precision)
        inner = np.eye(len(ARMS)) + root[:, :, None] * GRAM * root[:, None, :]
        cross = root[:, :, None] * GRAM
        self.covariance = GRAM - cross.transpose(0, 2, 1) @ np.linalg.solve(inner, cross)
        self.mean = (self.covariance @ self.weighted[:, :, None])[:, :, 0]
        self.gain = 0.5 * np.linalg.slogdet(inner)[1]

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))

    def misses(self, weights: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
        """Say where Σ h_a k(x_a, ·) leaves the band at some combination of arms: eᵀΣ⁻¹e > β², e = f − μ."""
        error = weights @ GRAM - self.mean
        coefficients = self.weighted - self.precision * self.mean
        squared = ((weights - coefficients) * error).sum(1) + (self.precision * error**2).sum(1)
        return squared > multiplier**2 + 1e-9

    @property
    def regularization(self) -> Tensor:
        return torch.tensor(self.level, dtype=torch.float64)

    def effective_dimension(self) -> Tensor:
        return torch.from_numpy((self.precision * self.deviation**2).sum(1))

    def information_gain(self) -> Tensor:
        return torch.from_numpy(self.gain)

    def kernel_bound(self) -> Tensor:
        return torch.tensor(GRAM.diagonal().max(), dtype=torch.float64)

    def projection_error(self) -> Tensor:
        return torch.zeros(len(self.gain), dtype=torch.float64)

    def mean_norm(self) -> Tensor:
        raise AssertionError("no width of this page asks for the mean's norm")


def posteriors_of(arms: np.ndarray, rewards: np.ndarray, noise: np.ndarray, level: float) -> Posteriors:
    """Condition on arms (N, n) and rewards (N, n) with noise variances (n,), infinite for what is forgotten."""
    precision, weighted = (np.zeros((len(arms), len(ARMS))) for _ in range(2))
    for s in np.flatnonzero(np.isfinite(noise)):
        precision[ROWS, arms[:, s]] += 1.0 / noise[s]
        weighted[ROWS, arms[:, s]] += rewards[:, s] / noise[s]
    return Posteriors(precision, weighted, int(np.isfinite(noise).sum()), level)


def test_the_simulated_posterior_is_the_oracles():
    rng = np.random.default_rng(0)
    arms, rewards = rng.integers(len(ARMS), size=(SIMULATIONS, 20)), rng.normal(size=(SIMULATIONS, 20))
    noise = np.where(np.arange(20) < 4, np.inf, rng.uniform(0.1, 2.0, size=20))
    posteriors = posteriors_of(arms, rewards, noise, 0.1)
    assert isinstance(posteriors, Evidence)
    assert posteriors.num_observations == 16
    kernel = oracles.matern52(0.2)
    for i in range(3):
        X, y = ARMS[arms[i, 4:]], rewards[i, 4:]
        expected = oracles.exact(kernel, X, y, noise[4:], ARMS)
        assert posteriors.mean[i] == pytest.approx(expected.mean, abs=1e-10)
        assert posteriors.covariance[i] == pytest.approx(expected.covariance, abs=1e-10)
        scaled = kernel(X, X) / np.sqrt(noise[4:, None] * noise[None, 4:])
        assert posteriors.gain[i] == pytest.approx(0.5 * np.linalg.slogdet(np.eye(16) + scaled)[1])
        # eᵀΣ⁻¹e by inverting.
        weights = np.zeros((SIMULATIONS, len(ARMS)))
        weights[i] = rng.normal(size=len(ARMS))
        error = weights[i] @ GRAM - expected.mean
        squared = error @ np.linalg.inv(expected.covariance) @ error
        assert not posteriors.misses(weights, np.full(SIMULATIONS, np.sqrt(1.0001 * squared)))[i]
        assert posteriors.misses(weights, np.full(SIMULATIONS, np.sqrt(0.9999 * squared)))[i]


def functions_of_norm(norm: float, rng: np.random.Generator) -> np.ndarray:
    """Weights h (N, A) of functions Σ_a h_a k(x_a, ·) of RKHS norm exactly ``norm``."""
    weights = rng.normal(size=(SIMULATIONS, len(ARMS)))
    return norm * weights / np.sqrt(((weights @ GRAM) * weights).sum(1, keepdims=True))


#: A memory: the noise variances, over λ, of observations 0, …, t − 1 at the t-th round after them.
Memory = Callable[[np.ndarray, int], np.ndarray]


def window(w: int) -> Memory:
    return lambda made, t: np.where(t - made <= w, 1.0, np.inf)


def restart(H: int) -> Memory:
    return lambda made, t: np.where(made >= t // H * H, 1.0, np.inf)


def ageing(growth: Callable[[np.ndarray], np.ndarray]) -> Memory:
    return lambda made, t: growth(t - made - 1.0)


EXPONENTIAL = ageing(lambda age: 0.8**-age)
QUADRATIC = ageing(lambda age: age**2 + 1.0)
LINEAR = ageing(lambda age: 1.0 + 0.3 * age)


def missed(width: Width, memory: Memory, noise_scale: float, norm: float, level: float, seed: int = 0) -> np.ndarray:
    """Return which simulations miss in which round, (ROUNDS, N)."""
    rng = np.random.default_rng(seed)
    weights = functions_of_norm(norm, rng)
    functions = weights @ GRAM
    arms, rewards = np.zeros((SIMULATIONS, ROUNDS), dtype=int), np.zeros((SIMULATIONS, ROUNDS))
    result = np.zeros((ROUNDS, SIMULATIONS), dtype=bool)
    for t in range(ROUNDS):
        posteriors = posteriors_of(arms, rewards, level * memory(np.arange(t), t), level)
        multiplier = np.broadcast_to(width(posteriors).numpy(), SIMULATIONS)
        result[t] = posteriors.misses(weights, multiplier)
        arms[:, t] = (posteriors.mean + multiplier[:, None] * posteriors.deviation).argmax(1)
        rewards[:, t] = functions[ROWS, arms[:, t]] + noise_scale * rng.normal(size=SIMULATIONS)
    return result


def allowed(delta: float, false_alarm: float = FALSE_ALARM) -> int:
    return int(binom.ppf(1.0 - false_alarm, SIMULATIONS, delta))


#: n at once: every round of a window or of ageing, every block of a restart.
MEMORIES = {
    "window": (window(6), ROUNDS),
    "window of one": (window(1), ROUNDS),
    "restart": (restart(10), 5),
    "exponential": (EXPONENTIAL, ROUNDS),
    "quadratic": (QUADRATIC, ROUNDS),
    "linear": (LINEAR, ROUNDS),
}
#: Noise scale, norm and λ. A small norm leaves the noise term to do the work, a small noise the other one.
PROBLEMS = {"noise": (0.5, 0.01, 0.25), "noise, small λ": (0.5, 0.01, 0.0025), "norm": (0.1, 3.0, 1.0)}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.parametrize(("memory", "number"), MEMORIES.values(), ids=MEMORIES.keys())
def test_memory_width_covers_all_rounds_at_once(memory, number, problem):
    noise_scale, norm, level = problem
    width = MemoryWidth(noise_scale, norm, DELTA, num_bounds=number)
    assert missed(width, memory, noise_scale, norm, level).any(0).sum() <= allowed(DELTA)


@pytest.mark.one_in(16)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.parametrize("memory", [memory for memory, _ in MEMORIES.values()], ids=MEMORIES.keys())
def test_one_bound_covers_each_round(memory, problem):
    noise_scale, norm, level = problem
    rounds = missed(MemoryWidth(noise_scale, norm, DELTA), memory, noise_scale, norm, level).sum(1)
    assert rounds.max() <= allowed(DELTA, FALSE_ALARM / ROUNDS)


def test_one_bound_covers_one_block():
    rounds = missed(MemoryWidth(0.5, 0.01, DELTA), restart(10), 0.5, 0.01, 0.25)
    for start in range(0, ROUNDS, 10):
        assert rounds[start : start + 10].any(0).sum() <= allowed(DELTA, FALSE_ALARM / 5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("w", [1, 2, 3])
def test_one_bound_for_all_rounds_of_a_window_is_caught(w):
    """Why n is not 1: a set of observations that changes altogether starts a bound of its own."""
    assert missed(MemoryWidth(0.5, 0.01, DELTA), window(w), 0.5, 0.01, 0.25).any(0).sum() > allowed(DELTA)


#: Each leaves out a part of the width.
WRONG = {
    "half of the noise": (MemoryWidth(0.2, 0.01, DELTA), PROBLEMS["noise"]),
    "the gain": (MemoryWidth(0.5, 0.01, DELTA, gain=ConstantGain(0.0)), PROBLEMS["noise, small λ"]),
    "half of the norm": (MemoryWidth(0.1, 1.5, DELTA), PROBLEMS["norm"]),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("width", "problem"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("memory", [window(6), LINEAR], ids=["window", "linear"])
def test_a_width_without_a_part_is_caught(memory, width, problem):
    assert missed(width, memory, *problem).sum(1).max() > allowed(DELTA)


def sparq_misses(width: Width, expert_variance: float, level: float, norm: float) -> np.ndarray:
    """Return which simulations miss in which round when an expert answers 5 questions, and two rounds are kept.

    The real noise of every observation has the variance that it counts with: an aged one is noisier from the start.
    """
    rng = np.random.default_rng(1)
    weights = functions_of_norm(norm, rng)
    functions = weights @ GRAM
    arms, noise = np.zeros((SIMULATIONS, ROUNDS), dtype=int), rng.normal(size=(SIMULATIONS, ROUNDS))
    result = np.zeros((ROUNDS, SIMULATIONS), dtype=bool)
    for t in range(ROUNDS):
        recent = np.arange(max(0, t - 2), t)
        variances = level * ((t - recent) ** 2 + 1.0)
        asked = arms[ROWS[:, None], rng.integers(t, size=(SIMULATIONS, 5))] if t else np.zeros((SIMULATIONS, 0), int)
        places = np.concatenate([arms[:, recent], asked], axis=1)
        answers = rng.normal(size=asked.shape) * np.sqrt(expert_variance)
        errors = np.concatenate([noise[:, recent] * np.sqrt(variances), answers], axis=1)
        variances = np.concatenate([variances, np.full(asked.shape[1], expert_variance)])
        posteriors = posteriors_of(places, functions[ROWS[:, None], places] + errors, variances, level)
        multiplier = np.broadcast_to(width(posteriors).numpy(), SIMULATIONS)
        result[t] = posteriors.misses(weights, multiplier)
        arms[:, t] = (posteriors.mean + multiplier[:, None] * posteriors.deviation).argmax(1)
    return result


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("expert_variance", "level", "norm"), [(0.04, 0.25, 0.01), (4.0, 0.01, 0.01), (0.25, 0.25, 0.01), (0.5, 1.0, 3.0)]
)
def test_sparq_width_covers_each_round_with_half_of_the_failures(expert_variance, level, norm):
    rounds = sparq_misses(SparQWidth(norm, DELTA), expert_variance, level, norm).sum(1)
    assert rounds.max() <= allowed(DELTA / 2.0, FALSE_ALARM / ROUNDS)


def test_sparq_width_without_the_gain_is_caught():
    rounds = sparq_misses(SparQWidth(0.01, DELTA, gain=ConstantGain(0.0)), 0.0004, 0.0001, 0.01).sum(1)
    assert rounds.max() > allowed(DELTA / 2.0)
