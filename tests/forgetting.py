"""Memories beside dense formulas of what they leave, and bandits that are told things at odd times."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import oracles
import torch
from problems import DOUBLE, data, dense, matern

import torch_kbandits as kb
from torch_kbandits import KORS, Arms, Bandit, Box, ConstantWidth, ContextualActions, RidgeLeverageSampling
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.memory import Discount, Memory, Restart, SlidingWindow, Stationary, UncertaintyInjection

LAMBDA = 0.05
BETA = 1.5
KERNEL = oracles.matern52(0.5, 1.7)
ARMS = data(14, 2, seed=21)[0]
ACTIONS = data(6, 1, seed=22)[0]
CONTEXTS = data(5, 1, seed=23)[0]
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
TESTED = data(9, 2, seed=24)[0]


class Forgetting(NamedTuple):
    """A memory and the noise variances (n,) that it should leave at times (n,), infinite for what does not count."""

    memory: Memory
    noise: Callable[[np.ndarray, float], np.ndarray]


def _kept(counts):
    return np.where(counts, LAMBDA, np.inf)


def _faded(noise, limit):
    return np.where(noise > limit, np.inf, noise)


def _last(times, number):
    rank = np.empty(len(times), dtype=int)
    rank[np.argsort(times, kind="stable")] = np.arange(len(times))
    return rank >= len(times) - number


MEMORIES = {
    "window": Forgetting(SlidingWindow(6.0), lambda t, now: _kept(now - t <= 6.0)),
    "window of observations": Forgetting(SlidingWindow(7, "observations"), lambda t, now: _kept(_last(t, 7))),
    "restart": Forgetting(Restart(9.0), lambda t, now: _kept(t >= 9.0 * math.floor(now / 9.0))),
    "restart elsewhere": Forgetting(
        Restart(8.0, -3.0), lambda t, now: _kept(t >= 8.0 * math.floor((now + 3.0) / 8.0) - 3.0)
    ),
    "discount": Forgetting(Discount(0.8), lambda t, now: LAMBDA * 0.8 ** (t - now)),
    "discount to a limit": Forgetting(
        Discount(0.8, 0.3), lambda t, now: np.where(0.8 ** (now - t) < 0.3, np.inf, LAMBDA * 0.8 ** (t - now))
    ),
    "quadratic": Forgetting(
        UncertaintyInjection(kb.QuadraticGrowth(0.7)), lambda t, now: LAMBDA * (0.7 * (now - t) ** 2 + 1.0)
    ),
    "linear": Forgetting(UncertaintyInjection(kb.LinearGrowth(0.04)), lambda t, now: LAMBDA + 0.04 * (now - t)),
    "exponential": Forgetting(
        UncertaintyInjection(kb.ExponentialGrowth(0.6)), lambda t, now: LAMBDA * 0.6 ** (t - now)
    ),
    "quadratic to a limit": Forgetting(
        UncertaintyInjection(kb.QuadraticGrowth(0.7), 0.9),
        lambda t, now: _faded(LAMBDA * (0.7 * (now - t) ** 2 + 1.0), 0.9),
    ),
    "linear to a limit": Forgetting(
        UncertaintyInjection(kb.LinearGrowth(0.04), 0.31), lambda t, now: _faded(LAMBDA + 0.04 * (now - t), 0.31)
    ),
    "exponential to a limit": Forgetting(
        UncertaintyInjection(kb.ExponentialGrowth(0.6), 0.5), lambda t, now: _faded(LAMBDA * 0.6 ** (t - now), 0.5)
    ),
}

#: All of them leave everything as it is.
FORGETS_NOTHING = {
    "keep all": Stationary(),
    "window": SlidingWindow(math.inf),
    "window of observations": SlidingWindow(math.inf, "observations"),
    "restart": Restart(math.inf),
    "discount": Discount(1.0),
    "quadratic": UncertaintyInjection(kb.QuadraticGrowth(0.0)),
    "linear": UncertaintyInjection(kb.LinearGrowth(0.0)),
    "exponential": UncertaintyInjection(kb.ExponentialGrowth(1.0)),
}

DICTIONARIES = {
    "exact": None,
    "fresh": RidgeLeverageSampling(2.0),
    "coupled": RidgeLeverageSampling(2.0, "coupled"),
    "kors": KORS(0.5),
}

DOMAINS = {
    "arms": lambda: Arms(ARMS),
    "contexts": lambda: ContextualActions(ACTIONS, context_dim=1),
    "changing": lambda: ContextualActions(action_dim=1, context_dim=1),
    "box": lambda: Box(BOUNDS, num_restarts=2, raw_samples=16),
}


def make(memory, posterior="exact", domain="arms", **words):
    """A bandit of a memory, or of the name of one."""
    memory = MEMORIES[memory].memory if isinstance(memory, str) else memory
    settings = {"candidates": DOMAINS[domain]() if isinstance(domain, str) else domain, "seed": 5}
    settings |= {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "width": ConstantWidth(BETA)}
    return Bandit(dictionary=DICTIONARIES[posterior], memory=memory, **(settings | words))


def reward(X):
    return torch.sin(4.0 * X[:, 0] - 3.0 * X[:, 1])


def offer(bandit, number):
    """What ``ask`` is given in a round beside the time."""
    candidates = untimed(bandit.candidates)
    words = {"context": CONTEXTS[number % len(CONTEXTS)]} if candidates.is_contextual and candidates.context_dim else {}
    changes = candidates.is_contextual and candidates.set is None and candidates.bounds is None
    return words | ({"candidates": ACTIONS[: 3 + number % 4]} if changes else {})


def joint(x, words):
    """The points that the kernel sees."""
    return x if "context" not in words else torch.cat([words["context"].expand(len(x), -1), x], dim=-1)


def play(bandit, rounds, first=0, times=None, q=1):
    """Ask and tell, in round n at ``times[n]`` if there are times; return the points as the kernel sees them."""
    asked = []
    for number in range(first, first + rounds):
        words, when = offer(bandit, number), {} if times is None else {"time": times[number]}
        x = bandit.ask(q, **words, **when)
        asked.append(joint(x, words))
        bandit.tell(x, reward(asked[-1]), context=words.get("context"))
    return torch.cat(asked)


def odd_times(number, seed):
    """Times (number,) with repeats and gaps, some of them long."""
    steps = np.random.default_rng(seed).choice([0.0, 0.3, 1.0, 2.5, 6.0], size=number, p=[0.25, 0.25, 0.3, 0.15, 0.05])
    return np.cumsum(steps)


def expected(bandit, name, now, points=TESTED, first=0, learned=None):
    """The dense posterior at points, of what counts of the rewards from ``first`` to ``learned`` and the dictionary."""
    history = bandit.history
    X, y, times = dense(*(part[first:learned] for part in (history.X, history.Y, history.times)))
    noise = MEMORIES[name].noise(times, now)
    counts = np.isfinite(noise)
    known, T, Z = (KERNEL, X[counts], y[counts], noise[counts]), *dense(points, bandit.inducing_points)
    return oracles.exact(*known, T) if bandit.dictionary is None or not counts.any() else oracles.dtc(*known, Z, T)
