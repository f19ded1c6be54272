"""Whatever is looked at, a bandit's state and its next choice are those of one that nobody looked at."""

import inspect

import forgetting
import pytest
import torch
from problems import data, rbf, reward

from torch_kbandits import Categorical, Float, ParameterSpace, algorithms
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.plotting import plot_dictionary, plot_leverage, plot_line, plot_plane
from torch_kbandits.plotting.section import coordinate_names

ARMS = data(25, 2)[0]
#: What some algorithms need beside the rest.
WORDS = {
    "beta": 1.5,
    "expert": lambda X, time: (reward(X), 0.05),
    "growth": 0.01,
    "horizon": 200,
    "period": 25.0,
    "window": 12.0,
}


def make(name):
    kernel = "features" if name == "lin-ucb" else "kernel"
    words = {kernel: rbf(0.3), "regularization": 0.05, "seed": 3, "candidates": ARMS}
    takes = algorithms.registry.signature(name).parameters
    needs = {key for key in takes if key == "beta" or takes[key].default is inspect.Parameter.empty}
    words |= {key: value for key, value in WORDS.items() if key in needs}
    own = {"sw-gp-ucb": {"window": 12.0}, "r-gp-ucb": {"period": 25.0}}  # or what the theorem takes instead
    words |= own.get(name, {})
    return algorithms.build(name, **words)


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def look(bandit, **words):
    plot_line(bandit, resolution=7, **words)
    plot_plane(bandit, resolution=4, **words)
    plot_dictionary(bandit)
    if bool((bandit.weights > 0.0).any()):
        plot_leverage(bandit)


#: One of each kind of belief and of rule; the others belong to the slow tests.
QUICK = {"bbkb", "bkb", "bob-gp-ucb", "ek-ucb", "gp-ts", "gp-ucb", "lin-ucb", "sparq-gp-ucb", "sw-gp-ucb", "tv-gp-ucb"}


@pytest.mark.one_in(16)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in algorithms.names()]
)
def test_algorithms_do_not_notice(name):
    seen, unseen = make(name), make(name)
    for bandit in (seen, unseen):
        for _ in range(4):
            X = bandit.ask(2)
            bandit.tell(X, reward(X))
        bandit.ask(2)
    before, random = seen.state_dict(), torch.random.get_rng_state()
    look(seen)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert same(seen.state_dict(), before)
    assert same(seen.state_dict(), unseen.state_dict())
    for _ in range(2):
        (X, Y) = (bandit.ask(2) for bandit in (seen, unseen))
        assert torch.equal(X, Y)
        seen.tell(X, reward(X))
        unseen.tell(X, reward(X))


def test_what_was_told_since():
    """Whether the history was put together before or not."""
    bandit, twin = forgetting.make("discount"), forgetting.make("discount")
    for each in (bandit, twin):
        for q in (1, 3, 2, 1):
            X = each.ask(q)
            each.tell(X, reward(X))
    whole = twin.history
    for number in (0, 1, 2, 3, 7, 8):
        for each in (bandit, twin):
            assert same(tuple(each.history_since(number)), tuple(whole.rows(slice(number, None))))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, TemporalPrior(0.05)])
def test_named_parameters_are_shown_by_their_names(memory):
    space = ParameterSpace({"rate": Float(1e-4, 1.0, log=True), "kind": Categorical(["a", "b", "c"])})
    seen, unseen = (
        algorithms.GPTS(candidates=space, kernel=rbf(0.5), regularization=0.05, beta=1.5, memory=memory, seed=3)
        for _ in range(2)
    )
    for bandit in (seen, unseen):
        rows = bandit.ask(4)
        bandit.tell(rows, [row["rate"] for row in rows])
    look(seen)
    assert plot_line(seen, "rate", resolution=7).axes[0].get_xlabel() == "rate"
    assert same(seen.state_dict(), unseen.state_dict())
    assert coordinate_names(seen)[-4:] == ("rate", "kind 1", "kind 2", "kind 3")
