"""``memory=`` goes with every named algorithm: it forgets what it should, and is refused by those that are a memory."""

import inspect
import math
from itertools import product

import numpy as np
import oracles
import pytest
import torch
from forgetting import ARMS, BETA, DOMAINS, KERNEL, LAMBDA, MEMORIES, TESTED, Forgetting, play
from problems import dense, difference, matern

from torch_kbandits import Bandit, InputError, algorithms
from torch_kbandits.memory import BackToPrior, SlidingWindow

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
NEEDED = {
    "sup-kernel-ucb": {"horizon": 100},
    **{name: {"kernels": (matern(0.5, 1.7), matern(0.5, 1.7))} for name in FAMILIES},
}
TAKING = sorted(set(algorithms.names()) - set(OWN))
#: It chooses among finitely many actions.
FINITE = "sup-kernel-ucb"
CONTEXTUAL = {
    "k-ucb",
    "cbkb",
    "cbbkb",
    "ek-ucb",
    "et-gp-ucb",
    "lin-ucb",
    "gp-ts",
    "random",
    "tv-gp-ucb",
    FINITE,
    *FAMILIES,
}
PRIOR = "back to prior"
NAMES = ["window", "restart", "discount", "linear", PRIOR]
SLOW = [pytest.mark.slow]
#: The rate at which TV-GP-UCB's prior forgets unless told otherwise, and that of the prior on time given as a memory.
RATE, OTHER_RATE = 0.01, 0.1
MEMORIES = MEMORIES | {
    PRIOR: Forgetting(
        BackToPrior(OTHER_RATE, 0.8),
        lambda t, now: np.where((1.0 - OTHER_RATE) ** (0.5 * (now - t)) >= 0.8, LAMBDA, np.inf),
    )
}
#: It plays a point again and again, which is another point at another time.
REPEATING = "mini-gp-ucb"


def words_of(name, domain="arms"):
    words = {"kernel": matern(0.5, 1.7), "regularization": LAMBDA, "beta": BETA, "seed": 5}
    words["candidates"] = ARMS if domain == "arms" else DOMAINS[domain]()
    words |= OWN.get(name, {}) | NEEDED.get(name, {})
    taken = algorithms.registry.signature(name).parameters
    if "features" in taken:
        words["features"] = words.pop("kernel")
    return {word: value for word, value in words.items() if word in taken}


def make(name, memory, domain="arms"):
    return algorithms.build(name, memory=MEMORIES[memory].memory, **words_of(name, domain))


def errors(bandit, memory):
    """By how much the model and the table differ from dense formulas of what counts, in units of their rounding."""
    ledger, now = bandit._standing.ledger, float(bandit.round)
    told = slice(ledger.num_forgotten, ledger.num_learned)
    X, y, times = dense(*(part[told] for part in (bandit.history.X, bandit.history.Y, bandit.history.times)))
    noise = MEMORIES[memory].noise(times, now)
    counts = np.isfinite(noise)
    X, y, noise = X[counts], y[counts], noise[counts]
    is_timed = bandit.candidates.is_timed
    points = torch.cat([torch.full_like(TESTED[:, :1], now), TESTED], dim=-1) if is_timed else TESTED
    rates = [RATE] * isinstance(bandit, algorithms.TVGPUCB) + [OTHER_RATE] * (memory == PRIOR)
    kernel = oracles.in_time(KERNEL, 1.0 - math.prod(1.0 - rate for rate in rates)) if is_timed else KERNEL
    T, Z = dense(points, bandit.inducing_points)
    if len(X) == 0:
        expected = np.zeros(len(T)), np.diag(kernel(T, T))
        condition = 1.0
    elif bandit.dictionary is None:
        expected, condition = oracles.exact(kernel, X, y, noise, T)[:2], np.linalg.cond(kernel(X, X) + np.diag(noise))
    else:
        expected, condition = oracles.dtc(kernel, X, y, noise, Z, T)[:2], np.linalg.cond(kernel(Z, Z))
    posterior = bandit.model.posterior(points.unsqueeze(-2))
    ours = [(posterior.mean.flatten(), posterior.variance.flatten()), bandit._belief.moments(points)]
    largest = max(difference(mine, theirs) for pair in ours for mine, theirs in zip(pair, expected, strict=True))
    return largest / (np.finfo(np.float64).eps * condition), counts


def cases(*domains, quick=True):
    """All algorithms that take a memory, with memories and domains; quickly each with one memory in each domain."""
    return [
        pytest.param(name, memory, domain, marks=[] if quick and number % len(NAMES) == NAMES.index(memory) else SLOW)
        for number, name in enumerate(TAKING)
        for memory, domain in product(NAMES, domains)
        if domain != "contexts" or name in CONTEXTUAL
        if memory != PRIOR or name != REPEATING
        if domain != "box" or name != FINITE
    ]


def test_every_algorithm_has_the_word():
    for name in algorithms.names():
        parameter = algorithms.registry.signature(name).parameters["memory"]
        assert parameter.default is None
        assert "memory:" in inspect.getdoc(algorithms.registry._find(name))


@pytest.mark.one_in(40)
@pytest.mark.parametrize(("name", "memory", "domain"), cases("arms", "contexts"))
def test_what_counts_is_what_the_memory_says(name, memory, domain, tmp_path):
    bandit = make(name, memory, domain)
    play(bandit, 3)
    assert errors(bandit, memory)[0] < 1e3
    play(bandit, 6, first=3)
    error, counts = errors(bandit, memory)
    assert error < 1e3
    assert not counts.all() or not MEMORIES[memory].memory.keeps_noise
    assert float(bandit.weights.sum()) < bandit.num_told

    bandit.save(tmp_path / "bandit")
    loaded, replayed = Bandit.load(tmp_path / "bandit"), make(name, memory, domain)
    replayed.replay(bandit.history)
    after = play(bandit, 4, first=12)
    assert torch.equal(play(loaded, 4, first=12), after)
    assert torch.equal(play(replayed, 4, first=12), after)
    for each in (bandit, loaded, replayed):
        assert errors(each, memory)[0] < 1e3


@pytest.mark.parametrize(("name", "memory", "domain"), cases("box", quick=False))
def test_what_counts_is_what_the_memory_says_on_a_box(name, memory, domain):
    bandit = make(name, memory, domain)
    play(bandit, 4)
    assert errors(bandit, memory)[0] < 1e3


@pytest.mark.parametrize("name", OWN)
def test_an_algorithm_that_is_a_memory_refuses_a_second_and_says_why(name):
    words = words_of(name)
    algorithms.build(name, **words)
    with pytest.raises(InputError, match="memory") as error:
        algorithms.build(name, memory=SlidingWindow(5.0), **words)
    assert "other arguments" not in str(error.value)
    assert "not defined" in str(error.value) or "independent" in str(error.value)
