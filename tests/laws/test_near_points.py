"""Points that nearly coincide under a small λ: what is chosen is best by the dense posterior."""

import numpy as np
import pytest
import torch
from problems import rbf

from torch_kbandits import Arms, ContextualActions, algorithms

LENGTH = 0.3


def dense(S, y, Q, noise):
    """Posterior means and variances at points (q, d) by a fresh Cholesky factor of K + λI, in NumPy."""

    def k(A, B):
        return np.exp(-((A[:, None] - B[None]) ** 2).sum(-1) / (2.0 * LENGTH**2))

    factor = np.linalg.cholesky(k(S, S) + noise * np.eye(len(S)))
    z = np.linalg.solve(factor, k(S, Q))
    return z.T @ np.linalg.solve(factor, y), 1.0 - (z * z).sum(0)


@pytest.mark.parametrize(
    ("kind", "noise", "apart"),
    [
        *(("arms", noise, apart) for noise in (1e-4, 1e-8) for apart in (1e-6, 5e-8)),
        *((kind, noise, 1e-6) for kind in ("actions", "round", "context") for noise in (1e-4, 1e-8, 1e-10)),
        *((kind, 1e-9, 5e-8) for kind in ("actions", "round", "context")),
    ],
)
def test_what_is_chosen_near_points_is_best_by_the_dense_posterior(kind, noise, apart):
    draws = np.random.default_rng(1)
    base, offered = draws.random((8, 2)), draws.random((200, 2))
    S = np.vstack([base, base[:4] + np.array([apart, 0.0])] * 2)
    y = np.sin(3.0 * S.sum(-1)) + 1e-2 * draws.standard_normal(len(S))
    if kind == "context":
        offered[:, 0] = offered[0, 0]
    actions, everything = torch.from_numpy(offered), np.vstack([S, offered]) if kind == "arms" else offered
    candidates = {
        "arms": Arms(torch.from_numpy(everything)),
        "actions": ContextualActions(actions, context_dim=0),
        "round": ContextualActions(action_dim=2, context_dim=0),
        "context": ContextualActions(actions[:, 1:], context_dim=1),
    }[kind]
    bandit = algorithms.GPUCB(candidates=candidates, kernel=rbf(LENGTH), regularization=noise, beta=2.0, seed=0)
    for point, reward in zip(torch.from_numpy(S).split(1), y, strict=True):
        if kind == "context":
            bandit.tell(point[:, 1:], reward, context=point[0, :1])
        else:
            bandit.tell(point, reward)
    given = {"round": {"candidates": actions}, "context": {"context": actions[0, :1]}}.get(kind, {})
    mean, variance = dense(S, y, everything, noise)
    bounds = mean + 2.0 * np.sqrt(variance.clip(0.0))
    best = dense(S, y, S, noise)[0].max() if kind == "arms" else mean.max()  # of arms one that was played
    for found, values, most in ((bandit.recommend(**given), mean, best), (bandit.ask(**given), bounds, bounds.max())):
        row = np.abs(everything[:, -found.shape[-1] :] - found.numpy()).sum(-1).argmin()
        assert values[row] > most - 1e-5 * np.abs(mean).max()
