"""Few arms: loops are what plain PyTorch says, also where rewards are taken back."""

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from forgetting import LAMBDA, MEMORIES
from hypothesis import given
from problems import DOUBLE, KERNELS, data, dense, difference, examples, reward

from torch_kbandits import use_compiled
from torch_kbandits.beliefs import CovarianceTable, covariances
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.memory import SlidingWindow
from torch_kbandits.observations.counted import Counted
from torch_kbandits.observations.ledger import History


def told(X, Y, now):
    return History(X, Y, torch.full((len(X),), int(now)), None, torch.full((len(X),), now, dtype=DOUBLE))


@examples(15)
@given(
    num_arms=st.integers(1, 12),
    rounds=st.integers(1, 14),
    q=st.integers(0, 4),
    near=st.booleans(),
    kernel=st.sampled_from(["rbf", "matern", "linear"]),
    memory=st.sampled_from([None, *MEMORIES]),
    seed=st.integers(0, 10_000),
)
def test_loops_are_what_plain_pytorch_says(num_arms, rounds, q, near, kernel, memory, seed):
    """Duplicate and nearly equal arms, repeats, batches, nothing told, points that are no arms."""
    random = np.random.default_rng(seed)
    arms = data(num_arms, 2, seed)[0]
    arms = torch.cat([arms, arms[:2], arms[:2] + 1e-9 * near])
    tables = [CovarianceTable(arms, KERNELS[kernel].make(), LAMBDA, 0) for _ in range(2)]
    beliefs = [CountedBelief(table, None if memory is None else MEMORIES[memory].memory) for table in tables]
    for number in range(rounds):
        X = arms[random.integers(len(arms), size=q)]
        if number % 4 == 3:
            X = torch.cat([X, torch.tensor(random.random((1, 2)))])
        news = told(X, torch.tensor(random.standard_normal(len(X))), float(number))
        for place, enabled in enumerate((True, False)):
            with use_compiled(enabled):
                beliefs[place] = beliefs[place].at(float(number)).learned(news, None, None).at(number + 0.5)
        loops, plain = (belief.posterior for belief in beliefs)
        assert torch.equal(loops.played, plain.played)
        for one, other in zip(loops.moments(arms), plain.moments(arms), strict=True):
            # Taking back amplifies rounding, which is watched.
            assert difference(one, other) < 1e-8
        for name in ("information_gain", "effective_dimension", "mean_norm"):
            ours, theirs = (float(getattr(each, name)()) for each in (loops, plain))
            assert ours == pytest.approx(theirs, abs=1e-6)


@examples(20)
@given(size=st.integers(1, 9), seed=st.integers(0, 10_000))
def test_the_highest_score_is_the_same_whoever_looks_for_it(size, seed):
    random = np.random.default_rng(seed)
    table = CovarianceTable(data(size, 2, seed)[0], KERNELS["rbf"].make(), LAMBDA, seed)
    scores = torch.tensor(random.choice([-np.inf, 0.5, 2.0, 2.0 * (1.0 + 1e-13), -3.0], size))
    with use_compiled(True):
        row = table.highest(scores, torch.ones((), dtype=DOUBLE))
    with use_compiled(False):
        assert row == table.highest(scores, torch.ones((), dtype=DOUBLE))
    if scores.max() > 1.0:
        assert scores[row] > 1.9
        assert table.tie_rank[row] == table.tie_rank[scores > 1.9].max()


@examples(20)
@given(number=st.integers(0, 9), seed=st.integers(0, 10_000))
def test_what_points_were_played_for_is_the_same_whoever_adds_it_up(number, seed):
    random = np.random.default_rng(seed)
    places, numbers = (torch.tensor(random.integers(4, size=number)) for _ in range(2))
    Y, weights = (torch.tensor(random.random(number)) for _ in range(2))
    counted = Counted(torch.zeros(number, 1, dtype=DOUBLE), Y, Y, weights, places, numbers)
    with use_compiled(True):
        loops = counted.plays()
    with use_compiled(False):
        plain = counted.plays()
    assert loops.places.tolist() == plain.places.tolist() == [*dict.fromkeys(places.tolist())]
    assert difference(loops.counts, plain.counts) < 1e-14
    assert difference(loops.sums, plain.sums) < 1e-14


@examples(20)
@given(number=st.integers(0, 9), seed=st.integers(0, 10_000), forgets=st.booleans())
def test_what_is_left_and_what_is_gone_is_the_same_whoever_parts_it(number, seed, forgets):
    random = np.random.default_rng(seed)
    places = torch.tensor(np.unique(random.integers(4, size=number), return_inverse=True)[1])
    Y, before, times = (torch.tensor(random.random(number)) for _ in range(3))
    counted = Counted(Y.unsqueeze(1), Y, times, before, places, torch.arange(number))
    weights = torch.tensor(random.integers(2, size=number)) * (before if forgets else before.square())
    parted = []
    for enabled in (True, False):
        with use_compiled(enabled):
            parted.append(counted.weighed(weights))
    loops, plain = parted
    assert all(torch.equal(*pair) for pair in zip(loops.kept, plain.kept, strict=True))
    assert loops.is_same == plain.is_same
    for ours, theirs in ((loops.left, plain.left), (loops.gone, plain.gone)):
        assert torch.equal(ours.places, theirs.places)
        assert max(difference(ours.counts, theirs.counts), difference(ours.sums, theirs.sums)) < 1e-14


@pytest.mark.parametrize("regularization", [1e-1, 1e-6])
@pytest.mark.parametrize("enabled", [True, False])
def test_taking_back_for_long_leaves_no_rounding(enabled, regularization):
    """What explains nearly the whole variance is not taken back but left out when all is computed afresh."""
    arms = data(20, 2, seed=5)[0]
    belief = CountedBelief(CovarianceTable(arms, KERNELS["matern"].make(), regularization, 0), SlidingWindow(8.0))
    random, X = np.random.default_rng(0), arms[:0]
    with use_compiled(enabled):
        for number in range(150):
            x = arms[random.integers(6, size=1)]
            X = torch.cat([X, x])
            belief = belief.at(float(number)).learned(told(x, reward(x), float(number)), None, None)
    noise = np.full(9, regularization)
    told_X, told_Y, T = dense(X[-9:], reward(X[-9:]), arms)
    wanted = oracles.exact(KERNELS["matern"].dense, told_X, told_Y, noise, T)
    assert difference(belief.posterior.mean, wanted.mean) < wanted.rounding
    assert difference(belief.posterior.variance, wanted.variance) < wanted.rounding


@pytest.mark.parametrize("regularization", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_points_that_are_no_arms_are_believed_as_accurately_as_arms(kernel, regularization):
    """However small the noise: the last are asked about once others of them were told."""
    random, arms = np.random.default_rng(0), data(30, 2)[0]
    others = torch.tensor(random.random((12, 2)))
    X = torch.cat([arms[random.integers(12, size=25)], others[:4], arms[:3], others[2:6]])
    Y = reward(X) + 0.01 * torch.tensor(random.standard_normal(len(X)))
    table = CovarianceTable(arms, KERNELS[kernel].make(), regularization, 0)
    for x, y in zip(X.split(5), Y.split(5), strict=True):
        table = table.learned(told(x, y, 0.0), None, None)
    noise = np.full(len(X), regularization)
    T = torch.cat([arms, others])
    wanted = oracles.exact(KERNELS[kernel].dense, *dense(X, Y), noise, *dense(T))
    mean, variance = table.moments(T)
    assert difference(mean, wanted.mean) < wanted.rounding
    assert difference(variance, wanted.variance) < wanted.rounding


@pytest.mark.parametrize(("spare", "window"), [(0, 2), (16, 7)])
def test_points_that_are_no_arms_come_and_go_and_others_are_believed_by_what_counts(spare, window, monkeypatch):
    """Each round has a new one, so that rows of those that count no more are given up and others take their numbers."""
    arms, T, kernel = data(5, 2)[0], data(6, 2, seed=8)[0], KERNELS["rbf"]
    monkeypatch.setattr(covariances, "_MOST_STRANGERS", spare)
    belief = CountedBelief(CovarianceTable(arms, kernel.make(), LAMBDA, 0), SlidingWindow(window))
    most = 0
    for number, stranger in enumerate(data(80, 2, seed=9)[0].split(1)):
        X = torch.cat([stranger, arms[: int(number % 3 == 0)]])
        belief = belief.at(float(number)).learned(told(X, reward(X), float(number)), None, None)
        counted, rewards = belief.observations
        noise = np.full(len(counted), LAMBDA)
        wanted = oracles.exact(kernel.dense, *dense(counted, rewards), noise, *dense(T))
        for ours, theirs in zip(belief.moments(T), wanted, strict=False):
            assert difference(ours, theirs) < wanted.rounding
        most = max(most, len(belief.posterior._points) - len(arms))
    assert spare < most <= spare + 2 * window + 2  # rows were given up, and only once there were some
