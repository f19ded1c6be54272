"""R-, SW-, W-, UI- and TV-GP-UCB against posteriors that are written down densely, and what they share with GP-UCB."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, rbf

from torch_kbandits import InputError, algorithms
from torch_kbandits.confidence import greedy_information_gain, restart_period, window_size
from torch_kbandits.memory import Linear, Quadratic, SlidingWindow

LAMBDA = 0.05
ARMS = data(30, 2, seed=4)[0]
KERNEL = oracles.rbf(0.4)
SETTINGS = {"kernel": rbf(0.4), "regularization": LAMBDA, "candidates": ARMS, "beta": 2.0, "seed": 3}


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
    bandit = algorithms.TVGPUCB(forgetting=0.1, **SETTINGS)
    X, Y, times = np.zeros((0, 2)), np.zeros(0), np.zeros(0)
    for t in (0.0, 1.0, 2.5, 2.5, 4.0, 9.0, 11.0):
        x = bandit.ask(time=t)
        K = KERNEL(X, X) * 0.9 ** (np.abs(times[:, None] - times) / 2.0) + LAMBDA * np.eye(len(X))
        cross = KERNEL(X, dense(ARMS)[0]) * 0.9 ** ((t - times)[:, None] / 2.0)
        mean = cross.T @ np.linalg.solve(K, Y)
        variance = 1.0 - (cross * np.linalg.solve(K, cross)).sum(0)
        scores = mean + 2.0 * np.sqrt(variance)
        assert scores[int((x == ARMS).all(-1).nonzero()[0, 0])] > scores.max() - 1e-7
        at = torch.cat([torch.full((len(ARMS), 1), t, dtype=DOUBLE), ARMS], -1)
        assert difference(bandit.model.posterior(at.unsqueeze(-2)).variance.flatten(), variance) < 1e-8
        y = reward(x, t)
        bandit.tell(x, y)
        X, Y, times = np.vstack([X, dense(x)[0]]), np.append(Y, dense(y)[0]), np.append(times, t)


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


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", [*CASES, "tv-gp-ucb"])
def test_contexts_boxes_and_dictionaries(name):
    from torch_kbandits import KORS, RidgeLeverageSampling

    plain = {key: value for key, value in SETTINGS.items() if key != "candidates"} | CASES.get(name, {})
    context = torch.tensor([0.3], dtype=DOUBLE)
    actions = data(6, 1, seed=1)[0]
    for rule in (None, RidgeLeverageSampling(3.0), KORS(1.0)):
        bandit = algorithms.build(name, candidates=actions, context_dim=1, dictionary=rule, **plain)
        for t in range(8):
            x = bandit.ask(context=context + 0.01 * t)
            bandit.tell(x, float(x.sum()), context=context + 0.01 * t)
        assert bandit.recommend(context=context).shape == (1, 1)
        fresh = algorithms.build(name, candidates=actions, context_dim=1, dictionary=rule, **plain)
        fresh.load_state_dict(bandit.state_dict())
        assert torch.equal(fresh.ask(context=context), bandit.ask(context=context))
    box = algorithms.build(name, bounds=torch.tensor([[0.0], [1.0]], dtype=DOUBLE), **plain)
    for t in range(3):
        x = box.ask()
        assert 0.0 <= float(x) <= 1.0
        box.tell(x, float(torch.sin(3.0 * x + 0.1 * t)))


def test_a_point_of_tv_gp_ucb_may_be_told_later_than_it_was_asked_for():
    bandit = algorithms.TVGPUCB(**SETTINGS)
    x = bandit.ask(time=1.0)
    other = bandit.ask(time=1.5)
    bandit.tell(x, 0.3, time=2.0)
    assert torch.equal(bandit.pending[:, 1:], other)
    assert bandit.history.X[0, 0] == 2.0
    bandit.forget(other)
    assert len(bandit.pending) == 0


@pytest.mark.one_in(3)
def remembered(name, **words):
    """For how many rounds an algorithm remembers that is told the horizon alone."""
    memory = algorithms.build(name, **words, **({"discount": None} if name == "w-gp-ucb" else {})).memory
    if name == "w-gp-ucb":
        return -1.0 / np.log(memory.discount)
    return memory.period if name == "r-gp-ucb" else memory.size


@pytest.mark.parametrize("name", ["r-gp-ucb", "sw-gp-ucb", "w-gp-ucb"])
@pytest.mark.parametrize("budget", [None, 4.0])
def test_the_theorem_sets_the_memory(name, budget):
    gain = float(greedy_information_gain(rbf(0.4), ARMS, 200, LAMBDA)[-1])
    formula = restart_period if name == "r-gp-ucb" else window_size
    here = remembered(name, horizon=200, variation_budget=budget, **SETTINGS)
    assert here == pytest.approx(formula(200, budget, gain=gain), rel=1e-12)
    # The gain of points of the box is that of arms which fill it, to the share that random points miss.
    words = {key: value for key, value in SETTINGS.items() if key != "candidates"}
    box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 30, dtype=DOUBLE)] * 2)
    on_box = remembered(name, horizon=200, variation_budget=budget, **words, bounds=box)
    on_grid = remembered(name, horizon=200, variation_budget=budget, **words, candidates=grid)
    assert on_box == pytest.approx(on_grid, rel=0.05, abs=1.0)


def test_bad_input():
    box = {key: value for key, value in SETTINGS.items() if key != "candidates"} | {"bounds": ARMS[:2].sort(0).values}
    for call, part in (
        (lambda: algorithms.SWGPUCB(**SETTINGS), "window is missing"),
        (lambda: algorithms.RGPUCB(**box), "period is missing"),
        (lambda: algorithms.WGPUCB(discount=None, **SETTINGS), "discount is missing"),
        (lambda: algorithms.SWGPUCB(horizon=100, context_dim=1, **SETTINGS), "without contexts"),
        (lambda: algorithms.RGPUCB(period=0, **SETTINGS), "period must be a finite number above 0"),
        (lambda: algorithms.WGPUCB(discount=1.5, **SETTINGS), "discount must be above 0"),
        (lambda: algorithms.UIGPUCB(growth=-1.0, **SETTINGS), "rate must be a finite number of at least 0"),
        (lambda: algorithms.TVGPUCB(forgetting=1.0, **SETTINGS), "forgetting must be at least 0 and below 1"),
        (lambda: algorithms.TVGPUCB(**SETTINGS | {"candidates": SlidingWindow(3)}), "candidates"),
    ):
        with pytest.raises(InputError, match=part):
            call()
