"""How a dictionary depends on the last one: redrawn, with fixed uniforms, or growing only; and on repeated plays."""

from itertools import pairwise, product

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, believed, data, dense, difference, play, rbf, reward, seeded

import torch_kbandits as kb
from torch_kbandits import algorithms, environments
from torch_kbandits.dictionaries import PlayedPoints

ARMS = data(60, 2)[0]
WAYS = ["fresh", "coupled", "growth"]
Q = 1.5


def rule(resampling):
    return kb.RidgeLeverageSampling(Q, resampling)


def played(scores, counts=None, in_dictionary=None, new_counts=None):
    scores = torch.as_tensor(scores, dtype=DOUBLE)
    counts = torch.ones_like(scores) if counts is None else torch.as_tensor(counts, dtype=DOUBLE)
    held = None if in_dictionary is None else torch.as_tensor(in_dictionary)
    new = None if new_counts is None else torch.as_tensor(new_counts, dtype=DOUBLE)
    return PlayedPoints(data(len(scores), 2)[0], rbf(), torch.tensor(0.1, dtype=DOUBLE), counts, scores, held, new)


def chosen(resampling, points, seed):
    """Which points are in the dictionary, (u,) bool."""
    held = np.zeros(points.size, dtype=bool)
    held[rule(resampling).select(points, seeded(seed, 0)).indices.numpy()] = True
    return held


def hits(resampling, *columns, seed=0):
    """Which of u points are in 4,000 dictionaries, (4000, u): 200 drawn, each of 20 copies of the points."""
    points = played(*(np.tile(column, 20) for column in columns))
    return np.array([chosen(resampling, points, seed + number) for number in range(200)]).reshape(4_000, -1)


def bkb(resampling, seed=3, name="bkb", **settings):
    words = {"kernel": rbf(0.3), "regularization": 0.05, "beta": 1.5, "seed": seed, "resampling": resampling}
    return algorithms.build(name, **({"candidates": ARMS} | words | settings))


@pytest.mark.parametrize("resampling", ["fresh", "coupled"])
def test_two_rounds_have_equal_marginals_and_another_joint_law(resampling):
    """Both: min(p, p') if coupled, p p' if fresh; 24 frequencies within 4.5 standard errors: false alarms < 2e-4."""
    first, second, counts = np.linspace(0.1, 0.7, 8), np.linspace(0.5, 0.2, 8), np.arange(1.0, 9.0)
    p, q = np.minimum(Q * first, 1.0), Q * second
    before = hits(resampling, first / counts, counts)
    after = hits(resampling, second / counts, counts, seed=0 if resampling == "coupled" else 4_000)
    both = np.minimum(p, q) if resampling == "coupled" else p * q
    for found, expected in ((before, p), (after, q), (before & after, both)):
        assert (np.abs(found.mean(0) - expected) <= 4.5 * np.sqrt(expected * (1.0 - expected) / 4_000) + 1e-12).all()


@pytest.mark.parametrize("resampling", WAYS)
@given(size=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_no_dictionary_is_empty(resampling, size, seed):
    """Scores of 1e-13: no draw succeeds, and the likeliest is kept."""
    scores = np.full(size, 1e-13)
    scores[seed % size] = 2e-13
    assert chosen(resampling, played(scores), seed).nonzero()[0].tolist() == [seed % size]


@given(first=st.integers(1, 40), more=st.integers(0, 40), seed=st.integers(0, 10_000))
def test_fixed_uniforms_make_dictionaries_monotone(first, more, seed):
    """Later points do not disturb earlier ones, and larger probabilities only add points."""
    scores = np.random.default_rng(seed).uniform(0.1, 0.6, first + more)
    scores[0] = 1.0  # certain, so that no fallback is needed
    few, many = chosen("coupled", played(scores[:first]), seed), chosen("coupled", played(scores), seed)
    assert (many[:first] == few).all()
    assert not (many & ~chosen("coupled", played(1.3 * scores), seed)).any()


class HalfAndHalf(kb.RidgeLeverageSampling):
    def probabilities(self, played, generator=None):
        return torch.full_like(played.counts, 0.5)


@pytest.mark.parametrize(("way", "kept"), [("coupled", True), ("fresh", False)])
def test_the_uniforms_of_a_bandit_are_kept(way, kept):
    """With probabilities near ½ for ever, the dictionary of a growing history only grows."""
    words = {"kernel": rbf(), "regularization": 0.1, "width": kb.ConstantWidth(1.0), "seed": 0}
    bandit, dictionaries = kb.Bandit(candidates=kb.Arms(ARMS), dictionary=HalfAndHalf(1.0, way), **words), []
    for number in range(0, 40, 2):
        bandit.tell(ARMS[number : number + 2], torch.zeros(2, dtype=DOUBLE))
        dictionaries.append({*map(tuple, bandit.inducing_points.tolist())})
    grown = [old <= new for old, new in pairwise(dictionaries[3:])]
    assert all(grown) is kept
    assert 8 <= len(dictionaries[-1]) <= 32


@pytest.mark.one_in(2)
@pytest.mark.parametrize("resampling", ["coupled", "growth"])
def test_a_batch_told_in_parts_is_a_batch_told_at_once(resampling):
    whole, parts = (bkb(resampling, name="bbkb", regularization=0.01, batch_threshold=1.5) for _ in range(2))
    for _ in range(12):
        X = whole.ask(None)
        whole.tell(X, reward(X))
        for x in X:
            parts.tell(x[None], reward(x[None]))
        assert torch.equal(parts.inducing_points, whole.inducing_points)
    assert len(X) > 1


def test_words_that_mean_nothing_are_named():
    for call in (lambda: kb.RidgeLeverageSampling(3.0, "often"), lambda: bkb("often")):
        with pytest.raises(kb.InputError, match='resampling must be "fresh" or "coupled" or "growth", got \'often\''):
            call()


LAMBDA = 0.05


def plays(X, counts, kernel=None, noise=LAMBDA, **known):
    noise, counts = (torch.as_tensor(value, dtype=DOUBLE) for value in (noise, counts))
    return PlayedPoints(X, kernel or rbf(), noise, counts, **known)


def probabilities(points, oversampling, resampling="fresh"):
    return kb.RidgeLeverageSampling(oversampling, resampling).probabilities(points, seeded(0))


@pytest.mark.parametrize("resampling", WAYS)
def test_they_add_up_to_no_more_than_the_effective_dimension_times_oversampling(resampling):
    """Against leverage scores of all plays, each a row of its own: diag(K (K + λI)⁻¹), summed over those of an arm.

    Also where a play of each arm has the noise λ / c of its c plays' mean.
    """
    X, counts = data(20, 2)[0], np.arange(20) % 7 + 1
    rows = np.repeat(np.arange(20), counts)
    K = oracles.rbf(0.5)(*dense(X[rows], X[rows]))
    tolerance = oracles.rounding(len(K), 1.0 + len(K) / LAMBDA)
    of_plays = np.diag(np.linalg.solve(K + LAMBDA * np.eye(len(K)), K))
    merged, known = np.bincount(rows, of_plays), plays(X, counts, rbf(0.5))
    means = plays(X, np.ones(20), rbf(0.5), LAMBDA / counts)
    for oversampling, points in product((0.5, 1.5), (known, means)):
        found = probabilities(points, oversampling, resampling)
        assert difference(found, np.minimum(1.0, oversampling * merged)) < tolerance
        assert found.sum() <= oversampling * of_plays.sum() + 20 * tolerance


def test_growth_includes_with_the_largest_probability_so_far_and_loses_nothing():
    """Three rounds of 5 points, 4,000 draws; frequencies within 4.5 standard errors: false alarms 15 × 7e-6 < 2e-4."""
    counts = np.array([[1, 1, 2, 3, 1], [2, 1, 2, 3, 1], [3, 1, 2, 9, 1]])
    scores = np.array([[0.2, 0.1, 0.1, 0.1, 0.3], [0.15, 0.3, 0.05, 0.2, 0.1], [0.15, 0.2, 0.2, 0.02, 0.4]])
    largest = np.maximum.accumulate(np.minimum(1.0, 1.5 * counts * scores))
    rule, copies, runs = kb.RidgeLeverageSampling(1.5, "growth"), 40, 100
    held, X = np.zeros((runs, 4, copies * 5), dtype=bool), data(copies * 5, 2)[0]
    for run in range(runs):
        for number in range(3):
            known = {"in_dictionary": torch.tensor(held[run, number])}
            known |= {"leverage_scores": torch.tensor(np.tile(scores[number], copies))}
            known |= {"new_counts": torch.arange(copies * 5, dtype=DOUBLE) % 2}  # whenever it was played
            chosen = rule.select(plays(X, np.tile(counts[number], copies), **known), seeded(run))
            held[run, number + 1, chosen.indices] = True
    assert (held[:, :-1] <= held[:, 1:]).all()
    found = held[:, 1:].reshape(runs, 3, copies, 5).mean((0, 2))
    assert (np.abs(found - largest) <= 4.5 * np.sqrt(largest * (1.0 - largest) / (runs * copies)) + 1e-12).all()


def ratios(problem, oversampling, **words):
    """The least and largest share of DTC variances of a run of BKB in the exact ones, densely; rounding is forgiven."""
    words = {"kernel": rbf(0.3), "regularization": 0.01, "beta": 2.0, "seed": 0, "oversampling": oversampling} | words
    bandit, arms, shares = algorithms.BKB(candidates=problem.arms, **words), problem.arms.numpy(), [1.0]
    for number in range(60):
        x = bandit.ask()
        bandit.tell(x, problem.pull(x, number) - 0.5)
        if number % 6 == 5:
            X, counts = np.unique(bandit.history.X.numpy(), axis=0, return_counts=True)
            data = (oracles.rbf(0.3), X, np.zeros(len(X)), 0.01 / counts)
            exact, ours = oracles.exact(*data, arms), oracles.dtc(*data, bandit.inducing_points.numpy(), arms)
            rounding = exact.rounding + ours.rounding
            shares += [((ours.variance + rounding) / exact.variance).min()]
            shares += [((ours.variance - rounding) / exact.variance).max()]
    return min(shares), max(shares)


def test_variances_are_within_the_factor_of_the_theorem_at_its_oversampling():
    """BKB's Theorem 1 with ε = 1/2, so α = 3; at q̄ = 0.2 this would be seen to fail."""
    problem = environments.gaussian_bumps(100, 2, lengthscale=0.3, seed=0)
    least, largest = ratios(problem, "theory", horizon=60, failure_probability=0.1)
    assert 1.0 / 3.0 <= least <= largest <= 3.0 < ratios(problem, 0.2)[1]


def test_raised_afterwards_the_oversampling_gives_the_accuracy_of_a_bandit_that_had_it():
    """Tuning q̄: the history is replayed to a bandit with more, or told at once but for the last reward."""
    arms = data(600, 2)[0]
    few, replayed, told = (
        algorithms.BKB(candidates=arms, kernel=rbf(0.2), regularization=0.01, beta=2.0, seed=0, oversampling=q)
        for q in (1, 10, 10)
    )
    play(few, 120)
    X, Y = few.history.X, few.history.Y
    replayed.replay(few.history)
    told.tell(X[:-1], Y[:-1])
    told.tell(X[-1:], Y[-1:])
    exact = oracles.exact(oracles.rbf(0.2), *dense(X, Y, torch.full_like(Y, 0.01), X)).variance
    error = {each: float(np.abs(believed(each, X)[1].numpy() / exact - 1.0).max()) for each in (few, replayed, told)}
    assert error[few] > 0.2
    assert max(error[replayed], error[told]) < 0.02
    assert len(few.inducing_points) < min(len(told.inducing_points), len(replayed.inducing_points)) < len(X)
