"""Importance of parameters: Sobol indices known in closed form or by dense averages, and how sure they are."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from matplotlib.colors import to_rgba
from problems import DOUBLE, dense, rbf
from scipy.stats import binom

import torch_kbandits as kb
from torch_kbandits import algorithms
from torch_kbandits.errors import EmptyHistoryError
from torch_kbandits.plotting import plot_importance
from torch_kbandits.plotting.style import POSTERIOR


def grid(*sizes):
    return torch.cartesian_prod(*(torch.linspace(0.0, 1.0, size, dtype=DOUBLE) for size in sizes))


def dense_shares(values):
    """First-order and total shares of the variance of values on a grid, by averages along its axes."""
    axes = range(values.ndim)
    means = [values.mean(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    left = [values.var(axis=axis).mean() for axis in axes]
    return np.array([mean.var() for mean in means]) / values.var(), np.array(left) / values.var()


def told(arms, function, lengthscale=0.3, noise=1e-6, **words):
    given = {"candidates": arms, "kernel": rbf(lengthscale, 1.0), "regularization": noise, "beta": 1.0, "seed": 0}
    bandit = algorithms.GPUCB(**given | words)
    bandit.tell(arms, function(arms))
    return bandit


def test_shares_of_a_mean_that_is_known_are_those_of_the_function():
    """An additive function, 1 : 4 : 0, and Ishigami's, whose shares are known on the whole box."""
    arms = grid(9, 9, 3)
    found = told(arms, lambda X: X[:, 0] + 2.0 * X[:, 1]).importance()
    assert found.names == ("x1", "x2", "x3")
    assert np.abs(found.first_order.numpy() - [0.2, 0.8, 0.0]).max() < 0.01
    assert np.abs(found.total.numpy() - [0.2, 0.8, 0.0]).max() < 0.01

    def ishigami(X):
        x = math.pi * (2.0 * X - 1.0)
        return x[:, 0].sin() + 7.0 * x[:, 1].sin().square() + 0.1 * x[:, 2] ** 4 * x[:, 0].sin()

    box = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=DOUBLE)
    bandit = algorithms.GPUCB(bounds=box, kernel=rbf(0.3, 20.0), regularization=1e-6, beta=1.0, seed=0)
    X = torch.quasirandom.SobolEngine(3, scramble=True, seed=1).draw(400, dtype=DOUBLE)
    bandit.tell(X, ishigami(X))
    found = bandit.importance(num_points=4096, num_draws=8)
    assert np.abs(found.first_order.numpy() - [0.3139, 0.4424, 0.0]).max() < 0.02
    assert np.abs(found.total.numpy() - [0.5576, 0.4424, 0.2437]).max() < 0.02


@pytest.mark.parametrize("kind", ["arms", "dictionary", "actions", "timed"])
def test_shares_on_a_grid_are_dense_averages_of_the_posterior_mean(kind):
    arms = grid(6, 5, 4)
    X = arms[torch.randperm(120, generator=torch.Generator().manual_seed(0))[:25]]
    Y = torch.sin(4.0 * X[:, 0]) * (1.0 + X[:, 1]) + X[:, 2]
    words = {"kernel": rbf(0.4, 1.5), "regularization": 0.05, "beta": 1.0, "seed": 0}
    candidates = kb.ContextualActions(arms, context_dim=0) if kind == "actions" else arms
    if kind == "timed":
        words["memory"] = kb.memory.TemporalPrior(0.1)
    make = algorithms.BKB if kind == "dictionary" else algorithms.GPUCB
    bandit = make(candidates=candidates, **words)
    bandit.tell(X, Y)
    points, values, T = dense(X, Y, arms)
    noise, kernel = np.full(len(X), 0.05), oracles.rbf(0.4, 1.5)
    if kind == "dictionary":
        mean = oracles.dtc(kernel, points, values, noise, *dense(bandit.inducing_points), T).mean
    elif kind == "timed":
        share = (1.0 - 0.1) ** (0.5 * (bandit.now - bandit.history.times.numpy()))
        K = kernel(points, points)  # all told at one time
        mean = (share[:, None] * kernel(points, T)).T @ np.linalg.solve(K + np.diag(noise), values)
    else:
        mean = oracles.exact(kernel, points, values, noise, T).mean
    first, total = dense_shares(mean.reshape(6, 5, 4))
    found = bandit.importance(num_points=4096, num_draws=2)
    assert np.abs(found.first_order.numpy() - first).max() < 0.01
    assert np.abs(found.total.numpy() - total).max() < 0.01
    assert np.abs(found.length_scales.numpy() - 0.4).max() < 1e-12


def test_what_the_kernel_does_not_see_has_no_share_in_any_draw():
    kernel = RBFKernel(active_dims=(0, 2)).double()
    bandit = told(grid(5, 5, 5), lambda X: X[:, 0] * X[:, 1], kernel=kernel, regularization=0.1)
    found = bandit.importance(num_draws=16)
    shares = found.total, found.first_order, found.total_draws, found.first_order_draws
    assert max(float(each[..., 1].max()) for each in shares) < 1e-5  # draws have a jitter
    assert found.length_scales.isnan().tolist() == [False, True, False]
    assert float(found.total_draws[:, 0].min()) > 0.0


def test_a_choice_of_several_columns_is_one_parameter_and_a_context_is_as_it_was_played():
    space = kb.ParameterSpace({"rate": kb.Float(0.0, 1.0), "kind": kb.Categorical(["a", "b", "c"])})
    bandit = algorithms.GPUCB(
        candidates=space, kernel=rbf(0.5, 4.0), regularization=0.05, context_dim=1, seed=0, beta=1.0
    )
    for turn, x in enumerate(space.decode(space.sample(12, torch.Generator().manual_seed(0)))):
        reward = {"a": 0.0, "b": 3.0, "c": -3.0}[x["kind"]] + 0.1 * x["rate"]
        bandit.tell(x, reward, context=[turn % 3 / 2.0])
    found = bandit.importance()
    assert found.names == ("context 1", "rate", "kind")
    assert int(found.total.argmax()) == 2
    assert found.total[2] > 0.5
    assert "kind" in str(found).split("\n")[1]


def test_shares_in_single_precision_are_those_in_double_precision():
    arms, kernel = grid(6, 5), MaternKernel(nu=2.5).double()
    both = []
    for each in (arms, arms.float()):
        bandit = algorithms.BKB(candidates=each, kernel=kernel.to(each), regularization=0.01, beta=1.0, seed=0)
        bandit.tell(each, torch.sin(4.0 * each[:, 0]) + each[:, 1])
        both.append(bandit.importance(num_points=256, num_draws=4))
    assert float((both[0].total - both[1].total).abs().max()) < 1e-4


@pytest.mark.slow
def test_draws_cover_the_shares_of_the_function_as_often_as_they_say():
    """Functions drawn from the prior on a grid: 90% intervals of six shares each, 60 functions, at least 84%.

    Shares of one function depend on each other, so the binomial is that of 60 times two independent ones.
    """
    arms, hits, total = grid(6, 6, 3), 0, 0
    kernel = MaternKernel(nu=2.5, ard_num_dims=3).double()
    kernel.lengthscale = torch.tensor([0.3, 0.8, 1.5], dtype=DOUBLE)
    root = np.linalg.cholesky(kernel(arms, arms).to_dense().detach().numpy() + 1e-10 * np.eye(len(arms)))
    for seed in range(60):
        random = np.random.default_rng(seed)
        values = root @ random.standard_normal(len(arms))
        truth = np.concatenate(dense_shares(values.reshape(6, 6, 3)))
        rows = random.choice(len(arms), 20, replace=False)
        bandit = algorithms.GPUCB(candidates=arms, kernel=kernel, regularization=0.05, beta=1.0, seed=seed)
        bandit.tell(arms[rows], torch.from_numpy(values[rows] + 0.05**0.5 * random.standard_normal(20)))
        ends = torch.cat(bandit.importance(num_draws=200).interval(0.9), dim=-1).numpy()
        inside = (truth >= ends[0] - 1e-9) & (truth <= ends[1] + 1e-9)
        hits, total = hits + int(inside.sum()), total + len(inside)
    least = binom.ppf(1e-3, 120, 0.9) / 120
    most = binom.ppf(1.0 - 1e-3, 120, 0.9) / 120
    assert least <= hits / total <= most


def test_the_figure_has_the_shares_and_nothing_to_say_is_said():
    bandit = told(grid(5, 5), lambda X: X[:, 0] + 2.0 * X[:, 1])
    figure, found = plot_importance(bandit, num_draws=8), bandit.importance(num_draws=8)
    (ax,) = figure.axes
    bars = [bar.get_width() for bar in ax.patches if bar.get_facecolor() == to_rgba(POSTERIOR, 1.0)]
    assert bars == found.first_order[found.total.argsort()].tolist()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x1", "x2"]
    before = bandit.ask(remember=False)
    assert torch.equal(bandit.ask(remember=False), before)
    with pytest.raises(EmptyHistoryError, match="tell first"):
        algorithms.GPUCB(candidates=grid(3, 3), kernel=rbf(), regularization=0.1, beta=1.0, seed=0).importance()
