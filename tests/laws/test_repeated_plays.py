"""An arm played c times is one point √c φ(x): its inclusion probability, what that bounds, and what comes of it."""

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import LinearKernel
from problems import DOUBLE, data, dense, difference, rbf, seeded

from torch_kbandits import RidgeLeverageSampling, algorithms, environments
from torch_kbandits.dictionaries import PlayedPoints

WAYS = ["fresh", "coupled", "growth"]
LAMBDA = 0.05


def played(X, counts, kernel=None, noise=LAMBDA, **known):
    noise, counts = (torch.as_tensor(value, dtype=DOUBLE) for value in (noise, counts))
    return PlayedPoints(X, kernel or rbf(), noise, counts, **known)


def probabilities(points, oversampling, resampling="fresh"):
    return RidgeLeverageSampling(oversampling, resampling).probabilities(points, seeded(0))


@pytest.mark.parametrize("resampling", WAYS)
@pytest.mark.parametrize(("oversampling", "expected"), [(1.0, 1000.0 / 1001.0), (2.0, 1.0), (3.0, 1.0)])
def test_an_arm_played_a_thousand_times_is_not_missed(oversampling, expected, resampling):
    """k = λ = 1: τ = 1 / (c + 1). Plays drawn one by one would be missed with probability e^−q̄: 0.37, 0.14, 0.05."""
    point = played(torch.zeros(1, 2, dtype=DOUBLE), [1000.0], noise=1.0)
    assert probabilities(point, oversampling, resampling).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("resampling", WAYS)
def test_probabilities_are_those_of_the_merged_points(resampling):
    """Under a linear kernel √c φ(x) is the point √c x; under any the mean of c rewards has noise λ / c."""
    X, counts = data(30, 3)[0], torch.arange(1.0, 31.0, dtype=DOUBLE)
    linear, ones = LinearKernel().double(), torch.ones(30, dtype=DOUBLE)
    twice = [
        probabilities(played(X, counts, linear), 0.7, resampling),
        probabilities(played(X * counts.sqrt().unsqueeze(-1), ones, linear), 0.7, resampling),
        probabilities(played(X, counts), 0.7, resampling),
        probabilities(played(X, ones, noise=LAMBDA / counts), 0.7, resampling),
    ]
    tolerance = oracles.rounding(30, 1.0 + 3.0 * float(counts.sum()) / LAMBDA)
    assert difference(twice[0], twice[1]) < tolerance
    assert difference(twice[2], twice[3]) < tolerance


@pytest.mark.parametrize("resampling", WAYS)
def test_they_add_up_to_no_more_than_the_effective_dimension_times_oversampling(resampling):
    """Against leverage scores of all plays, each a row of its own: diag(K (K + λI)⁻¹), summed over those of an arm."""
    X, counts = data(20, 2)[0], np.arange(20) % 7 + 1
    rows = np.repeat(np.arange(20), counts)
    K = oracles.rbf(0.5)(*dense(X[rows], X[rows]))
    tolerance = oracles.rounding(len(K), 1.0 + len(K) / LAMBDA)
    of_plays = np.diag(np.linalg.solve(K + LAMBDA * np.eye(len(K)), K))
    merged, known = np.bincount(rows, of_plays), played(X, counts, rbf(0.5))
    for oversampling in (0.5, 1.5):
        found = probabilities(known, oversampling, resampling)
        assert difference(found, np.minimum(1.0, oversampling * merged)) < tolerance
        assert found.sum() <= oversampling * of_plays.sum() + 20 * tolerance


def test_growth_includes_with_the_largest_probability_so_far_and_loses_nothing():
    """Three rounds of 5 points, 4,000 draws; frequencies within 4.5 standard errors: false alarms 15 × 7e-6 < 2e-4."""
    counts = np.array([[1, 1, 2, 3, 1], [2, 1, 2, 3, 1], [3, 1, 2, 9, 1]])
    scores = np.array([[0.2, 0.1, 0.1, 0.1, 0.3], [0.15, 0.3, 0.05, 0.2, 0.1], [0.15, 0.2, 0.2, 0.02, 0.4]])
    largest = np.maximum.accumulate(np.minimum(1.0, 1.5 * counts * scores))
    rule, copies, runs = RidgeLeverageSampling(1.5, "growth"), 40, 100
    held, X = np.zeros((runs, 4, copies * 5), dtype=bool), data(copies * 5, 2)[0]
    for run in range(runs):
        for number in range(3):
            known = {"in_dictionary": torch.tensor(held[run, number])}
            known |= {"leverage_scores": torch.tensor(np.tile(scores[number], copies))}
            chosen = rule.select(played(X, np.tile(counts[number], copies), **known), seeded(run))
            held[run, number + 1, chosen.indices] = True
    assert (held[:, :-1] <= held[:, 1:]).all()
    found = held[:, 1:].reshape(runs, 3, copies, 5).mean((0, 2))
    assert (np.abs(found - largest) <= 4.5 * np.sqrt(largest * (1.0 - largest) / (runs * copies)) + 1e-12).all()


def ratios(problem, oversampling, rounds, every, seed=0, **words):
    """DTC variances of a run of BKB over the exact ones, dense and on all arms: the least and the largest.

    What rounding may have done to them is in their favour.
    """
    words = {
        "kernel": rbf(0.3),
        "regularization": 0.01,
        "beta": 2.0,
        "seed": seed,
        "oversampling": oversampling,
    } | words
    bandit, least, largest = algorithms.BKB(candidates=problem.arms, **words), 1.0, 1.0
    for number in range(rounds):
        x = bandit.ask()
        bandit.tell(x, problem.pull(x, number) - 0.5)
        if (number + 1) % every == 0:
            X, counts = np.unique(bandit.history.X.numpy(), axis=0, return_counts=True)
            data = (oracles.rbf(0.3), X, np.zeros(len(X)), 0.01 / counts)
            exact, ours = (
                oracles.exact(*data, problem.arms.numpy()),
                oracles.dtc(*data, bandit.inducing_points.numpy(), problem.arms.numpy()),
            )
            rounding = exact.rounding + ours.rounding
            least = min(least, ((ours.variance + rounding) / exact.variance).min())
            largest = max(largest, ((ours.variance - rounding) / exact.variance).max())
    return least, largest


def test_arms_played_again_and_again_stay_in_the_dictionary():
    """q̄ = λ = 1, three arms on their own, c from 200 on: each is missed with probability 1 / (c + 1) in a round.

    120 times that is 0.6 and 8 or more at 3e-7. Drawn play by play they would be missed in more than a quarter.
    """
    arms = torch.tensor([[0.0], [100.0], [200.0]], dtype=DOUBLE)
    bandit = algorithms.BKB(candidates=arms, kernel=rbf(), regularization=1.0, oversampling=1.0, beta=2.0, seed=0)
    bandit.tell(arms.repeat(200, 1), torch.zeros(600, dtype=DOUBLE))
    missed = 0
    for number in range(40):
        bandit.tell(arms[number % 3, None], 0.0)
        missed += 3 - len(bandit.inducing_points)
    assert missed < 8


def test_variances_are_within_the_factor_of_the_theorem_at_its_oversampling():
    """BKB's Theorem 1 with ε = 1/2, so α = 3; at q̄ = 0.2 this would be seen to fail."""
    problem = environments.gaussian_bumps(100, 2, lengthscale=0.3, seed=0)
    theory = {"horizon": 60, "failure_probability": 0.1}
    least, largest = ratios(problem, "theory", rounds=60, every=6, **theory)
    assert least >= 1.0 / 3.0
    assert largest <= 3.0
    assert ratios(problem, 0.2, rounds=60, every=6)[1] > 3.0
