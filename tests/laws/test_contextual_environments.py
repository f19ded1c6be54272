"""Contexts and noise have addresses; regret is against the best action of the context and consumes no randomness."""

import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import DOUBLE, dense, examples, seeded
from sklearn.datasets import load_digits
from torch import Tensor

from torch_kbandits import InputError
from torch_kbandits.environments import (
    Classification,
    ContextualEnvironment,
    ContextualFunction,
    build,
    bump,
    chessboard,
    digits,
    step_diagonal,
)

#: The actions of the authors' code, whose problem is that of the seed 123.
ANCHORS = [0.08, 0.7, 0.82, 0.28, 0.63, 0.0, 0.05, 0.5, 0.81, 0.04]


class Changing(ContextualEnvironment):
    """Two to five actions, other ones in each round; the reward is the product of context and action."""

    context_dim = 1

    def context(self, round: int) -> Tensor:
        return torch.rand(1, generator=seeded(self.seed, round), dtype=DOUBLE)

    def candidates(self, round: int) -> Tensor:
        return torch.rand(2 + round % 4, 1, generator=seeded(self.seed, round), dtype=DOUBLE)

    def mean(self, X: Tensor, round: int) -> Tensor:
        return X.prod(1)


def make(name: str, seed: int) -> ContextualEnvironment:
    return Changing(0.1, seed) if name == "changing" else build(name, seed=seed)


PROBLEMS = ["bump", "chessboard", "step-diagonal", "digits", "changing"]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", PROBLEMS)
def test_regret_is_the_distance_to_the_best_available_action(name):
    env = make(name, 0)
    for number in range(50):
        actions = env.available(number)
        X = env.joint_points(actions, number)
        assert X.shape == (len(actions), env.context_dim + actions.shape[1])
        assert torch.equal(X[:, : env.context_dim], env.context(number).expand(len(actions), -1))
        means = np.array([float(env.mean(row[None], number)) for row in X])
        regret = env.regret(X, number)
        assert regret.numpy() == pytest.approx(means.max() - means, abs=1e-14)
        assert float(regret.min()) == 0.0
        assert float(env.regret(X[int(regret.argmin())][None], number)) == 0.0
        assert env.best_mean(number).dim() == 0
        assert float(env.best_mean(number)) == pytest.approx(means.max(), abs=1e-14)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROBLEMS)
def test_contexts_and_noise_have_addresses(name):
    """Looking, measuring and pulling in any order change nothing, and consume nothing of torch's generator."""
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    env, twin, other = make(name, 1), make(name, 1), make(name, 2)
    forward = [env.context(number) for number in range(40)]
    for number in reversed(range(40)):
        assert torch.equal(twin.context(number), forward[number])
        X = env.joint_points(env.available(number)[:2], number)
        env.regret(X, number)
        env.pull(X[:1], number)
        assert torch.equal(env.pull(X, number), twin.pull(X, number))
    assert len({tuple(context.tolist()) for context in forward}) == 40
    assert not torch.equal(torch.stack(forward), torch.stack([other.context(number) for number in range(40)]))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["bump", "chessboard", "step-diagonal", "changing"])
def test_noise_has_the_stated_scale_and_differs_from_round_to_round(name):
    """500 rounds: the mean within 4.5 σ/√n and the deviation within 4.5 σ/√2n; false alarms below 2e-5 each."""
    env = make(name, 3)
    noise = []
    for number in range(500):
        X = env.joint_points(env.available(number)[:1], number)
        noise.append(float(env.pull(X, number) - env.mean(X, number)))
    assert abs(np.mean(noise)) < 4.5 * 0.1 / np.sqrt(500)
    assert abs(np.std(noise) - 0.1) < 4.5 * 0.1 / np.sqrt(1000)


def test_what_a_row_plays_is_found_by_value():
    env = Changing(0.1, 0)
    actions = env.available(2)
    X = env.joint_points(actions, 2)
    assert env.positions(X.flip(0), 2).tolist() == list(reversed(range(len(actions))))
    assert env.regret(X[:0], 2).shape == (0,)


# ---------------------------------------------------------------- the authors' three problems


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
    """All sixteen cells, their lower edges and the far corner; the first row of this board is context in [0, 1/4)."""
    board = [[0.0, 0.5, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 0.5], [0.0, 0.0, 1.0, 0.0]]
    env = chessboard(seed=0)
    for i in range(4):
        for j in range(4):
            inside = [[0.25 * i + 0.1, 0.25 * j + 0.2], [0.25 * i, 0.25 * j], [0.25 * i + 0.2499, 0.25 * j]]
            assert env.mean(torch.tensor(inside, dtype=DOUBLE)).tolist() == [board[i][j]] * 3
    assert env.mean(torch.tensor([[0.6, 1.0], [1.0, 0.6], [1.0, 1.0]], dtype=DOUBLE)).tolist() == [0.5, 1.0, 0.0]


def test_the_best_of_the_chessboard_depends_on_the_context_and_on_what_is_there():
    env = chessboard(seed=0)
    best = {0: set(), 1: set(), 2: set(), 3: set()}
    for number in range(200):
        best[int(4 * env.context(number))].add(float(env.best_mean(number)))
    assert best == {0: {0.5}, 1: {1.0}, 2: {0.5}, 3: {1.0}}
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
    """Against the eigenvectors of the pixels' covariance; signs are made positive at the largest loading."""
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


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bump", {"num_actions": 0}, "num_actions must be a whole number"),
        ("bump", {"num_actions": 101}, "num_actions must be at most 100"),
        ("bump", {"lengthscale": 0.0}, "lengthscale must be a finite number above 0"),
        ("bump", {"noise_scale": -0.1}, "noise_scale must be a finite number of at least 0"),
        ("chessboard", {"noise_scale": "much"}, "noise_scale must be a number"),
        ("chessboard", {"problem_seed": 1.5}, "problem_seed must be a whole number"),
        ("step-diagonal", {"problem_seed": -1}, r"problem_seed must be in \[0, 2\^32\)"),
        ("step-diagonal", {"problemseed": 3}, "did you mean 'problem_seed'"),
        ("digits", {"num_components": 62}, "num_components must be at most 61"),
        ("digits", {"num_components": 0}, "num_components must be a whole number"),
        ("digits", {"lengthscale": float("nan")}, "lengthscale"),
    ],
)
def test_bad_specs_are_named(name, options, message):
    with pytest.raises(InputError, match=message):
        build(name, seed=0, **options)


@pytest.mark.parametrize("call", ["pull", "regret"])
def test_what_cannot_be_played_is_named(call):
    env = chessboard(seed=0)
    play = getattr(env, call)
    X = env.joint_points(env.actions[:2], 3)
    with pytest.raises(InputError, match=r"Row\(s\) \[0, 1\] of X do not begin with the context of round 4"):
        play(X, 4)
    with pytest.raises(InputError, match=r"Row\(s\) \[1\] of X play no action that is available in round 3"):
        play(X + torch.tensor([[0.0, 0.0], [0.0, 1e-9]], dtype=DOUBLE), 3)
    with pytest.raises(InputError, match="d = 2 columns"):
        play(torch.rand(1, 3, dtype=DOUBLE), 3)
    with pytest.raises(InputError, match=r"shape \(q, 2\)"):
        play(X[None], 3)
    with pytest.raises(InputError, match=r"dtype torch.float64"):
        play(X.float(), 3)


def test_an_environment_without_actions_says_what_to_do():
    class Empty(Changing):
        def candidates(self, round):
            return None

    with pytest.raises(InputError, match="Empty has no actions in round 0: set its attribute actions"):
        Empty(0.1, 0).best_mean(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"function": 3}, "function must be callable"),
        ({"context_dim": 0}, "context_dim must be a whole number"),
        ({"actions": torch.rand(3)}, "actions must have a row for each point"),
        ({"actions": torch.rand(0, 1)}, "A >= 1"),
        ({"kernel": "rbf"}, "kernel must be a GPyTorch kernel"),
        ({"center": float("inf")}, "center must be a finite number"),
    ],
)
def test_bad_functions_are_named(changes, message):
    words = {"function": torch.sum, "context_dim": 1, "actions": torch.rand(3, 1), "noise_scale": 0.1, "seed": 0}
    with pytest.raises(InputError, match=message):
        ContextualFunction(**(words | changes))


@pytest.mark.parametrize(
    ("contexts", "labels", "number", "message"),
    [
        (torch.rand(3), torch.zeros(3).long(), 2, "contexts must have a row"),
        (torch.rand(3, 1), torch.zeros(2).long(), 2, r"labels \(n,\)"),
        (torch.rand(3, 1), torch.zeros(3), 2, "labels must be one or more whole numbers"),
        (torch.rand(3, 1), torch.tensor([0, 1, 2]), 2, "labels must be in 0, …, 1, got 0 to 2"),
        (torch.rand(3, 1), torch.zeros(3).long(), 1, "num_labels must be at least 2"),
        (torch.full((1, 1), float("nan")), torch.zeros(1).long(), 2, "contexts must be finite"),
    ],
)
def test_bad_examples_are_named(contexts, labels, number, message):
    with pytest.raises(InputError, match=message):
        Classification(contexts, labels, number, seed=0)
