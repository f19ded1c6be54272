"""Problems with contexts, by hand and by dense formulas; what all have is in ``test_environments``."""

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, dense, examples
from sklearn.datasets import load_digits

from torch_kbandits import InputError
from torch_kbandits.environments import Classification, ContextualFunction, bump, chessboard, digits, step_diagonal

#: The actions of the authors' code, whose problem is that of the seed 123.
ANCHORS = [0.08, 0.7, 0.82, 0.28, 0.63, 0.0, 0.05, 0.5, 0.81, 0.04]


def test_the_problem_of_the_authors_is_the_default():
    """Numbers printed by the authors' code; contexts and noise alone vary with the seed."""
    for maker in (bump, chessboard, step_diagonal):
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
    assert bump(seed=0).mean(torch.tensor(rows)).numpy() == pytest.approx(expected, abs=1e-10)


@given(st.integers(0, 10_000))
@examples(25)
def test_bump_is_best_at_one_action_and_bends_at_zero(number):
    env = bump(problem_seed=7, seed=number)
    means = env.mean(env.joint_points(env.actions, number))
    best = env.function.action
    assert best in env.actions
    assert float(env.best_mean(number)) == float(means[env.actions.flatten() == best])
    assert float(means.min()) >= 0.0
    level = float(means.max())
    if level > 0.0:
        expected = np.maximum(0.0, level - np.abs(env.actions.numpy()[:, 0] - best))
        assert means.numpy() == pytest.approx(expected, abs=1e-12)


def test_chessboard_by_hand():
    board = [[0.0, 0.5, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]]
    env = chessboard(seed=0)
    for i in range(4):
        for j in range(4):
            inside = [[0.25 * i + 0.1, 0.25 * j + 0.2], [0.25 * i, 0.25 * j], [0.25 * i + 0.2499, 0.25 * j]]
            assert env.mean(torch.tensor(inside, dtype=DOUBLE)).tolist() == [board[i][j]] * 3
    assert env.mean(torch.tensor([[0.6, 1.0], [1.0, 0.6], [1.0, 1.0]], dtype=DOUBLE)).tolist() == [0.5, 1.0, 0.0]


def test_the_best_of_the_chessboard_depends_on_the_context_and_on_what_is_there():
    env = chessboard(seed=0)
    best = {(int(4 * env.context(number)), float(env.best_mean(number))) for number in range(200)}
    assert best == {(0, 0.5), (1, 1.0), (2, 0.5), (3, 1.0)}
    lonely = ContextualFunction(env.function, 1, torch.tensor([[0.9]], dtype=DOUBLE), 0.1, seed=0)
    assert {float(lonely.best_mean(number)) for number in range(200)} == {0.0, 0.5}
    assert {float(lonely.regret(lonely.joint_points(lonely.actions, n), n)) for n in range(200)} == {0.0}


def test_step_diagonal_by_hand():
    env = step_diagonal(seed=0)
    #  x − a:  0.15   0.06   0.24   0.04   0.26   0     −0.15  −0.06  −0.24  −0.04  −0.26
    gaps = [0.15, 0.06, 0.24, 0.04, 0.26, 0.0, -0.15, -0.06, -0.24, -0.04, -0.26]
    expected = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.0, 0.0]
    for action in (0.3, 0.5, 0.7):
        X = torch.tensor([[action + gap, action] for gap in gaps], dtype=DOUBLE)
        assert env.mean(X).tolist() == expected
    # At a = 0.08 alone, contexts near 0.9 pay nothing and regret is 0 there.
    lonely = ContextualFunction(env.function, 1, torch.tensor([[0.08]], dtype=DOUBLE), 0.1, seed=0)
    assert {float(lonely.best_mean(number)) for number in range(300)} == {0.0, 0.5, 1.0}


def test_a_problem_may_follow_the_seed():
    one, same, other = (bump(problem_seed=None, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.actions, same.actions)
    assert not torch.equal(one.actions, other.actions)
    assert not torch.equal(one.function.weights, other.function.weights)
    assert len(one.actions.unique()) == 10
    assert bump(problem_seed=None, seed=-3).actions.shape == (10, 1)
    assert bump(num_actions=100, seed=0).actions.unique().tolist() == pytest.approx(np.arange(0, 1, 0.01))


@pytest.mark.parametrize(("maker", "lengthscale"), [(bump, 1.0), (chessboard, 0.1), (step_diagonal, 0.1), (bump, 0.3)])
def test_the_kernel_is_gaussian_on_joint_points(maker, lengthscale):
    env = maker(lengthscale=lengthscale, seed=0)
    X = env.joint_points(env.actions, 0)
    expected = oracles.rbf(lengthscale)(*dense(X, X))
    assert env.kernel(X).to_dense().detach().numpy() == pytest.approx(expected, abs=1e-12)
    assert env.regularization == pytest.approx(0.01)
    assert maker(noise_scale=0.0, seed=0).regularization is None


# ---------------------------------------------------------------- classification


def test_every_image_comes_once_in_an_epoch_in_a_new_order():
    env = digits(seed=0)
    epochs = [[env.example(number) for number in range(1797 * e, 1797 * (e + 1))] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1797))
    assert epochs[0] != epochs[1]
    assert env.example(5) == epochs[0][5]
    other = digits(seed=1)
    assert epochs[0] != [other.example(number) for number in range(1797)]


def test_the_right_label_alone_is_rewarded():
    target = load_digits().target
    env = digits(seed=4)
    for number in (0, 3, 1796, 1797, 5000):
        rewards = env.pull(env.joint_points(env.actions, number), number)
        assert rewards.tolist() == [float(target[env.example(number)] == label) for label in range(10)]
    assert env.best_mean(7) == 1.0


def test_contexts_are_scaled_principal_components():
    pixels = load_digits().data
    contexts = digits(8, seed=0).contexts.numpy()
    assert contexts.mean(0) == pytest.approx(np.zeros(8), abs=1e-12)
    assert np.cov(contexts.T, bias=True) == pytest.approx(np.eye(8), abs=1e-10)
    values, vectors = np.linalg.eigh(np.cov(pixels.T, bias=True))
    for i in range(8):
        vector = vectors[:, -1 - i]
        vector = vector * np.sign(vector[np.abs(vector).argmax()])
        expected = (pixels - pixels.mean(0)) @ vector / np.sqrt(values[-1 - i])
        assert contexts[:, i] == pytest.approx(expected, abs=1e-8)
    assert digits(61, seed=0).context_dim == 61


def test_labels_learn_alone():
    env = digits(3, lengthscale=2.0, seed=0)
    X = torch.cat([env.joint_points(env.actions[:3], number) for number in range(4)])
    contexts, labels = dense(X[:, :3], X[:, 3:])
    expected = oracles.rbf(2.0)(contexts, contexts) * (labels @ labels.T)
    assert env.kernel(X).to_dense().detach().numpy() == pytest.approx(expected, abs=1e-12)
    assert env.regularization == env.noise_scale**2 == 0.25


def test_classification_of_your_own():
    contexts = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float32)
    env = Classification(contexts, torch.tensor([2, 0, 2]), 3, seed=0, center=0.5)
    rewards = {float(env.context(n)): env.pull(env.joint_points(env.actions, n), n).tolist() for n in range(30)}
    assert rewards == {0.0: [0.0, 0.0, 1.0], 1.0: [1.0, 0.0, 0.0], 2.0: [0.0, 0.0, 1.0]}
    assert env.actions.dtype == torch.float32


EXAMPLES = {"contexts": torch.rand(3, 1), "labels": torch.zeros(3).long(), "num_labels": 2}
FUNCTION = {"function": torch.sum, "context_dim": 1, "actions": torch.rand(3, 1), "noise_scale": 0.1}


def test_bad_functions_and_examples_are_named():
    for changes, message in (
        ({"function": 3}, "function must be callable"),
        ({"context_dim": 0}, "context_dim must be a whole number"),
        ({"actions": torch.rand(0, 1)}, "A >= 1"),
        ({"labels": torch.zeros(2).long()}, r"labels \(n,\)"),
        ({"labels": torch.zeros(3)}, "labels must be one or more whole numbers"),
        ({"labels": torch.tensor([0, 1, 2])}, "labels must be in 0, …, 1, got 0 to 2"),
        ({"num_labels": 1}, "num_labels must be at least 2"),
    ):
        kind, words = (Classification, EXAMPLES) if EXAMPLES.keys() & changes.keys() else (ContextualFunction, FUNCTION)
        with pytest.raises(InputError, match=message):
            kind(**words | changes, seed=0)
