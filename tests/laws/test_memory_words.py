"""``memory=`` goes with every named algorithm: it forgets what it should, and is refused by those that are a memory."""

import math
from itertools import product

import numpy as np
import oracles
import pytest
import torch
from forgetting import ARMS, BETA, DOMAINS, KERNEL, LAMBDA, MEMORIES, TESTED, Forgetting, play
from problems import dense, difference, matern

from torch_kbandits import InputError, algorithms
from torch_kbandits.memory import SlidingWindow, TemporalPrior

#: What is a memory itself, and what else it needs.
OWN = {
    "bob-gp-ucb": {"horizon": 100},
    "dms-gp-ucb": {},
    "dms-tv-gp-ucb": {},
    "r-gp-ucb": {"period": 5.0},
    "sparq-gp-ucb": {"expert": lambda X, time: None},
    "sw-gp-ucb": {"window": 5.0},
    "ui-gp-ucb": {"growth": 0.1},
    "w-gp-ucb": {},
}
FAMILIES = ("hp-gp-ts", "lb-gp-ucb", "pe-gp-ts", "pe-gp-ucb")
#: What others need; hypotheses are equal, so that it does not matter which leads.
NEEDED = {name: {"kernels": (matern(0.5, 1.7), matern(0.5, 1.7))} for name in FAMILIES}
NEEDED |= {"sup-kernel-ucb": {"horizon": 100}}
TAKING = sorted(set(algorithms.names()) - set(OWN))
PRIOR = "back to prior"
SLOW = [pytest.mark.slow]
NAMES = ["window", "restart", "discount", "linear", PRIOR]
#: The rate at which TV-GP-UCB's prior forgets unless told otherwise, and that of the prior on time given as a memory.
RATE, OTHER_RATE = 0.01, 0.1
MEMORIES = MEMORIES | {
    PRIOR: Forgetting(
        TemporalPrior(OTHER_RATE, 0.8),
        lambda t, now: np.where((1.0 - OTHER_RATE) ** (0.5 * (now - t)) >= 0.8, LAMBDA, np.inf),
    )
}


def words_of(name, domain="arms"):
    words = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "beta": BETA, "seed": 5}
    words["candidates"] = ARMS if domain == "arms" else DOMAINS[domain]()
    words |= OWN.get(name, {}) | NEEDED.get(name, {})
    taken = algorithms.registry.signature(name).parameters
    if "features" in taken:
        words["features"] = words.pop("kernel")
    return {word: value for word, value in words.items() if word in taken}


#: All algorithms that take a memory, with each but MINI-GP-UCB's repetition where points change; quickly with one.
CASES = [
    pytest.param(
        name, memory, domain, marks=[] if (domain, number % len(NAMES)) == ("arms", NAMES.index(memory)) else SLOW
    )
    for (number, name), memory, domain in product(enumerate(TAKING), NAMES, ("arms", "contexts"))
    if name != "mini-gp-ucb" or (memory != PRIOR and domain == "arms")
    if domain == "arms" or "context_dim" in algorithms.registry.signature(name).parameters
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "memory", "domain"), CASES)
def test_what_counts_is_what_the_memory_says(name, memory, domain):
    """What follows from these noises is in ``test_posterior``, here of the prior on time alone."""
    bandit = algorithms.build(name, memory=MEMORIES[memory].memory, **words_of(name, domain))
    for first, rounds in ((0, 3), (3, 6)):
        play(bandit, rounds, first=first)
        now, learned = float(bandit.round), bandit.state_dict()["num_learned"]
        noise = MEMORIES[memory].noise(*dense(bandit.history.times[:learned]), now)
        assert difference(bandit.weights[:learned], LAMBDA / noise) < 1e-12
        counts = np.isfinite(noise)
        assert bandit.model.num_observations == counts.sum()
    assert not counts.all() or not MEMORIES[memory].memory.keeps_noise
    if bandit.candidates.is_timed:
        rates = [RATE] * isinstance(bandit, algorithms.TVGPUCB) + [OTHER_RATE] * (memory == PRIOR)
        kernel = oracles.in_time(KERNEL, 1.0 - math.prod(1.0 - rate for rate in rates))
        points = torch.cat([torch.full_like(TESTED[:, :1], now), TESTED], dim=-1)
        assert difference(bandit.model.covar_module(points).to_dense(), kernel(*dense(points, points))) < 1e-9


@pytest.mark.parametrize("name", OWN)
def test_an_algorithm_that_is_a_memory_refuses_a_second_and_says_why(name):
    words = words_of(name)
    algorithms.build(name, **words)
    with pytest.raises(InputError, match=r"Leave out memory: here .* says what an observation counts for"):
        algorithms.build(name, memory=SlidingWindow(5.0), **words)
