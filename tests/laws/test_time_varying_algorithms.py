"""R-, SW-, W-, UI- and TV-GP-UCB against posteriors that are written down densely, and what they share with GP-UCB."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, rbf

from torch_kbandits import InputError, algorithms
from torch_kbandits.confidence import greedy_information_gain, restart_period, window_size
from torch_kbandits.memory import Linear, Quadratic

LAMBDA = 0.05
ARMS = data(30, 2, seed=4)[0]
KERNEL = oracles.rbf(0.4)
PLAIN = {"kernel": rbf(0.4), "regularization": LAMBDA, "beta": 2.0, "seed": 3}
SETTINGS = PLAIN | {"candidates": ARMS}


def reward(x, t):
    return torch.sin(4.0 * x[:, 0] + 0.2 * t) + x[:, 1]


def noise_by_age(name, age):
    """λ_s of an observation of each age, infinite where it does not count; the round's last observation has age 1."""
    if name == "sw-gp-ucb":
        return np.where(age <= 7, LAMBDA, np.inf)
    if name == "w-gp-ucb":
        return LAMBDA * 0.8**-age
    if name == "ui-gp-ucb":
        return np.where(LAMBDA + 0.03 * age <= 0.5, LAMBDA + 0.03 * age, np.inf)
    return np.full(len(age), LAMBDA)


CASES = {
    "r-gp-ucb": {"period": 7},
    "sw-gp-ucb": {"window": 7},
    "w-gp-ucb": {"discount": 0.8, "least_weight": None},
    "ui-gp-ucb": {"growth": 0.03, "max_variance": 0.5},
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", CASES)
def test_choices_are_the_maximisers_of_the_dense_formula(name):
    bandit = algorithms.build(name, **SETTINGS, **CASES[name])
    X, Y = np.zeros((0, 2)), np.zeros(0)
    for t in range(40):
        x = bandit.ask()
        first = 7 * (t // 7) if name == "r-gp-ucb" else 0
        variances = noise_by_age(name, t - np.arange(first, t))
        counts = np.isfinite(variances)
        posterior = oracles.exact(KERNEL, X[first:][counts], Y[first:][counts], variances[counts], dense(ARMS)[0])
        scores = posterior.mean + 2.0 * np.sqrt(np.diag(posterior.covariance).clip(0.0))
        row = int((x == ARMS).all(-1).nonzero()[0, 0])
        assert scores[row] > scores.max() - 2.0 * posterior.upper_rounding(2.0)
        y = reward(x, t)
        bandit.tell(x, y)
        X, Y = np.vstack([X, dense(x)[0]]), np.append(Y, dense(y)[0])


def test_tv_gp_ucb_is_the_exact_posterior_on_space_and_time():
    bandit, kernel = algorithms.TVGPUCB(forgetting=0.1, **SETTINGS), oracles.in_time(KERNEL, 0.1)
    X, Y = np.zeros((0, 3)), np.zeros(0)
    for t in (0.0, 1.0, 2.5, 2.5, 4.0, 9.0, 11.0):
        x = bandit.ask(time=t)
        at = torch.cat([torch.full((len(ARMS), 1), t, dtype=DOUBLE), ARMS], -1)
        expected = oracles.exact(kernel, X, Y, np.full(len(X), LAMBDA), at.numpy())
        scores = expected.mean + 2.0 * np.sqrt(expected.variance)
        assert scores[int((x == ARMS).all(-1).nonzero()[0, 0])] > scores.max() - 1e-7
        assert difference(bandit.model.posterior(at.unsqueeze(-2)).variance.flatten(), expected.variance) < 1e-8
        y = reward(x, t)
        bandit.tell(x, y)
        X, Y = np.vstack([X, [t, *dense(x)[0][0]]]), np.append(Y, dense(y)[0])


def test_nothing_forgotten_is_gp_ucb():
    static = algorithms.IGPUCB(**SETTINGS)
    same = [
        algorithms.RGPUCB(period=float("inf"), **SETTINGS),
        algorithms.SWGPUCB(window=float("inf"), **SETTINGS),
        algorithms.WGPUCB(discount=1.0, **SETTINGS),
        algorithms.UIGPUCB(growth=Quadratic(0.0), **SETTINGS),
        algorithms.UIGPUCB(growth=Linear(0.0), **SETTINGS),
    ]
    never = algorithms.TVGPUCB(forgetting=0.0, **SETTINGS)
    for t in range(20):
        x = static.ask()
        for each in same:
            assert torch.equal(each.ask(), x)
            each.tell(x, reward(x, t))
        static.tell(x, reward(x, t))
        never.tell(x, reward(x, t))
    at = torch.cat([torch.full((len(ARMS), 1), 20.0, dtype=DOUBLE), ARMS], -1)
    ours, theirs = never.model.posterior(at.unsqueeze(-2)), static.model.posterior(ARMS.unsqueeze(-2))
    assert difference(ours.mean, theirs.mean) < 1e-8
    assert difference(ours.variance, theirs.variance) < 1e-8


def remembered(name, **words):
    """For how many rounds an algorithm remembers that is told the horizon alone."""
    memory = algorithms.build(name, **words, **({"discount": None} if name == "w-gp-ucb" else {})).memory
    if name == "w-gp-ucb":
        return -1.0 / np.log(memory.discount)
    return memory.period if name == "r-gp-ucb" else memory.size


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["r-gp-ucb", "sw-gp-ucb", "w-gp-ucb"])
@pytest.mark.parametrize("budget", [None, 4.0])
def test_the_theorem_sets_the_memory(name, budget):
    """The gain of points of the box is that of arms which fill it, to the share that random points miss."""
    gain = float(greedy_information_gain(rbf(0.4), ARMS, 200, LAMBDA)[-1])
    formula = restart_period if name == "r-gp-ucb" else window_size
    words = PLAIN | {"horizon": 200, "variation_budget": budget}
    here = remembered(name, **words, candidates=ARMS)
    assert here == pytest.approx(formula(200, budget, gain=gain), rel=1e-12)
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 30, dtype=DOUBLE)] * 2)
    on_box = remembered(name, **words, bounds=grid[[0, -1]])
    assert on_box == pytest.approx(remembered(name, **words, candidates=grid), rel=0.05, abs=1.0)


def test_bad_input():
    for call, part in (
        (lambda: algorithms.SWGPUCB(**SETTINGS), "window is missing"),
        (lambda: algorithms.RGPUCB(**PLAIN, bounds=ARMS[:2].sort(0).values), "period is missing"),
        (lambda: algorithms.WGPUCB(discount=None, **SETTINGS), "discount is missing"),
        (lambda: algorithms.SWGPUCB(horizon=100, context_dim=1, **SETTINGS), "without contexts"),
        (lambda: algorithms.RGPUCB(period=0, **SETTINGS), "period must be a finite number above 0"),
        (lambda: algorithms.WGPUCB(discount=1.5, **SETTINGS), "discount must be above 0"),
        (lambda: algorithms.UIGPUCB(growth=-1.0, **SETTINGS), "rate must be a finite number of at least 0"),
        (lambda: algorithms.TVGPUCB(forgetting=1.0, **SETTINGS), "forgetting must be at least 0 and below 1"),
    ):
        with pytest.raises(InputError, match=part):
            call()
