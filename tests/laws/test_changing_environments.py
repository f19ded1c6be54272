"""Problems that change and problems with contexts, by hand and by plain formulas; more in ``test_environments``."""

import csv
import datetime
from pathlib import Path

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, dense, examples
from sklearn.datasets import load_digits
from torch import Tensor

from torch_kbandits import InputError, environments


class Own(environments.DynamicEnvironment):
    def __init__(self, values, arms=None, **words):
        arms = torch.zeros(2, 1, dtype=DOUBLE) + torch.arange(2)[:, None] if arms is None else arms
        super().__init__(arms, 0.0, 0, **words)
        self.values = values

    def means(self, round: int) -> Tensor:
        return self.values


def test_a_problem_of_ones_own_needs_only_means_and_may_know_its_budget_and_its_noise():
    values = torch.tensor([0.25, 1.0], dtype=DOUBLE)
    env = Own(values)
    assert env.regret(env.arms, 5).tolist() == [0.75, 0.0]
    assert env.variation_budget(5) is None
    env.mean(env.arms[:1], 0).add_(1.0)
    assert values.tolist() == [0.25, 1.0]
    knows = {"rounds": 5, "variation_budget": lambda T: 0.5 * T}
    env = Own(values, noise=lambda X, means, t: 10.0 * t + means - X[:, 0], **knows)
    assert env.variation_budget(3) == 1.5
    with pytest.raises(InputError, match="There are 5 rounds in this environment, and 6"):
        env.variation_budget(6)
    assert env.pull(env.arms, 2).tolist() == [20.25, 20.0]
    assert env.regret(env.arms, 2).tolist() == [0.75, 0.0]
    for values, words, message in (
        (torch.zeros(3, dtype=DOUBLE), {}, r"the means of round 4 must be one number an arm, \(2,\)"),
        (torch.zeros(2), {}, "means must have dtype torch.float64"),
        (torch.tensor([0.0, float("nan")], dtype=DOUBLE), {}, "the means of round 4 must be finite"),
        (None, {"arms": torch.zeros(2, 1)}, "Arms 0 and 1 are the same point"),
        (None, {"arms": torch.zeros(0, 1)}, r"arms must be \(n, d\) with n >= 1"),
    ):
        with pytest.raises(InputError, match=message):
            Own(values, **words).regret(torch.zeros(1, 1, dtype=DOUBLE), 4)


# ---------------------------------------------------------------- peaks


@given(st.integers(0, 10_000), st.integers(2, 300))
@examples(30)
def test_the_moving_peak_is_that_of_the_paper(t, num_arms):
    env, whole = environments.MovingPeak(num_arms, seed=0), environments.MovingPeak(seed=0)
    assert (whole.arms.shape, whole.rounds) == ((1000, 1), None)
    assert whole.noise_scale**2 == pytest.approx(0.01)
    assert float((whole.means(t + 1) - whole.means(t)).abs().max()) <= 1.0  # as the paper says below its formula
    x = np.linspace(-50.0, 50.0, num_arms)
    assert env.arms[:, 0].numpy() == pytest.approx(x, abs=1e-12)
    expected = np.exp(-0.05 * (x - 5.0 * np.sin(0.1 * t)) ** 2) + 0.5 * np.cos(0.2 * x) + 1.5
    assert env.means(t).numpy() == pytest.approx(expected, abs=1e-12)


def norms_of_changes(centres: np.ndarray, weights: np.ndarray, kernel: oracles.DenseKernel) -> np.ndarray:
    """‖f_{t+1} − f_t‖ of f_t = Σ_j weights[t, j] k(·, centres[j]), (T − 1,)."""
    changes = weights[1:] - weights[:-1]
    return np.sqrt(np.maximum(0.0, np.einsum("ti,ij,tj->t", changes, kernel(centres, centres), changes)))


@pytest.mark.parametrize("name", [pytest.param("moving-peak", marks=pytest.mark.slow), "seattle-weather"])
def test_budgets_of_peaks_are_norms_of_sums_of_kernels(name):
    """A peak is the kernel at its centre: f_t less the base has weight 1 there."""
    env = environments.build(name, seed=0)
    T = 80
    if name == "moving-peak":
        centres, lengthscale = 5.0 * np.sin(0.1 * np.arange(T)), np.sqrt(10.0)
    else:
        centres, lengthscale = np.array(env.temperatures[:T]), 5.0
    dense = oracles.rbf(lengthscale)
    assert env.kernel(env.arms).to_dense().detach().numpy() == pytest.approx(dense(env.arms.numpy(), env.arms.numpy()))
    norms = norms_of_changes(centres[:, None], np.eye(T), dense)
    for rounds in (1, 2, 3, T):
        assert env.variation_budget(rounds) == pytest.approx(norms[: rounds - 1].sum(), rel=1e-6, abs=1e-12)
    base = dense(env.arms.numpy(), centres[:1, None])[:, 0]
    later = dense(env.arms.numpy(), centres[-1:, None])[:, 0]
    assert (env.means(T - 1) - env.means(0)).numpy() == pytest.approx(later - base, abs=1e-12)


def test_the_weather_is_that_of_the_file():
    folder = Path(environments.__file__).parent / "data"
    assert "MIT License" in (folder / "LICENSE-seattle-weather.txt").read_text()
    rows = list(csv.DictReader((folder / "seattle_weather.csv").read_text(encoding="utf-8").splitlines()))
    env = environments.SeattleWeather(seed=0)
    assert env.dates == [row["date"] for row in rows]
    days = [datetime.date.fromisoformat(date) for date in env.dates]
    first = datetime.date(2012, 1, 1)
    assert days == [first + datetime.timedelta(i) for i in range(1461)]
    assert env.arms[:, 0].tolist() == pytest.approx(range(-5, 41))
    for t in (0, 200, 1460):
        peak = float(rows[t]["temp_max"])
        expected = np.exp(-((np.arange(-5.0, 41.0) - peak) ** 2) / 50.0)
        assert env.means(t).numpy() == pytest.approx(expected, abs=1e-12)
    narrow = environments.SeattleWeather(tolerance=2.0, seed=0)
    assert narrow.means(0).numpy() == pytest.approx(np.exp(-((np.arange(-5.0, 41.0) - 12.8) ** 2) / 8.0), abs=1e-12)


def test_what_the_page_says_of_the_weather():
    """The best arm that stays loses 0.46 a day, a random one 0.73, yesterday's maximum 0.13, from the data alone."""
    env = environments.SeattleWeather(seed=0)
    regret = np.array([env.regret(env.arms, t).numpy() for t in range(env.rounds)])
    assert regret.mean(0).min() == pytest.approx(0.46, abs=0.005)
    assert regret.mean() == pytest.approx(0.73, abs=0.005)
    yesterday = np.array([regret[t, round(env.temperatures[t - 1]) + 5] for t in range(1, env.rounds)])
    assert yesterday.mean() == pytest.approx(0.13, abs=0.005)
    assert env.norm_bound == 1.0


# ---------------------------------------------------------------- functions of an RKHS

DENSE = {"rbf": oracles.rbf(0.2), "matern-2.5": oracles.matern52(0.2)}
SEQUENCES = [
    (environments.AbruptSwitches, {"switches": 4}),
    (environments.AbruptSwitches, {"switches": [1, 9]}),
    (environments.Drift, {"variation_budget": 3.0, "horizon": 40}),
    (environments.Drift, {"variation_budget": 100.0, "horizon": 40}),
]


def trajectory(env, rounds: int) -> np.ndarray:
    return np.array([env.weights(t).tolist() for t in range(rounds)])


@pytest.mark.parametrize("kernel", ["rbf", "matern-2.5"])
@pytest.mark.parametrize(("maker", "options"), SEQUENCES)
def test_sequences_are_sums_of_kernels_with_exact_norms_and_budgets(maker, options, kernel):
    env = maker(20, 2, kernel=kernel, norm=1.7, seed=3, **options)
    dense, T = DENSE[kernel], 40
    weights, centres = trajectory(env, T), env.centres.numpy()
    assert centres.shape == (50, 2)
    K = dense(centres, centres)
    for t in range(T):
        expected = dense(env.arms.numpy(), centres) @ weights[t]
        assert env.means(t).numpy() == pytest.approx(expected, abs=1e-10)
        assert np.sqrt(weights[t] @ K @ weights[t]) == pytest.approx(1.7, rel=1e-9)
    assert env.norm_bound == 1.7
    norms = norms_of_changes(centres, weights, dense)
    for rounds in (1, 2, 11, T):
        assert env.variation_budget(rounds) == pytest.approx(norms[: rounds - 1].sum(), rel=1e-8, abs=1e-12)
    assert env.kernel(env.arms).to_dense().detach().numpy() == pytest.approx(dense(env.arms.numpy(), env.arms.numpy()))


@given(st.integers(1, 30), st.integers(0, 200))
@examples(40)
def test_functions_switch_in_the_stated_rounds(every, t):
    env = environments.AbruptSwitches(5, switches=every, seed=0)
    listed = environments.AbruptSwitches(5, switches=[every * (i + 1) for i in range(300 // every)], seed=0)
    assert torch.equal(env.means(t), env.means(t - t % every))
    assert torch.equal(env.means(t), listed.means(t))
    assert not torch.equal(env.means(t), env.means(t + every))


@given(st.floats(0.01, 400.0), st.integers(2, 120), st.floats(1.8, 5.0))
@examples(40)
def test_a_drift_spends_its_budget_at_constant_speed(budget, horizon, norm):
    options = {"variation_budget": budget, "horizon": horizon, "norm": norm, "seed": 2}
    if budget / (horizon - 1) > 2.0 * norm:
        with pytest.raises(InputError, match="give a smaller one, a longer horizon or a larger norm"):
            environments.Drift(4, **options)
        return
    env = environments.Drift(4, **options)
    assert env.variation_budget(horizon) == pytest.approx(budget, rel=1e-6)
    assert env.variation_budget(2 * horizon - 1) == pytest.approx(2.0 * budget, rel=1e-6)
    norms = norms_of_changes(env.centres.numpy(), trajectory(env, horizon + 5), DENSE["rbf"])
    assert norms == pytest.approx(np.full(horizon + 4, budget / (horizon - 1)), rel=1e-5)


def test_a_drift_leaves_and_does_not_come_back():
    """Along a quarter of a circle to an unrelated function, then on to others: none of them is the first one's kin."""
    env = environments.Drift(5, variation_budget=2.0 * 40 * np.pi / 2.0, horizon=4001, norm=2.0, seed=0)
    weights = trajectory(env, 4001)
    K = DENSE["rbf"](env.centres.numpy(), env.centres.numpy())
    cosines = weights @ K @ weights[0] / 4.0
    assert cosines[0] == pytest.approx(1.0)
    assert np.all(np.diff(cosines[:99]) < 0.0)
    assert abs(cosines[100]) < 0.05
    assert np.abs(cosines[200:]).max() < 0.99
    straight = np.sqrt((weights[50] - weights[0]) @ K @ (weights[50] - weights[0]))
    assert straight == pytest.approx(2.0 * 2.0 * np.sin(np.pi / 8.0), rel=0.01)


# ---------------------------------------------------------------- contexts

#: The actions of the authors' code, whose problem is that of the seed 123.
ANCHORS = [0.08, 0.7, 0.82, 0.28, 0.63, 0.0, 0.05, 0.5, 0.81, 0.04]


def test_the_problem_of_the_authors_is_the_default():
    """Numbers printed by the authors' code; contexts and noise alone vary with the seed."""
    for maker in (environments.bump, environments.chessboard, environments.step_diagonal):
        assert maker(seed=0).actions.flatten().tolist() == pytest.approx(ANCHORS, abs=1e-12)
        assert torch.equal(maker(seed=0).actions, maker(seed=1).actions)
    context = np.array(
        [0.6369616873214543, 0.2697867137638703, 0.04097352393619469, 0.016527635528529094, 0.8132702392]
    )
    x_star = np.array([0.10854229568516027, 0.5116547174153498, 0.909769397634143, 0.2183760135542644, 0.363104067185])
    w_star = np.array([0.7099456316481529, 0.42278360362943346, -0.21411117846382477, -0.53739703737, -0.23965057137])
    rows = np.column_stack([np.tile(context, (10, 1)), ANCHORS])
    expected = np.maximum(0.0, 1.0 - np.abs(rows[:, 5] - 0.81) - (rows[:, :5] - x_star) @ w_star)
    assert expected.max() > 0.3
    assert environments.bump(seed=0).mean(torch.tensor(rows)).numpy() == pytest.approx(expected, abs=1e-10)


@given(st.integers(0, 10_000))
@examples(25)
def test_bump_is_best_at_one_action_and_bends_at_zero(number):
    env = environments.bump(problem_seed=7, seed=number)
    means = env.mean(env.joint_points(env.actions, number))
    best = env.function.args[0]
    assert best in env.actions
    assert float(env.best_mean(number)) == float(means[env.actions.flatten() == best])
    assert float(means.min()) >= 0.0
    level = float(means.max())
    if level > 0.0:
        expected = np.maximum(0.0, level - np.abs(env.actions.numpy()[:, 0] - best))
        assert means.numpy() == pytest.approx(expected, abs=1e-12)


def test_chessboard_by_hand():
    board = [[0.0, 0.5, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]]
    env = environments.chessboard(seed=0)
    for i in range(4):
        for j in range(4):
            inside = [[0.25 * i + 0.1, 0.25 * j + 0.2], [0.25 * i, 0.25 * j], [0.25 * i + 0.2499, 0.25 * j]]
            assert env.mean(torch.tensor(inside, dtype=DOUBLE)).tolist() == [board[i][j]] * 3
    assert env.mean(torch.tensor([[0.6, 1.0], [1.0, 0.6], [1.0, 1.0]], dtype=DOUBLE)).tolist() == [0.5, 1.0, 0.0]


def test_step_diagonal_by_hand():
    env = environments.step_diagonal(seed=0)
    #  x − a:  0.15   0.06   0.24   0.04   0.26   0     −0.15  −0.06  −0.24  −0.04  −0.26
    gaps = [0.15, 0.06, 0.24, 0.04, 0.26, 0.0, -0.15, -0.06, -0.24, -0.04, -0.26]
    expected = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0]
    for action in (0.3, 0.5, 0.7):
        X = torch.tensor([[action + gap, action] for gap in gaps], dtype=DOUBLE)
        assert env.mean(X).tolist() == expected


def test_the_kernel_is_gaussian_on_joint_points():
    for name, lengthscale in (("bump", 1.0), ("chessboard", 0.1), ("step-diagonal", 0.1), ("bump", 0.3)):
        env = environments.build(name, lengthscale=lengthscale, seed=0)
        X = env.joint_points(env.actions, 0)
        expected = oracles.rbf(lengthscale)(*dense(X, X))
        assert env.kernel(X).to_dense().detach().numpy() == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- classification


def test_every_image_comes_once_in_an_epoch_in_a_new_order():
    env = environments.digits(seed=0)
    epochs = [[env.example(number) for number in range(1797 * e, 1797 * (e + 1))] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1797))
    assert epochs[0] != epochs[1]
    assert env.example(5) == epochs[0][5]
    other = environments.digits(seed=1)
    assert epochs[0] != [other.example(number) for number in range(1797)]


def test_the_right_label_alone_is_rewarded():
    target = load_digits().target
    env = environments.digits(seed=4)
    for number in (0, 3, 1796, 1797, 5000):
        rewards = env.pull(env.joint_points(env.actions, number), number)
        assert rewards.tolist() == [float(target[env.example(number)] == label) for label in range(10)]
    assert env.best_mean(7) == 1.0


def test_contexts_are_scaled_principal_components():
    pixels = load_digits().data
    contexts = environments.digits(8, seed=0).contexts.numpy()
    assert contexts.mean(0) == pytest.approx(np.zeros(8), abs=1e-12)
    assert np.cov(contexts.T, bias=True) == pytest.approx(np.eye(8), abs=1e-10)
    values, vectors = np.linalg.eigh(np.cov(pixels.T, bias=True))
    for i in range(8):
        vector = vectors[:, -1 - i]
        vector = vector * np.sign(vector[np.abs(vector).argmax()])
        expected = (pixels - pixels.mean(0)) @ vector / np.sqrt(values[-1 - i])
        assert contexts[:, i] == pytest.approx(expected, abs=1e-8)
    assert environments.digits(61, seed=0).context_dim == 61


def test_labels_learn_alone():
    env = environments.digits(3, lengthscale=2.0, seed=0)
    X = torch.cat([env.joint_points(env.actions[:3], number) for number in range(4)])
    contexts, labels = dense(X[:, :3], X[:, 3:])
    expected = oracles.rbf(2.0)(contexts, contexts) * (labels @ labels.T)
    assert env.kernel(X).to_dense().detach().numpy() == pytest.approx(expected, abs=1e-12)
    assert env.regularization == env.noise_scale**2 == 0.25


def test_classification_of_your_own():
    contexts = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float32)
    env = environments.Classification(contexts, torch.tensor([2, 0, 2]), 3, seed=0, center=0.5)
    rewards = {float(env.context(n)): env.pull(env.joint_points(env.actions, n), n).tolist() for n in range(30)}
    assert rewards == {0.0: [0.0, 0.0, 1.0], 1.0: [1.0, 0.0, 0.0], 2.0: [0.0, 0.0, 1.0]}
    assert env.actions.dtype == torch.float32


def test_bad_functions_and_examples_are_named():
    labels, words = torch.zeros(3).long(), {"contexts": torch.rand(3, 1), "num_labels": 2, "seed": 0}
    for changes, message in (
        ({"labels": torch.zeros(2).long()}, "one for each of 3 contexts"),
        ({"labels": torch.zeros(3)}, "labels must be one or more whole numbers"),
        ({"labels": torch.tensor([0, 1, 2])}, "labels must be in 0, …, 1, got 0 to 2"),
    ):
        with pytest.raises(InputError, match=message):
            environments.Classification(**words | {"labels": labels} | changes)
    words = {"function": torch.sum, "context_dim": 1, "actions": torch.rand(3, 1), "noise_scale": 0.1, "seed": 0}
    for changes, message in (({"actions": torch.rand(0, 1)}, "n >= 1"),):
        with pytest.raises(InputError, match=message):
            environments.ContextualFunction(**words | changes)
