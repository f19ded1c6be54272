"""Players of others, where rewards move: what they compute is what their papers say, on cases worked densely."""

import numpy as np
import pytest
import torch

from benchmarks.moving_linear import PLAYERS, Forgetting, Problem
from benchmarks.moving_records import SERIES, stretches
from benchmarks.time_column import TimeColumn, WindowedUCB


def played(player, rounds, seed=0):
    """The actions (n, 2) and rewards (n,) of random plays that a player was told, and actions to choose from."""
    generator = np.random.default_rng(seed)
    actions, rewards = generator.uniform(-0.7, 0.7, size=(rounds, 2)), generator.normal(size=rounds)
    for action, reward in zip(actions, rewards, strict=True):
        player.tell(action, reward)
    return actions, rewards, generator.uniform(-0.7, 0.7, size=(20, 2))


def test_d_lin_ucb_is_the_formula_of_its_paper():
    """Algorithm 1 of Russac et al. with all weights written out; λ = 0.1, δ = 0.01, L = S = σ = 1, d = 2."""
    gamma, n = 0.9, 30
    player = Forgetting(discount=gamma)
    X, y, offered = played(player, n)
    weights = gamma ** np.arange(n - 1, -1, -1.0)
    V, squared = (X.T * weights) @ X + 0.1 * np.eye(2), (X.T * weights**2) @ X + 0.1 * np.eye(2)
    beta = 0.1**0.5 + np.sqrt(2 * np.log(100) + 2 * np.log(1 + (1 - gamma ** (2 * n)) / (2 * 0.1 * (1 - gamma**2))))
    norms = [np.sqrt(a @ np.linalg.inv(V) @ squared @ np.linalg.inv(V) @ a) for a in offered]
    scores = offered @ np.linalg.solve(V, X.T @ (weights * y)) + beta * np.array(norms)
    np.testing.assert_allclose(player.bounds(offered), scores, rtol=1e-9)


@pytest.mark.parametrize("rounds", [4, 30])
def test_sw_lin_ucb_is_ridge_regression_on_the_window(rounds):
    player = Forgetting(window=9, factor=0.25)
    X, y, offered = played(player, rounds)
    X, y = X[-9:], y[-9:]
    V = X.T @ X + 0.1 * np.eye(2)
    beta = 0.1**0.5 + np.sqrt(2 * np.log((1 + 9 / 0.1) / 0.01))
    norms = np.sqrt([a @ np.linalg.solve(V, a) for a in offered])
    expected = offered @ np.linalg.solve(V, X.T @ y) + 0.25 * beta * norms
    np.testing.assert_allclose(player.bounds(offered), expected, rtol=1e-9)


def test_without_either_it_learns_a_parameter_that_stays():
    """The angle of 30°, on which no regret is left in the end; random play has about 0.9 a round."""
    player, problem, best = Forgetting(), Problem("slow", 400, 3), np.array([0.75**0.5, 0.5])
    regret = []
    for actions, noise in zip(problem.actions, problem.noise, strict=True):
        row = player.ask(actions)
        regret.append((actions @ best).max() - actions[row] @ best)
        player.tell(actions[row], actions[row] @ best + noise)
    assert np.mean(regret[200:]) < 0.2


def test_sw_gp_ucb_of_the_linear_kernel_is_sw_lin_ucb_at_one_multiplier():
    """Actions of length 1 tie before any reward: so ours is to maximise the bound of the other, to rounding."""
    beta = 0.1**0.5 + np.sqrt(2 * np.log((1 + 9 / 0.1) / 0.01))
    ours, theirs = PLAYERS["SW-GP-UCB, β = 1"](9.0), Forgetting(window=9, factor=1.0 / beta)
    problem = Problem("slow", 25, 1)
    for actions, noise in zip(problem.actions, problem.noise, strict=True):
        row, bounds = ours.ask(actions), theirs.bounds(actions)
        assert bounds[row] == pytest.approx(bounds.max(), rel=1e-9)
        for each in (ours, theirs):
            each.tell(actions[row], noise)


def test_problems_spend_the_budgets_of_the_paper():
    assert Problem("abrupt", 6000, 0).budget == pytest.approx(4.0 + 2.0**0.5)
    assert Problem("slow", 6000, 0).budget == pytest.approx(np.pi / 2.0, rel=1e-3)
    assert 1.0 - 1.0 / Problem("abrupt", 6000, 0).window == pytest.approx(0.99412, abs=1e-5)


def test_time_as_a_column_finds_the_best_arm_again_after_it_moved():
    arms = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1)
    player, rows = TimeColumn(arms, rounds=40, seed=0, beta=1.0), []
    for t in range(40):
        x = player.ask()
        rows.append(int(x))
        player.tell(x, float(rows[-1] == (t >= 20)) + 0.01 * t % 3)
    assert rows[12:20].count(0) > 4
    assert rows[30:].count(1) > 5


def test_windowed_ucb_plays_each_arm_and_forgets():
    arms = torch.arange(3.0, dtype=torch.float64).unsqueeze(-1)
    player, rows = WindowedUCB(arms, window=12), []
    for t in range(60):
        rows.append(int(player.ask()))
        player.tell(arms[rows[-1], None], float(rows[-1] == (t >= 30)))
    assert sorted(rows[:3]) == [0, 1, 2]
    assert rows[50:].count(1) > 5


def test_series_are_whole():
    for name in SERIES:
        (key, replay), *_ = stretches(name, 30, 1)
        assert key["series"] == name
        assert replay.play.rewards.shape == (30, len(replay.arms))
        assert bool(replay.play.rewards.isfinite().all())
