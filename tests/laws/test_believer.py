"""What is believed of pending points is a draw of the posterior, and the choice is the dense one given it."""

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, difference, matern, rbf
from scipy.stats import kstest

import torch_kbandits as kb
from torch_kbandits import KORS, InputError, algorithms
from torch_kbandits.acquisition import ExpectedImprovementRule, StagedRule, ThompsonRule
from torch_kbandits.bandit import RandomizedKrigingBeliever
from torch_kbandits.memory import SlidingWindow

ARMS, KERNEL, LEVEL = data(40, 2)[0], oracles.matern52(0.5), 0.04
SQUARE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
SPACES = {
    "arms": lambda: kb.Arms(ARMS),
    "box": lambda: kb.Box(SQUARE, num_restarts=2, raw_samples=16),
    "contexts": lambda: kb.ContextualActions(ARMS[:, :1], context_dim=1),
}


def make(space="arms", **words):
    given = {"candidates": SPACES[space](), "kernel": matern(0.5, 1.0), "regularization": LEVEL, "seed": 3}
    given |= {"width": kb.ConstantWidth(1.0), "batches": RandomizedKrigingBeliever()}
    return kb.Bandit(**given | words)


def reward(X):
    return torch.sin(5.0 * X[:, -2:]).sum(-1)


def believed(bandit):
    """The draws of what is pending, (k,): what a posterior that was told them has, less what was told."""
    surrogate, number = bandit._ahead_of(bandit._state).surrogate, len(bandit.history.X)
    return surrogate.observations[1].numpy()[number:]


def test_the_next_point_is_the_best_given_the_draws_and_draws_are_those_of_dense_formulas():
    bandit = make()
    bandit.tell(ARMS[:5], reward(ARMS[:5]))
    for number in range(1, 7):
        x = bandit.ask()
        told, pending = bandit.history, bandit.pending[:-1].numpy()
        draws = believed(bandit)[: number - 1]
        X, Y = np.concatenate([told.X.numpy(), pending]), np.concatenate([told.Y.numpy().ravel(), draws])
        known = oracles.exact(KERNEL, X, Y, np.full(len(X), LEVEL), ARMS.numpy())
        bounds = known.mean + np.sqrt(known.variance)
        assert bounds[int((x == ARMS).all(-1).nonzero()[0])] == pytest.approx(bounds.max(), abs=1e-9)


@pytest.mark.slow
def test_draws_are_of_one_function_of_the_posterior():
    """Standardised by their dense joint law, 300 seeds of four: Kolmogorov and Smirnov, false alarm 1e-6."""
    told, waiting, normals = ARMS[:6], ARMS[10:14], []
    X = np.concatenate([told.numpy(), waiting.numpy()])
    K = KERNEL(X, X) + LEVEL * np.eye(10)
    gain = K[6:, :6] @ np.linalg.inv(K[:6, :6])
    root = np.linalg.cholesky(K[6:, 6:] - LEVEL * np.eye(4) - gain @ K[:6, 6:])
    for seed in range(300):
        bandit = make(seed=seed)
        bandit.tell(told, reward(told))
        bandit.mark_pending(waiting)
        rest = believed(bandit) - gain @ reward(told).numpy()
        normals.append(np.linalg.solve(root, rest))
    assert kstest(np.ravel(normals), "norm").pvalue > 1e-6
    assert np.abs(np.corrcoef(np.array(normals).T) - np.eye(4)).max() < 5.0 / np.sqrt(300)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("words", [{}, {"dictionary": KORS(1.0)}, {"memory": SlidingWindow(8.0)}], ids=str)
def test_ask_maximises_acquisition_looks_change_nothing_and_saved_states_go_on(space, words, tmp_path):
    bandit = make(space, **words)
    where = {"context": torch.tensor([0.3], dtype=DOUBLE)} if space == "contexts" else {}
    for _ in range(4):
        X = bandit.ask(3, **where)
        joint = torch.cat([torch.full_like(X, 0.3), X], -1) if where else X
        bandit.tell(X, reward(joint), **where)
    bandit.ask(2, **where)
    function, looked = bandit.acquisition(**where), bandit.ask(2, remember=False, **where)
    bandit.save(tmp_path / "bandit.kb")
    again = kb.Bandit.load(tmp_path / "bandit.kb")
    X = bandit.ask(2, **where)
    assert torch.equal(X, looked)
    assert difference(X, again.ask(2, **where)) < (1e-6 if space == "box" else 1e-15)  # searches end by rounding
    offered = ARMS[:, :1] if where else ARMS
    with torch.no_grad():
        assert float(function(X[:1, None])) >= float(function(offered.unsqueeze(1)).max()) - 1e-6


def test_nothing_pending_is_as_ever_and_rewards_are_learned_at_once():
    bandit, plain = make(), make(batches=None)
    for each in (bandit, plain):
        each.tell(ARMS[:3], reward(ARMS[:3]))
    assert torch.equal(bandit.ask(), plain.ask())
    with pytest.raises(InputError, match="complete"):
        bandit.ask(q=None)
    assert algorithms.RKB(candidates=ARMS, kernel=rbf(), regularization=0.1, beta=1.0, seed=0).batches == bandit.batches
    assert make(acquisition=ExpectedImprovementRule()).ask(3).shape == (3, 2)


def test_what_has_no_one_reward_to_draw_is_refused():
    for words, message in (
        ({"acquisition": ThompsonRule()}, "ThompsonRule has no use for it"),
        ({"acquisition": StagedRule(10)}, "StagedRule has no use for it"),
        ({"objective": kb.Scalarization({"reward": "maximize", "cost": "minimize"})}, "leave out objective"),
    ):
        with pytest.raises(InputError, match=message):
            make(**words)
