"""Each theorem's width covers the function in all rounds and on all arms at once, at least as often as it says.

Posteriors are dense NumPy formulas, many simulations at once; the points are chosen by UCB with the width under test.
A width is elementwise in its evidence, so one call serves all simulations. Unless a test says otherwise, it fails if
the simulations with any miss are more than the binomial quantile that a failure probability of exactly δ exceeds with
probability 1e-6.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from problems import matern
from scipy.stats import binom
from torch import Tensor

from torch_kbandits import algorithms
from torch_kbandits.confidence import (
    BayesianGPUCBWidth,
    BKBWidth,
    ConstantGain,
    ConstantWidth,
    EKUCBWidth,
    Evidence,
    GPTSWidth,
    GPUCBWidth,
    GuessAndDouble,
    IGPUCBWidth,
    KUCBWidth,
    MartingaleMixtureWidth,
    MemoryWidth,
    RandomizedWidth,
    SelfNormalizedWidth,
    SparQWidth,
    Width,
)

SIMULATIONS, ROUNDS = 400, 100
DELTA, FALSE_ALARM = 0.3, 1e-6
ARMS = np.linspace(0.0, 1.0, 25)[:, None]
KERNEL = oracles.matern52(0.2)
GRAM = KERNEL(ARMS, ARMS)


class Posteriors:
    """The exact posteriors of N simulations on arms, as evidence, given Σ 1/λ_s and Σ y_s/λ_s of each arm, (N, A)."""

    def __init__(self, num_simulations: int, noise_variance: float, gram: np.ndarray = GRAM) -> None:
        self.gram, self.noise_variance = gram, noise_variance
        self.mean = np.zeros((num_simulations, len(gram)))
        self.covariance = np.tile(gram, (num_simulations, 1, 1))
        self.gain = np.zeros(num_simulations)
        self.precision, self.weighted = np.zeros_like(self.mean), np.zeros_like(self.mean)
        self.rows = np.arange(num_simulations)
        self.num_observations = 0

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(np.maximum(np.diagonal(self.covariance, axis1=1, axis2=2), 0.0))

    def observe(self, arms: np.ndarray, rewards: np.ndarray) -> None:
        column = self.covariance[self.rows, arms]
        variance = column[self.rows, arms] + self.noise_variance
        step = (rewards - self.mean[self.rows, arms]) / variance
        self.mean += column * step[:, None]
        self.covariance -= column[:, :, None] * (column / variance[:, None])[:, None, :]
        self.gain += 0.5 * np.log(variance / self.noise_variance)
        self.note(arms, rewards, self.noise_variance)

    def note(self, arms: np.ndarray, rewards: np.ndarray, noise: float) -> None:
        self.precision[self.rows, arms] += 1.0 / noise
        self.weighted[self.rows, arms] += rewards / noise
        self.num_observations += 1

    def given(self, arms: np.ndarray, rewards: np.ndarray, noise: np.ndarray) -> "Posteriors":
        """Condition the prior on arms and rewards (N, n) with noise variances (n,), infinite for what is forgotten."""
        for s in np.flatnonzero(np.isfinite(noise)):
            self.note(arms[:, s], rewards[:, s], noise[s])
        root = np.sqrt(self.precision)
        inner = np.eye(len(self.gram)) + root[:, :, None] * self.gram * root[:, None, :]
        cross = root[:, :, None] * self.gram
        self.covariance = self.gram - cross.transpose(0, 2, 1) @ np.linalg.solve(inner, cross)
        self.mean = (self.covariance @ self.weighted[:, :, None])[:, :, 0]
        self.gain = 0.5 * np.linalg.slogdet(inner)[1]
        return self

    @property
    def weights(self) -> np.ndarray:
        """α = (y − μ)/λ summed over the plays of each arm; the mean is K α."""
        return self.weighted - self.precision * self.mean

    def missed(self, weights: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
        """Return in which simulations Σ h_a k(x_a, ·) leaves the band at any combination of arms, (N,).

        The largest error of aᵀf over its standard deviation √(aᵀΣa), over all a, is √(eᵀΣ⁻¹e) with e = f − μ on the
        arms and Σ⁻¹ = K⁻¹ + diag(precision). It is what the theorems on bounded norms bound; a band at points follows.
        """
        error = weights @ self.gram - self.mean
        squared = ((weights - self.weights) * error).sum(1) + (self.precision * error**2).sum(1)
        return squared > multiplier**2 + 1e-9

    @property
    def regularization(self) -> Tensor:
        return torch.tensor(self.noise_variance, dtype=torch.float64)

    def effective_dimension(self) -> Tensor:
        return torch.from_numpy((self.precision * self.deviation**2).sum(1))

    def information_gain(self) -> Tensor:
        return torch.from_numpy(self.gain)

    def ridge_fit(self, noise: float) -> tuple[Tensor, Tensor]:
        roots = np.sqrt(self.precision * self.noise_variance)
        y = np.divide(self.weighted * self.noise_variance, roots, out=np.zeros_like(roots), where=roots > 0.0)
        inner = roots[:, :, None] * self.gram * roots[:, None, :] + noise * np.eye(len(self.gram))
        fit = noise * (y * np.linalg.solve(inner, y[:, :, None])[:, :, 0]).sum(1)
        gain = 0.5 * (np.linalg.slogdet(inner)[1] - len(self.gram) * np.log(noise))
        return torch.from_numpy(fit), torch.from_numpy(gain)

    def kernel_bound(self) -> Tensor:
        return torch.tensor(self.gram.diagonal().max(), dtype=torch.float64)

    def projection_error(self) -> Tensor:
        return torch.zeros(len(self.gain), dtype=torch.float64)

    def mean_norm(self) -> Tensor:
        return torch.from_numpy(np.sqrt(np.maximum((self.weights * self.mean).sum(1), 0.0)))


@pytest.mark.parametrize("at_once", [False, True])
def test_the_simulated_posterior_is_the_oracles(at_once):
    rng = np.random.default_rng(0)
    plays, rewards, noise = rng.integers(len(ARMS), size=(3, 40)), rng.normal(size=(3, 40)), np.full(40, 0.1)
    posteriors = Posteriors(3, 0.1)
    if at_once:
        noise = np.where(np.arange(40) < 4, np.inf, rng.uniform(0.1, 2.0, size=40))
        posteriors.given(plays, rewards, noise)
    else:
        for t in range(40):
            posteriors.observe(plays[:, t], rewards[:, t])
    assert isinstance(posteriors, Evidence)
    counts = np.isfinite(noise)
    assert posteriors.num_observations == counts.sum()
    for i in range(3):
        X, y = ARMS[plays[i, counts]], rewards[i, counts]
        expected = oracles.exact(KERNEL, X, y, noise[counts], ARMS)
        assert posteriors.mean[i] == pytest.approx(expected.mean, abs=1e-10)
        assert posteriors.covariance[i] == pytest.approx(expected.covariance, abs=1e-10)
        read = oracles.evidence(KERNEL, X, y, noise[counts], None)
        for name in ("information_gain", "effective_dimension", "mean_norm"):
            assert float(getattr(posteriors, name)()[i]) == pytest.approx(read[name], rel=1e-8)
        weights = rng.normal(size=(3, len(ARMS)))
        error = weights[i] @ GRAM - expected.mean
        largest = np.sqrt(error @ np.linalg.solve(expected.covariance + 1e-13 * np.eye(len(ARMS)), error))
        assert not posteriors.missed(weights, 1.001 * largest)[i]
        assert posteriors.missed(weights, 0.999 * largest)[i]


def rkhs_weights(number: int, norm: float, rng: np.random.Generator, gram: np.ndarray = GRAM) -> np.ndarray:
    """Weights h (number, A) of functions Σ_a h_a k(x_a, ·) of RKHS norm exactly ``norm``."""
    weights = rng.normal(size=(number, len(gram)))
    return norm * weights / np.sqrt(((weights @ gram) * weights).sum(1, keepdims=True))


def gaussian(scale: float, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    return scale * rng.normal(size=shape)


def signs(scale: float, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Noise at the ends of [−scale, scale]: the largest variance that the bound allows."""
    return scale * rng.choice([-1.0, 1.0], size=shape)


def run(width: Width, functions: np.ndarray, noise: np.ndarray, posteriors: Posteriors, plays=None) -> Iterator[tuple]:
    """Play what is given or UCB; yield the posteriors and multipliers (N,) before each round and after the last."""
    for t in range(noise.shape[1] + 1):
        multiplier = np.broadcast_to(width(posteriors).numpy(), len(functions))
        yield posteriors, multiplier
        if t < noise.shape[1]:
            arms = (posteriors.mean + multiplier[:, None] * posteriors.deviation).argmax(1)
            arms = arms if plays is None else plays[:, t]
            posteriors.observe(arms, functions[posteriors.rows, arms] + noise[:, t])


def misses_on_arms(width: Width, functions: np.ndarray, noise: np.ndarray, posteriors: Posteriors, plays=None) -> int:
    missed = np.zeros(len(functions), dtype=bool)
    for _, multiplier in run(width, functions, noise, posteriors, plays):
        error = np.abs(functions - posteriors.mean)
        missed |= (error > multiplier[:, None] * posteriors.deviation + 1e-9).any(1)
    return int(missed.sum())


#: More than ``SIMULATIONS``: the width for one arm misses little more than δ.
DRAWS = 1000


def misses_of_draws(width: Width, seed: int) -> int:
    rng = np.random.default_rng(seed)
    noise = gaussian(np.sqrt(0.1), (DRAWS, 50), rng)
    functions = rng.normal(size=(DRAWS, len(ARMS))) @ np.linalg.cholesky(GRAM).T
    return misses_on_arms(width, functions, noise, Posteriors(DRAWS, 0.1))


def misses_anywhere(width: Width, weights: np.ndarray, noise: np.ndarray, noise_variance: float) -> int:
    played = run(width, weights @ GRAM, noise, Posteriors(len(weights), noise_variance))
    return int(np.any([posteriors.missed(weights, beta) for posteriors, beta in played], axis=0).sum())


def allowed(number: int, delta: float, false_alarm: float = FALSE_ALARM) -> int:
    """Return the most misses that a failure probability of ``delta`` makes likely."""
    return int(binom.ppf(1.0 - false_alarm, number, delta))


class Case(NamedTuple):
    width: Width
    noise_variance: float
    noise_scale: float
    norm: float
    delta: float = DELTA
    noise: Callable[[float, tuple[int, int], np.random.Generator], np.ndarray] = gaussian


#: λ of Chowdhury & Gopalan's theorems.
LARGE = 1.0 + 2.0 / ROUNDS

#: A norm of 0.01 leaves the noise term to do the work, a noise of 0.1 and a norm of 3 the other one.
CASES = {
    "IGP-UCB, noise": Case(IGPUCBWidth(1.0, 0.01, DELTA), LARGE, 1.0, 0.01),
    "IGP-UCB, norm": Case(IGPUCBWidth(0.1, 3.0, DELTA), LARGE, 0.1, 3.0),
    "GP-TS, noise": Case(GPTSWidth(1.0, 0.01, DELTA), LARGE, 1.0, 0.01, delta=DELTA / 2.0),
    "GP-TS, norm": Case(GPTSWidth(0.1, 3.0, DELTA), LARGE, 0.1, 3.0, delta=DELTA / 2.0),
    "GP-UCB, noise": Case(GPUCBWidth(0.01, DELTA), 0.25, 0.5, 0.01, noise=signs),
    "GP-UCB, norm": Case(GPUCBWidth(3.0, DELTA), 0.01, 0.1, 3.0, noise=signs),
    "K-UCB, noise": Case(KUCBWidth(0.5, 0.01, DELTA), 0.25, 0.5, 0.01),
    "K-UCB, noise, small λ": Case(KUCBWidth(0.5, 0.01, DELTA), 0.001, 0.5, 0.01),
    "K-UCB, norm": Case(KUCBWidth(0.1, 3.0, DELTA), 1.0, 0.1, 3.0),
    "self-normalised, noise, λ = R²": Case(SelfNormalizedWidth(0.5, 0.01, DELTA), 0.25, 0.5, 0.01),
    "self-normalised, noise, λ = 100 R²": Case(SelfNormalizedWidth(0.5, 0.01, DELTA), 25.0, 0.5, 0.01),
    "self-normalised, noise, λ = R²/10⁴": Case(SelfNormalizedWidth(0.5, 0.01, DELTA), 0.000025, 0.5, 0.01),
    "self-normalised, norm": Case(SelfNormalizedWidth(0.1, 3.0, DELTA), 1.0, 0.1, 3.0),
    **{
        f"mixture, {name}": Case(MartingaleMixtureWidth(0.5, norm, DELTA), level, 0.5, norm)
        for name, level, norm in (("noise", 0.25, 0.01), ("norm", 0.25, 3.0), ("large λ", 25.0, 3.0))
    },
    **{
        f"mixture with its fit, λ = {factor:g} R²": Case(
            MartingaleMixtureWidth(0.5, norm, DELTA, mixture=1.0), factor * 0.25, 0.5, norm
        )
        for factor, norm in ((10.0, 3.0), (0.1, 3.0))
    },
    "EK-UCB, exact dictionary, noise": Case(EKUCBWidth(0.5, 0.01, DELTA, projection=1e-9), 0.25, 0.5, 0.01),
    "EK-UCB, exact dictionary, norm": Case(EKUCBWidth(0.1, 3.0, DELTA, projection=1e-9), 1.0, 0.1, 3.0),
    "BKB, exact dictionary, noise": Case(BKBWidth(0.5, 0.01, DELTA, accuracy=1e-6), 0.25, 0.5, 0.01),
    "BKB, exact dictionary, norm": Case(BKBWidth(0.1, 3.0, DELTA, accuracy=1e-6), 1.0, 0.1, 3.0),
}

#: Each leaves out a part of a theorem or breaks an assumption.
WRONG = {
    "the noise term": Case(ConstantWidth(3.0), 0.01, 0.1, 3.0),
    "half of the norm": Case(SelfNormalizedWidth(0.1, 1.5, DELTA), 1.0, 0.1, 3.0),
    "the information gain": Case(SelfNormalizedWidth(0.5, 0.01, DELTA, gain=ConstantGain(0.0)), 0.0025, 0.5, 0.01),
    "1/√λ": Case(IGPUCBWidth(0.1, 0.01, DELTA), 0.01, 0.1, 0.01),
    "half of the norm, tight": Case(MartingaleMixtureWidth(0.1, 1.5, DELTA, mixture=1.0), 0.1, 0.1, 3.0),
    "half of the noise": Case(SelfNormalizedWidth(0.25, 0.01, DELTA), 0.25, 0.5, 0.01),
}


def count(case: Case, seed: int = 0) -> int:
    rng = np.random.default_rng(seed)
    weights = rkhs_weights(SIMULATIONS, case.norm, rng)
    noise = case.noise(case.noise_scale, (SIMULATIONS, ROUNDS), rng)
    return misses_anywhere(case.width, weights, noise, case.noise_variance)


@pytest.mark.one_in(18)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_theorems_cover_functions_of_bounded_norm(case):
    assert count(case) <= allowed(SIMULATIONS, case.delta)


@pytest.mark.parametrize("name", ["igp-ucb", "gp-ts"])
def test_the_default_below_one_covers_where_the_theorems_own_does_not(name):
    """At λ = R² = 0.01 and B = 1: 200 runs, of which the theorem's width loses most."""
    rng, level = np.random.default_rng(0), 0.01
    words = {"candidates": torch.from_numpy(ARMS), "kernel": matern(0.2, 1.0), "regularization": level, "seed": 0}
    theory = {"noise_scale": 0.1, "norm_bound": 1.0, "failure_probability": 0.1}
    functions = rkhs_weights(200, 1.0, rng) @ GRAM
    noise = gaussian(0.1, (200, 50), rng)
    default = algorithms.build(name, **words, **theory).width
    own = {"igp-ucb": IGPUCBWidth, "gp-ts": GPTSWidth}[name](*theory.values())
    assert misses_on_arms(default, functions, noise, Posteriors(200, level)) <= allowed(200, 0.1)
    assert misses_on_arms(own, functions, noise, Posteriors(200, level)) > 100


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [0, 1])
def test_bayesian_width_covers_draws_from_the_prior(seed):
    assert misses_of_draws(BayesianGPUCBWidth(len(ARMS), DELTA), seed) <= allowed(DRAWS, DELTA)
    assert misses_of_draws(BayesianGPUCBWidth(1, DELTA), seed) > allowed(DRAWS, DELTA)  # that for one arm is caught


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_width_without_a_part_is_caught(case):
    assert count(case) > allowed(SIMULATIONS, case.delta)


class Projected(Posteriors):
    """DTC posteriors at a dictionary of arms: exact ones of the projected kernel, with the variance it leaves out."""

    def __init__(self, num_simulations: int, noise_variance: float, dictionary: list[int]) -> None:
        cross = GRAM[dictionary]
        projected = cross.T @ np.linalg.solve(cross[:, dictionary], cross)
        super().__init__(num_simulations, noise_variance, projected)
        self.left_out = GRAM - projected

    @property
    def deviation(self) -> np.ndarray:
        return np.sqrt(super().deviation ** 2 + np.maximum(self.left_out.diagonal(), 0.0))

    def kernel_bound(self) -> Tensor:
        return torch.tensor(GRAM.diagonal().max(), dtype=torch.float64)

    def projection_error(self, plays: np.ndarray) -> float:
        return float(np.linalg.eigvalsh(self.left_out[np.ix_(plays, plays)]).max())


def misses_of_projections(share: float, noise_scale: float, norm: float, dictionary: list[int]) -> int:
    """Return the misses of EK-UCB's width on random plays at λ = 0.01 with ``share`` of their projection error."""
    rng = np.random.default_rng(3)
    number, rounds = 200, 40
    posteriors = Projected(number, 0.01, dictionary)
    plays = rng.integers(len(ARMS), size=(number, rounds))
    error = max(posteriors.projection_error(row) for row in plays)
    width = EKUCBWidth(noise_scale, norm, DELTA, projection=share * error)
    functions = rkhs_weights(number, norm, rng) @ GRAM
    return misses_on_arms(width, functions, gaussian(noise_scale, (number, rounds), rng), posteriors, plays)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dictionary", [[12], [2, 12, 22], list(range(0, 25, 4))])
@pytest.mark.parametrize(("noise_scale", "norm"), [(0.1, 0.01), (0.01, 3.0)])
def test_ek_ucb_covers_with_the_error_of_its_projection(noise_scale, norm, dictionary):
    assert misses_of_projections(1.0, noise_scale, norm, dictionary) <= allowed(200, DELTA)
    if (norm, dictionary) == (3.0, [12]):
        assert misses_of_projections(1e-9, noise_scale, norm, dictionary) > allowed(200, DELTA)


def significance(width_arms: int, gram: np.ndarray, rounds: int) -> float:
    """Return by how many standard errors the mean of max_x μ(x) + √ζ σ(x) exceeds that of max f, given UCB plays."""
    rng = np.random.default_rng(rounds)
    posteriors = Posteriors(1, 0.1, gram)
    function = np.linalg.cholesky(gram) @ rng.normal(size=len(gram))
    for _ in range(rounds):
        arm = (posteriors.mean + 2.0 * posteriors.deviation).argmax(1)
        posteriors.observe(arm, function[arm] + np.sqrt(0.1) * rng.normal(size=1))
    factor = np.linalg.cholesky(posteriors.covariance[0] + 1e-10 * np.eye(len(gram)))
    best = (posteriors.mean + rng.normal(size=(8_000, len(gram))) @ factor.T).max(1)
    multipliers = np.array([float(RandomizedWidth(width_arms, seed)(posteriors)) for seed in range(1_500)])
    bound = (posteriors.mean + multipliers[:, None] * posteriors.deviation).max(1)
    return float((bound.mean() - best.mean()) / np.sqrt(best.var() / len(best) + bound.var() / len(bound)))


@pytest.mark.one_in(8)
@pytest.mark.parametrize("rounds", [0, 5, 40])
@pytest.mark.parametrize("gram", [GRAM, np.eye(50), np.eye(2)], ids=["matern", "50 unrelated arms", "2 unrelated arms"])
def test_randomised_width_is_above_the_best_value_on_average(gram, rounds):
    """E[max f | D] <= E[max_x μ + √ζ σ], by more than 5 standard errors: shown, not merely not refuted."""
    assert significance(len(gram), gram, rounds) > 5.0
    if not rounds and len(gram) == 50:
        assert significance(2, gram, 0) < -5.0  # that for two arms is caught


GUESSERS = 60


def guessing(norm: float, first_guess: float, noise_scale: float, noise_variance: float) -> tuple:
    """Of ``GuessAndDouble``: guesses and norms of the mean (N, rounds + 1), and how many simulations missed."""
    rng = np.random.default_rng(5)
    width, played = GuessAndDouble(SelfNormalizedWidth(noise_scale, first_guess, DELTA)), []
    for _ in range(GUESSERS):
        weights, noise = rkhs_weights(1, norm, rng), gaussian(noise_scale, (1, 28), rng)
        rounds = run(width, weights @ GRAM, noise, Posteriors(1, noise_variance))
        played.append([(width.guess(p), float(p.mean_norm()), bool(p.missed(weights, beta)[0])) for p, beta in rounds])
    guesses, norms, left = np.array(played).transpose(2, 0, 1)
    return guesses, norms, int(left.any(1).sum())


def test_a_guess_far_too_small_is_doubled_and_stays_below_twice_the_norm():
    guesses, _, missed = guessing(norm=10.0, first_guess=0.1, noise_scale=0.1, noise_variance=0.01)
    assert np.all(guesses[:, 0] == 0.1)
    assert (guesses > 20.0).any(1).sum() <= allowed(GUESSERS, DELTA)
    # Honest about what is lost. Nearly all double five times, but a few keep to the arm that their small guess likes
    # and learn nothing against it; and before any data nothing contradicts a guess, so that every band is too narrow.
    assert np.median(guesses[:, -1]) == pytest.approx(6.4)
    assert 1 <= (guesses[:, -1] == 0.1).sum() <= 3
    assert missed == GUESSERS


def test_noise_alone_does_not_double_a_guess():
    """The mean's norm is many times 2B in every simulation, so the radius of the noise is what holds the guess."""
    guesses, norms, missed = guessing(norm=0.01, first_guess=0.01, noise_scale=0.5, noise_variance=0.25)
    assert np.all(norms.max(1) > 10.0 * 0.02)
    assert (guesses > 0.01).any(1).sum() <= allowed(GUESSERS, DELTA)
    assert missed <= allowed(GUESSERS, DELTA)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("first_guess", [10.0, 15.0])
def test_a_guess_that_is_large_enough_keeps_the_theorem(first_guess):
    guesses, _, missed = guessing(norm=10.0, first_guess=first_guess, noise_scale=0.1, noise_variance=0.01)
    assert missed <= allowed(GUESSERS, DELTA)
    assert (guesses > first_guess).any(1).sum() <= allowed(GUESSERS, DELTA)


# ---------------------------------------------------------------- memories, of a function that stands still

FEW_GRAM = KERNEL(np.linspace(0.0, 1.0, 8)[:, None], np.linspace(0.0, 1.0, 8)[:, None])
TIMES = 50
ROWS = np.arange(SIMULATIONS)

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


def missed_by(width: Width, norm: float, level: float, rng: np.random.Generator, counting: Callable) -> np.ndarray:
    """Return which simulations miss in which round, (TIMES, N); ``counting(t, arms)`` says what counts in one."""
    weights = rkhs_weights(SIMULATIONS, norm, rng, FEW_GRAM)
    functions, arms = weights @ FEW_GRAM, np.zeros((SIMULATIONS, TIMES), dtype=int)
    result = np.zeros((TIMES, SIMULATIONS), dtype=bool)
    for t in range(TIMES):
        places, errors, variances = counting(t, arms)
        posteriors = Posteriors(SIMULATIONS, level, FEW_GRAM)
        posteriors.given(places, functions[ROWS[:, None], places] + errors, variances)
        multiplier = np.broadcast_to(width(posteriors).numpy(), SIMULATIONS)
        result[t] = posteriors.missed(weights, multiplier)
        arms[:, t] = (posteriors.mean + multiplier[:, None] * posteriors.deviation).argmax(1)
    return result


def missed(width: Width, memory: Memory, noise_scale: float, norm: float, level: float) -> np.ndarray:
    """Return which miss in which round of those that a memory leaves."""
    rng = np.random.default_rng(0)
    noise = noise_scale * np.random.default_rng(1).normal(size=(SIMULATIONS, TIMES))
    return missed_by(
        width, norm, level, rng, lambda t, arms: (arms[:, :t], noise[:, :t], level * memory(np.arange(t), t))
    )


#: n at once: every round of a window or of ageing, every block of a restart.
MEMORIES = {
    "window": (window(6), TIMES),
    "window of one": (window(1), TIMES),
    "restart": (restart(10), 5),
    "exponential": (EXPONENTIAL, TIMES),
    "quadratic": (QUADRATIC, TIMES),
    "linear": (LINEAR, TIMES),
}
#: Noise scale, norm and λ. A small norm leaves the noise term to do the work, a small noise the other one.
PROBLEMS = {"noise": (0.5, 0.01, 0.25), "noise, small λ": (0.5, 0.01, 0.0025), "norm": (0.1, 3.0, 1.0)}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.parametrize(("memory", "number"), MEMORIES.values(), ids=MEMORIES.keys())
def test_memory_width_covers_all_rounds_at_once(memory, number, problem):
    noise_scale, norm, level = problem
    width = MemoryWidth(noise_scale, norm, DELTA, num_bounds=number)
    assert missed(width, memory, noise_scale, norm, level).any(0).sum() <= allowed(SIMULATIONS, DELTA)


@pytest.mark.one_in(16)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())
@pytest.mark.parametrize("memory", [memory for memory, _ in MEMORIES.values()], ids=MEMORIES.keys())
def test_one_bound_covers_each_round(memory, problem):
    noise_scale, norm, level = problem
    rounds = missed(MemoryWidth(noise_scale, norm, DELTA), memory, noise_scale, norm, level).sum(1)
    assert rounds.max() <= allowed(SIMULATIONS, DELTA, FALSE_ALARM / TIMES)


def test_one_bound_covers_one_block():
    rounds = missed(MemoryWidth(0.5, 0.01, DELTA), restart(10), 0.5, 0.01, 0.25)
    for start in range(0, TIMES, 10):
        assert rounds[start : start + 10].any(0).sum() <= allowed(SIMULATIONS, DELTA, FALSE_ALARM / 5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("w", [1, 2, 3])
def test_one_bound_for_all_rounds_of_a_window_is_caught(w):
    """Why n is not 1: a set of observations that changes altogether starts a bound of its own."""
    assert missed(MemoryWidth(0.5, 0.01, DELTA), window(w), 0.5, 0.01, 0.25).any(0).sum() > allowed(SIMULATIONS, DELTA)


#: Each leaves out a part of the width.
WITHOUT = {
    "half of the noise": (MemoryWidth(0.2, 0.01, DELTA), PROBLEMS["noise"]),
    "the gain": (MemoryWidth(0.5, 0.01, DELTA, gain=ConstantGain(0.0)), PROBLEMS["noise, small λ"]),
    "half of the norm": (MemoryWidth(0.1, 1.5, DELTA), PROBLEMS["norm"]),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("width", "problem"), WITHOUT.values(), ids=WITHOUT.keys())
@pytest.mark.parametrize("memory", [window(6), LINEAR], ids=["window", "linear"])
def test_a_width_for_memories_without_a_part_is_caught(memory, width, problem):
    assert missed(width, memory, *problem).sum(1).max() > allowed(SIMULATIONS, DELTA)


def sparq_misses(width: Width, expert_variance: float, level: float, norm: float) -> np.ndarray:
    """Return which miss in which round; an expert answers 5 questions, two rounds are kept, their noise as counted."""
    rng, noise = np.random.default_rng(1), np.random.default_rng(2).normal(size=(SIMULATIONS, TIMES))

    def counting(t: int, arms: np.ndarray) -> tuple:
        recent = np.arange(max(0, t - 2), t)
        variances = level * ((t - recent) ** 2 + 1.0)
        asked = arms[ROWS[:, None], rng.integers(t, size=(SIMULATIONS, 5))] if t else np.zeros((SIMULATIONS, 0), int)
        answers = rng.normal(size=asked.shape) * np.sqrt(expert_variance)
        errors = np.concatenate([noise[:, recent] * np.sqrt(variances), answers], axis=1)
        variances = np.concatenate([variances, np.full(asked.shape[1], expert_variance)])
        return np.concatenate([arms[:, recent], asked], axis=1), errors, variances

    return missed_by(width, norm, level, rng, counting)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("expert_variance", "level", "norm"), [(0.04, 0.25, 0.01), (4.0, 0.01, 0.01), (0.25, 0.25, 0.01), (0.5, 1.0, 3.0)]
)
def test_sparq_width_covers_each_round_with_half_of_the_failures(expert_variance, level, norm):
    rounds = sparq_misses(SparQWidth(norm, DELTA), expert_variance, level, norm).sum(1)
    assert rounds.max() <= allowed(SIMULATIONS, DELTA / 2.0, FALSE_ALARM / TIMES)


def test_sparq_width_without_the_gain_is_caught():
    rounds = sparq_misses(SparQWidth(0.01, DELTA, gain=ConstantGain(0.0)), 0.0004, 0.0001, 0.01).sum(1)
    assert rounds.max() > allowed(SIMULATIONS, DELTA / 2.0)
