"""The Pareto front of what was played is that of dense posterior means, and its figure shows it."""

import numpy as np
import oracles
import pytest
import torch
from matplotlib.figure import Figure
from problems import DOUBLE, data, dense, rbf

from torch_kbandits import (
    Outcome,
    Prior,
    Scalarization,
    algorithms,
)
from torch_kbandits.looking import pareto_front, plot_front
from torch_kbandits.memory import BackToPrior, SlidingWindow

ARMS = data(25, 2, seed=2)[0]
BOTH = {"reward": "maximize", "cost": "minimize"}
ALL = BOTH | {"heat": "maximize"}
PRIOR, COST = Prior(rbf(0.4), 0.2), Outcome("cost", Prior(rbf(0.4, 4.0), 0.5))
HEAT = Outcome("heat", PRIOR)


def make(objectives=BOTH, **words):
    settings = {"candidates": ARMS, "prior": PRIOR, "beta": 1.5, "seed": 0, "outcomes": [COST, HEAT]}
    return algorithms.GPUCB(**(settings | {"objective": Scalarization(objectives)} | words))


def told(bandit, n=20, context=None):
    noise = torch.Generator().manual_seed(1)
    X = ARMS[torch.arange(n) % 12]  # some come again
    Y = torch.sin(5.0 * X).sum(-1) + torch.randn(n, generator=noise, dtype=DOUBLE)
    outcomes = {"cost": 3.0 * X[:, 0] + torch.randn(n, generator=noise, dtype=DOUBLE), "heat": X[:, 1]}
    for row in range(n):
        own = {name: float(values[row]) for name, values in outcomes.items()}
        bandit.tell(X[row, None], float(Y[row]), outcomes=own)
    return bandit, X, Y, outcomes


def test_it_is_the_front_of_dense_means_and_not_of_values():
    bandit, X, Y, outcomes = told(make())
    front = pareto_front(bandit)
    rows, means = dense(front.X)[0], []
    for kernel, noise, y in ((oracles.rbf(0.4), 0.2, Y), (oracles.rbf(0.4, 4.0), 0.5, outcomes["cost"])):
        at = oracles.exact(kernel, *dense(X, y), np.full(len(X), noise), rows)
        means.append(at.mean)
        column = len(means) - 1
        assert np.abs(front.means[:, column].numpy() - at.mean).max() < 1e-7
        assert np.abs(front.deviations[:, column].numpy() - np.sqrt(at.variance)).max() < 1e-6
    good = np.stack([means[0], -means[1]], -1)
    beaten = [any((other >= mine).all() and (other > mine).any() for other in good) for mine in good]
    assert front.is_on_front.tolist() == [not each for each in beaten]
    assert 0 < sum(beaten) < len(beaten) == 12
    assert torch.equal(front.actions, front.X[front.is_on_front])
    assert front.names == ("reward", "cost")
    assert torch.equal(front.values, front.means[front.is_on_front])


@pytest.mark.parametrize("memory", [SlidingWindow(5), BackToPrior(0.1)])
def test_what_counts_at_the_present_time_is_compared(memory):
    bandit, X, *_ = told(make(memory=memory))
    front = pareto_front(bandit)
    own = front.X[:, front.X.shape[-1] - 2 :]
    counted = X[-5:] if isinstance(memory, SlidingWindow) else X
    assert {tuple(x) for x in own.tolist()} == {tuple(x) for x in counted.tolist()}


@pytest.mark.parametrize(("objectives", "panels"), [(BOTH, 1), (ALL, 3)])
def test_the_figure_has_a_panel_for_each_pair_with_the_front_in_it(objectives, panels):
    bandit, *_ = told(make(objectives))
    before = bandit.state_dict()
    figure = plot_front(bandit, center=10.0)
    assert isinstance(figure, Figure)
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == panels
    front = pareto_front(bandit)
    drawn = shown[0].collections[-2].get_offsets()  # the star is last
    expected = front.values[:, :2] + torch.tensor([10.0, 0.0], dtype=DOUBLE)
    assert np.abs(np.asarray(drawn) - expected.numpy()).max() < 1e-9
    star = np.asarray(shown[0].collections[-1].get_offsets())[0]
    row = int((bandit.recommend() == front.X).all(-1).nonzero()[0])
    assert np.abs(star - (front.means[row, :2] + torch.tensor([10.0, 0.0], dtype=DOUBLE)).numpy()).max() < 1e-9
    assert shown[0].get_xlabel() == "reward (maximize)"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[1] == f"Pareto front of the means, ± σ ({int(front.is_on_front.sum())})"
    after = bandit.state_dict()
    assert before["num_asked"] == after["num_asked"]
    assert torch.equal(before["history"]["Y"], after["history"]["Y"])
