"""Contextual bandits to try laws on, and a dense picture of what each of them should believe and choose."""

import torch
from problems import DOUBLE, data, rbf
from torch import Tensor

from torch_kbandits import ContextualActions, algorithms

LAMBDA = 0.1
BETA = 1.5
ACTIONS = data(7, 2, seed=11)[0]
CONTEXTS = data(400, 2, seed=12)[0]
BOUNDS = torch.tensor([[0.0, -0.5], [1.0, 0.5]], dtype=DOUBLE)


def make(name, candidates=None, **settings):
    """A bandit on seven actions of two columns beside contexts of two columns, or on other candidates."""
    words = {"kernel": rbf(0.6), "regularization": LAMBDA, "seed": 0, "beta": BETA}
    if name == "gp-ei":
        del words["beta"]
    if name == "ek-ucb":
        words["oversampling"] = 0.5
    candidates = ContextualActions(ACTIONS, context_dim=2) if candidates is None else candidates
    return algorithms.build(name, candidates=candidates, **(words | settings))


def box(context_dim=2):
    return ContextualActions(bounds=BOUNDS, context_dim=context_dim, num_restarts=3, raw_samples=32)


def changing(context_dim=2):
    return ContextualActions(action_dim=2, context_dim=context_dim)


def joint(context: Tensor, actions: Tensor) -> Tensor:
    return torch.cat([context.expand(len(actions), -1), actions], dim=-1)


def reward(X: Tensor) -> Tensor:
    """A wave in context and action, (q,), at joint points (q, 4)."""
    return torch.sin(4.0 * X[:, :-1] - 3.0 * X[:, 1:]).sum(-1)


def play(bandit, rounds, first=0, actions_of=None):
    """Ask and tell in the contexts from ``first`` on; return the joint points."""
    asked = []
    for number in range(first, first + rounds):
        context = CONTEXTS[number]
        offered = {} if actions_of is None else {"candidates": actions_of(number)}
        action = bandit.ask(context=context, **offered)
        asked.append(joint(context, action))
        bandit.tell(action, reward(asked[-1]), context=context)
    return torch.cat(asked)
