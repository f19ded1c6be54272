"""Arms to cut into shards, and rounds in which several bandits must choose the same of them."""

import torch
from problems import data, matern, reward

from torch_kbandits import algorithms

LAMBDA = 0.02

#: Where 160 arms are cut: shards of very different sizes.
CUTS = {1: None, 2: [23], 3: [7, 90], 7: [1, 3, 40, 41, 99, 150]}


def make(candidates, name="bkb", **settings):
    words = {"kernel": matern(0.4), "regularization": LAMBDA, "seed": 0}
    if name not in ("gp-ei", "gp-pi", "random") and "prior" not in settings:
        words["beta"] = 2.0
    return algorithms.build(name, candidates=candidates, **(words | settings))


def some_arms(count=160, d=2):
    """Arms of which the last third repeats others, in other shards."""
    arms = data(count - count // 3, d)[0]
    return torch.cat([arms, arms[torch.randperm(len(arms))[: count // 3]]])


def noisy(X, number):
    return reward(X) + 0.2 * torch.randn(len(X), generator=torch.Generator().manual_seed(number), dtype=X.dtype)


def rounds(bandits, count, first=0):
    """Play with several bandits at once: single points, batches, late and lost ones, strangers, rewards in pairs."""
    for number in range(first, first + count):
        asked = [bandit.ask(1 + number % 3) for bandit in bandits]
        for bandit, X in zip(bandits, asked, strict=True):
            assert torch.equal(X, asked[0]), number
            if number % 11 == 5:
                bandit.forget(X[:1])
                X = X[1:]
            elif number % 11 == 7:
                bandit.tell(torch.tensor([[0.3, 0.1 * (number % 5)]], dtype=X.dtype), 0.4)
            if number % 4 != 2 and len(bandit.pending):  # else told a round later
                X = bandit.pending
                bandit.tell(X, noisy(X, number))


def assert_alike(bandits):
    """The next five choices, each of which knows that those before it are pending, and the dictionaries agree."""
    assert torch.equal(*(bandit.ask(5, remember=False) for bandit in bandits))
    assert torch.equal(*(bandit.inducing_points for bandit in bandits))
