"""Thompson sampling and random search beside contexts: the draws are the posterior's, and their cost stays flat."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, matern, rbf
from scipy.stats import chisquare

from torch_kbandits import ContextualActions, InputError, NystromGP, algorithms
from torch_kbandits.acquisition import Domain
from torch_kbandits.beliefs.joint_lookahead import _Offer
from torch_kbandits.dictionaries import KORS
from torch_kbandits.models import OnlineGP

LAMBDA = 0.1
ACTIONS = torch.tensor([[0.0], [0.4], [1.0]], dtype=DOUBLE)
WORDS = {"kernel": matern(0.5, 1.0), "regularization": LAMBDA}


def contexts(number, seed=0):
    return torch.rand(number, 2, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def reward(context, action):
    return torch.cos(3.0 * (context.sum() - 2.0 * action)).reshape(1)


def play(bandit, number, seed=0):
    asked = []
    for context in contexts(number, seed):
        action = bandit.ask(context=context)
        bandit.tell(action, reward(context, action), context=context)
        asked.append(action)
    return torch.cat(asked)


@pytest.mark.slow
@pytest.mark.parametrize("oversampling", [None, 1e6])
def test_actions_are_played_as_often_as_they_are_the_best(oversampling):
    """600 first choices by as many seeds, against a dense posterior; chi-square with a false alarm of 1e-6."""
    X = torch.cat([contexts(6), ACTIONS.repeat(2, 1)], -1)
    Y = torch.tensor([0.1, 0.5, -0.2, 0.0, 0.3, 0.4], dtype=DOUBLE)
    context = torch.tensor([0.5, 0.2], dtype=DOUBLE)
    points = torch.cat([context.expand(3, 2), ACTIONS], -1)
    counts = np.zeros(3)
    for seed in range(600):
        bandit = algorithms.GPTS(
            candidates=ACTIONS, context_dim=2, oversampling=oversampling, beta=1.0, seed=seed, **WORDS
        )
        bandit.tell(X[:, 2:], Y, context=X[:, :2])
        counts[int((bandit.ask(context=context) == ACTIONS).all(-1).nonzero())] += 1
    kernel = oracles.matern52(0.5, 1.0)
    X, Y, points = dense(X, Y, points)
    solve = np.linalg.solve(kernel(X, X) + LAMBDA * np.eye(6), kernel(X, points))
    covariance = kernel(points, points) - kernel(points, X) @ solve
    draws = np.random.default_rng(0).multivariate_normal(Y @ solve, covariance, 400_000)
    shares = np.bincount(draws.argmax(1), minlength=3) / len(draws)
    assert chisquare(counts, 600 * shares).pvalue > 1e-6


@pytest.mark.one_in(2)
@pytest.mark.parametrize("words", [{}, {"oversampling": 3.0}], ids=["exact", "nystrom"])
def test_saved_and_replayed_bandits_go_on_alike(words):
    make = lambda: algorithms.GPTS(candidates=ACTIONS, context_dim=2, beta=1.0, seed=1, **words, **WORDS)  # noqa: E731
    bandit, loaded, replayed = make(), make(), make()
    play(bandit, 15)
    loaded.load_state_dict(bandit.state_dict())
    replayed.replay(bandit.history)
    expected = play(bandit, 6, seed=1)
    assert torch.equal(play(loaded, 6, seed=1), expected)
    assert torch.equal(play(replayed, 6, seed=1), expected)


@pytest.mark.parametrize("words", [{}, {"oversampling": 3.0}], ids=["exact", "nystrom"])
def test_a_draw_of_a_loaded_bandit_is_off_by_a_root_of_rounding(words):
    """So no choice changes. The symmetric root R of a covariance C is that stable: ‖R − R'‖² is at most ‖C − C'‖."""
    actions = data(20, 1)[0]
    bandit, loaded = (
        algorithms.GPTS(
            candidates=ContextualActions(actions, context_dim=0), beta=1.0, seed=0, **words, **WORDS | {"kernel": rbf()}
        )
        for _ in range(2)
    )
    for _ in range(8):
        action = bandit.ask()
        bandit.tell(action, reward(action, action))
    loaded.load_state_dict(bandit.state_dict())
    ours, theirs = (_Offer(each._ahead_of(each._standing), Domain(actions)) for each in (bandit, loaded))
    assert difference(ours.variance, theirs.variance) < 1e-13
    assert difference(ours.deviation(7), theirs.deviation(7)) < 1e-6


def test_the_posterior_is_the_one_asked_for():
    exact = algorithms.GPTS(candidates=ACTIONS, context_dim=2, beta=1.0, seed=0, **WORDS)
    nystrom = algorithms.GPTS(candidates=ACTIONS, context_dim=2, beta=1.0, seed=0, oversampling=0.3, **WORDS)
    for bandit in (exact, nystrom):
        play(bandit, 40)
    assert isinstance(exact.model, OnlineGP)
    assert isinstance(nystrom.model, NystromGP)
    assert nystrom.dictionary == KORS(0.3)
    assert len(nystrom.inducing_points) < 30 < len(exact.inducing_points)
    with pytest.raises(InputError, match="oversampling"):
        algorithms.GPTS(candidates=ACTIONS, beta=1.0, seed=0, oversampling=0.0, **WORDS)


@pytest.mark.parametrize("name", ["gp-ts", "random"])
def test_every_kind_of_actions(name):
    more = {"beta": 1.0, "discretization_size": 32} if name == "gp-ts" else {}
    bounds = torch.tensor([[0.0], [1.0]], dtype=DOUBLE)
    boxed = algorithms.build(name, bounds=bounds, context_dim=2, seed=0, **more, **WORDS)
    play(boxed, 3)
    changing = algorithms.build(name, action_dim=1, context_dim=2, seed=0, **more, **WORDS)
    for number, context in enumerate(contexts(5)):
        actions = ACTIONS[: 1 + number % 3]
        action = changing.ask(context=context, candidates=actions)
        assert bool((actions == action).all(-1).any())
        changing.tell(action, reward(context, action), context=context)
    with pytest.raises(InputError, match="context is missing"):
        boxed.ask()


@pytest.mark.slow
def test_random_search_draws_uniformly_and_keeps_few_points():
    """1,000 rounds on three actions; chi-square with a false alarm of 1e-6."""
    bandit = algorithms.RandomSearch(candidates=ACTIONS, context_dim=2, seed=0, **WORDS)
    played = play(bandit, 1000)
    counts = (played == ACTIONS.T).sum(0).numpy()
    assert chisquare(counts).pvalue > 1e-6
    assert len(bandit.inducing_points) <= 200
    tiny = algorithms.RandomSearch(
        candidates=ACTIONS, context_dim=2, seed=0, kernel=matern(0.01, 1.0), regularization=1e-4
    )
    play(tiny, 300)
    assert len(tiny.inducing_points) == 200
    context = contexts(1, seed=5)[0]
    best = ACTIONS[torch.cat([reward(context, action) for action in ACTIONS]).argmax()]
    assert torch.equal(bandit.recommend(context=context)[0], best)
