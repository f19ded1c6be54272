"""LinUCB equals the ridge regressions of Li et al. in their primal form; its dictionary spans and stops growing."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel
from problems import DOUBLE, believed, difference

from torch_kbandits import InputError, algorithms
from torch_kbandits.candidates import ContextualActions
from torch_kbandits.kernels import PerActionLinearKernel


class PrimalLinUCB:
    """A_a = λI + Σ x xᵀ and b_a = Σ y x for each action, x with a leading 1."""

    def __init__(self, num_actions, context_dim, ridge):
        self.A = np.tile(ridge * np.eye(context_dim + 1), (num_actions, 1, 1))
        self.b = np.zeros((num_actions, context_dim + 1))

    def marginals(self, context):
        """θ_aᵀx and √(xᵀA_a⁻¹x) of each action."""
        x = np.concatenate([[1.0], context])
        mean = np.array([x @ np.linalg.solve(A, b) for A, b in zip(self.A, self.b, strict=True)])
        return mean, np.sqrt(np.array([x @ np.linalg.solve(A, x) for A in self.A]))

    def tell(self, action, context, y):
        x = np.concatenate([[1.0], context])
        self.A[action] += np.outer(x, x)
        self.b[action] += y * x


def contexts(number, context_dim, seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(number, context_dim, generator=generator, dtype=DOUBLE)


def at(bandit, context, actions):
    """The means and deviations of the actions in a context."""
    mean, variance = believed(bandit, torch.cat([context.expand(len(actions), -1), actions], -1))
    return mean, variance.sqrt()


@pytest.mark.parametrize("one_hot", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("ridge", [pytest.param(1.0, marks=pytest.mark.slow), 0.01])
@pytest.mark.parametrize("num_rounds", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_rounds_are_the_primal_formulas(num_rounds, one_hot, ridge):
    """Means and √λ √(xᵀA⁻¹x) to 1e-8, the same choices, and as many points as features."""
    num_actions, context_dim, beta = 4, 5, 0.7
    actions = torch.eye(num_actions, dtype=DOUBLE) if one_hot else torch.arange(4.0, dtype=DOUBLE).unsqueeze(-1)
    bandit = algorithms.LinUCB(candidates=actions, context_dim=context_dim, regularization=ridge, beta=beta, seed=0)
    primal = PrimalLinUCB(num_actions, context_dim, ridge)
    generator = torch.Generator().manual_seed(1)
    coefficients = torch.randn(num_actions, context_dim, generator=generator, dtype=DOUBLE)
    worst = 0.0
    drawn = contexts(num_rounds, context_dim, 2)
    drawn[5::4] = drawn[4:-1:4] * (1.0 + 1e-9)  # repeated, nearly collinear
    drawn[6::4] = drawn[2:-4:4]
    for context in drawn:
        mean, norm = primal.marginals(context.numpy())
        means, deviations = at(bandit, context, actions)
        worst = max(worst, difference(means, mean), difference(deviations, math.sqrt(ridge) * norm))
        action = bandit.ask(context=context)
        scores = mean + beta * math.sqrt(ridge) * norm
        row = int((actions == action).all(-1).nonzero())
        assert scores[row] >= scores.max() - 1e-7
        y = coefficients[row] @ context + 0.1 * torch.randn((), generator=generator, dtype=DOUBLE)
        bandit.tell(action, float(y), context=context)
        primal.tell(row, context.numpy(), float(y))
    assert worst < 1e-8
    assert len(bandit.inducing_points) <= num_actions * (context_dim + 1)


def test_the_kernel_of_a_model_for_each_action():
    kernel, action = PerActionLinearKernel(2), torch.arange(7.0, dtype=DOUBLE).remainder(3).unsqueeze(-1)
    X, Z = (torch.cat([contexts(7, 2, seed), action], -1) for seed in (0, 1))
    expected = (1.0 + X[:, :2] @ Z[:, :2].T) * (action == action.T)
    assert difference(kernel(X, Z).to_dense(), expected) < 1e-14
    assert difference(kernel(X, diag=True), 1.0 + X[:, :2].square().sum(-1)) < 1e-14
    with pytest.raises(InputError, match="context_dim"):
        PerActionLinearKernel(-1)


def test_its_width_is_the_papers_and_bad_input():
    bandit = algorithms.LinUCB(candidates=torch.eye(2, dtype=DOUBLE), context_dim=3, failure_probability=0.05, seed=0)
    assert float(bandit.beta) == pytest.approx(1.0 + math.sqrt(math.log(2.0 / 0.05) / 2.0))
    bounds = torch.tensor([[0.0], [1.0]], dtype=DOUBLE)
    for words, message in (
        ({"bounds": bounds}, "a model for each action"),
        ({"candidates": ContextualActions(bounds=bounds, context_dim=1)}, "a model for each action"),
    ):
        with pytest.raises(InputError, match=message):
            algorithms.LinUCB(**words, seed=0)
    one = algorithms.LinUCB(bounds=bounds, context_dim=1, features=LinearKernel().double(), seed=0)
    assert one.ask(context=bounds[1]).shape == (1, 1)


def features(context, action, interactions):
    """1, context and action, and their products."""
    products = np.outer(context, action).ravel() if interactions else []
    return np.concatenate([[1.0], context, action, products])


@pytest.mark.parametrize("interactions", [True, False])
def test_one_model_for_all_actions_is_a_ridge_regression_on_their_features(interactions):
    """Means and √λ √(φᵀA⁻¹φ) to 1e-9, the highest bound is played, and a new action is known by what others showed."""
    generator, ridge, beta = torch.Generator().manual_seed(3), 0.5, 0.8
    actions = torch.randn(6, 2, generator=generator, dtype=DOUBLE)
    words = {"regularization": ridge, "beta": beta, "interactions": interactions, "seed": 0}
    bandit = algorithms.SharedLinUCB(candidates=actions, context_dim=3, **words)
    size = len(features(np.zeros(3), np.zeros(2), interactions))
    A, b = ridge * np.eye(size), np.zeros(size)
    for context in contexts(40, 3, 4):
        phi = np.stack([features(context.numpy(), action, interactions) for action in actions.numpy()])
        mean, norm = phi @ np.linalg.solve(A, b), np.sqrt((phi * np.linalg.solve(A, phi.T).T).sum(-1))
        means, deviations = at(bandit, context, actions)
        assert max(difference(means, mean), difference(deviations, math.sqrt(ridge) * norm)) < 1e-9
        action = bandit.ask(context=context)
        row = int((actions == action).all(-1).nonzero())
        scores = mean + beta * math.sqrt(ridge) * norm
        assert scores[row] >= scores.max() - 1e-8
        y = float(context.sum() * action.sum())
        bandit.tell(action, y, context=context)
        A, b = A + np.outer(phi[row], phi[row]), b + y * phi[row]
    assert len(bandit.inducing_points) <= size
    alone = algorithms.SharedLinUCB(candidates=actions, **words)
    assert difference(at(alone, actions[0, :0], actions)[1], (1.0 + actions.square().sum(-1)).sqrt()) < 1e-12
