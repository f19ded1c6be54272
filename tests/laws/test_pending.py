"""Variances are conditional on what is pending, everywhere; ``ask`` maximises ``acquisition()``, by dense formulas."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, data, dense, difference, rbf, reward
from product import IMPROVEMENT, SEARCH, Loop, drawn, reasons
from test_algorithms import make

from torch_kbandits import Arms, Bandit, Box, ConstantWidth, ContextualActions, RidgeLeverageSampling
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    SpreadRule,
    UpperConfidenceRule,
)
from torch_kbandits.beliefs import constrained
from torch_kbandits.memory import Linear, SlidingWindow, UncertaintyInjection

LAMBDA, BETA, EPSILON = 0.05, 1.5, 0.1
ARMS = data(40, 2)[0]
BOUNDS = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
GRID = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 12, dtype=DOUBLE)] * 2)
CONTEXTS = data(20, 1, seed=5)[0]
RBF = oracles.rbf(0.3)
FEW = {"oversampling": 0.3}


class Case(NamedTuple):
    """A bandit, the actions among which its choice is compared, whether there are contexts, and its dense kernel."""

    make: Callable[[], Bandit]
    actions: torch.Tensor = ARMS
    context_dim: int = 0
    kernel: oracles.DenseKernel = RBF


def on_arms(name, **words):
    return Case(lambda: make(name, candidates=ARMS, **words))


def in_contexts(name, **words):
    actions = ARMS[:, :1]
    return Case(lambda: make(name, candidates=ContextualActions(actions, context_dim=1), **words), actions, 1)


def composed(candidates, rule, memory=None):
    def made():
        width = ConstantWidth(BETA) if rule.uses_width else None
        words = {"kernel": rbf(0.3), "regularization": LAMBDA, "width": width, "acquisition": rule, "seed": 0}
        words["memory"] = memory
        return Bandit(candidates=candidates, dictionary=RidgeLeverageSampling(0.3), **words)

    return made


ON_SETS = {
    "arms, BKB": on_arms("bkb", **FEW),
    "arms, exact": on_arms("igp-ucb"),
    "arms, EK-UCB": on_arms("ek-ucb", **FEW),
    "arms, batches": on_arms("bbkb", **FEW),
    "arms, window": on_arms("bkb", memory=SlidingWindow(2), **FEW),
    "arms, exact, window": on_arms("sw-gp-ucb", window=2.0),
    "arms, ageing": on_arms("bkb", memory=UncertaintyInjection(Linear(0.01)), **FEW),
    "arms, exact, ageing": on_arms("ui-gp-ucb"),
    "contexts, EK-UCB": in_contexts("ek-ucb", **FEW),
    "contexts, CBKB": in_contexts("cbkb", **FEW),
    "contexts, batches": in_contexts("cbbkb", **FEW),
    "contexts, exact": in_contexts("k-ucb"),
    "contexts, window": in_contexts("bkb", memory=SlidingWindow(2), **FEW),
    "contexts, EK-UCB, window": in_contexts("ek-ucb", memory=SlidingWindow(2), **FEW),
    "contexts, ageing": in_contexts("ek-ucb", memory=UncertaintyInjection(Linear(0.01)), **FEW),
    "timed": Case(lambda: make("tv-gp-ucb", candidates=ARMS, forgetting=EPSILON), kernel=oracles.in_time(RBF, EPSILON)),
}


def with_pending(case, seed=0):
    """Play, and show the bandit again and again: with 0 to 5 points pending, and as they are told out of order."""
    bandit = case.make()
    for number in range(3):
        words = {"context": CONTEXTS[number]} if case.context_dim else {}
        asked = bandit.ask(3, return_ids=True, **words)
        yield bandit, words
        bandit.ask(2, **words)
        yield bandit, words
        rows = asked.actions[[2, 0]]
        bandit.tell(ids=[asked.ids[2], asked.ids[0]], y=reward(rows))
        yield bandit, words
        bandit.forget()
        yield bandit, words


def domain_of(bandit, words):
    """What may be played now, as the kernel sees it."""
    return bandit._now(None, words.get("context"), None)[1]


def dense_moments(bandit, case, points):
    """Mean and variance from all that counts, the dictionary, and what is outstanding, given which the latter is."""
    counts = bandit.weights > 0.0
    history = bandit.history
    X, y, P, T = dense(history.X[counts], history.Y[counts], bandit._standing.ledger.outstanding, points)
    noise = (LAMBDA / bandit.weights[counts]).numpy()

    def posterior(T):
        if bandit.dictionary is None:
            return oracles.exact(case.kernel, X, y, noise, T)
        return oracles.dtc(case.kernel, X, y, noise, *dense(bandit.inducing_points), T)

    found = oracles.with_pending(posterior, T, P, LAMBDA)
    return found.mean, found.variance


def assert_largest(bandit, words, values):
    """What is asked for next has the largest of the values (A,) of the acquisition, to rounding."""
    x = bandit.ask(remember=False, **words)
    value = float(bandit.acquisition(**words)(x.unsqueeze(-2)))
    assert value >= float(values.max()) - 1e-8 * max(1.0, abs(value))


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", ON_SETS)
def test_variances_are_conditional_on_pending_points_and_the_largest_value_is_asked_for(name):
    case, seen = ON_SETS[name], 0
    for bandit, words in with_pending(case):
        domain = domain_of(bandit, words)
        mean, variance = dense_moments(bandit, case, domain.arms)
        ahead = bandit._ahead_of(bandit._standing)
        looked = ahead.offered(domain)
        assert difference(looked.mean, mean) < 1e-8
        assert difference(looked.variance, variance) < 1e-8
        values = bandit.acquisition(**words)(case.actions.unsqueeze(-2))
        assert difference(values, mean + BETA * np.sqrt(variance)) < 1e-7
        assert_largest(bandit, words, values)
        seen = max(seen, len(ahead.pending))
    assert seen >= 5


@pytest.mark.one_in(6)
@pytest.mark.parametrize("rule", [ExpectedImprovementRule(), ProbabilityOfImprovementRule(), UpperConfidenceRule()])
@pytest.mark.parametrize("context_dim", [None, 0, 1])
def test_whatever_the_rule_the_largest_value_is_asked_for(rule, context_dim):
    """In contexts of so many columns, and on arms of which observations age."""
    actions, memory = ARMS[:, context_dim or 0 :], None
    candidates = ContextualActions(actions, context_dim=context_dim or 0)
    if context_dim is None:
        candidates, memory = Arms(ARMS), UncertaintyInjection(Linear(0.01))
    case = Case(composed(candidates, rule, memory), actions, context_dim or 0)
    for bandit, words in with_pending(case):
        assert_largest(bandit, words, bandit.acquisition(**words)(actions.unsqueeze(-2)))


ON_BOXES = {
    "BKB": Case(lambda: make("bkb", candidates=Box(BOUNDS), **FEW), GRID),
    "exact": Case(lambda: make("igp-ucb", candidates=Box(BOUNDS)), GRID),
    "EI": Case(composed(Box(BOUNDS), ExpectedImprovementRule()), GRID),
    "EI in contexts": Case(
        composed(ContextualActions(bounds=BOUNDS[:, :1], context_dim=1), ExpectedImprovementRule()), GRID[:12, 1:], 1
    ),
    "EK-UCB in contexts": Case(
        lambda: make("ek-ucb", candidates=ContextualActions(bounds=BOUNDS[:, :1], context_dim=1), **FEW),
        GRID[:12, 1:],
        1,
    ),
    "CBKB in contexts": Case(
        lambda: make("cbkb", candidates=ContextualActions(bounds=BOUNDS[:, :1], context_dim=1), **FEW), GRID[:12, 1:], 1
    ),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", ON_BOXES)
def test_what_is_asked_for_on_a_box_is_better_than_a_grid(name):
    """A search by gradients from a few starts: of a smooth function it misses less than the grid does."""
    case = ON_BOXES[name]
    bandit = case.make()
    words = {"context": CONTEXTS[0]} if case.context_dim else {}
    for _ in range(2):
        x = bandit.ask(3, **words)
        bandit.tell(x[:2], reward(x[:2]), **words)
        function = bandit.acquisition(**words)
        best = float(function(case.actions.unsqueeze(-2)).max())
        assert float(function(bandit.ask(remember=False, **words).unsqueeze(-2))) >= best - 1e-6


# ---------------------------------------------------------------- whatever is put together


def maximising(seed, number, *, on_a_box):
    """So many combinations that play, of a rule that maximises a function. (``StayRule`` plays its first again.)"""
    rules = ["upper bound", *IMPROVEMENT]
    combinations = (replace(it, rule=rules[count % 3]) for count, it in enumerate(drawn(seed, 100 * number)))
    fits = (it for it in combinations if (it.where.actions is None) is on_a_box and it.batches != "stay")
    return list(islice((it for it in fits if not reasons(it)), number))


def shown(combination, folder):
    """A bandit of a combination with 0 and 2 points pending, in three rounds, and what the round brings."""
    loop = Loop(combination, combination.bandit(folder))
    for q in (1, 3, 2):
        loop.tell(loop.ask(q)[:2])
        for more in (0, 2):
            if more:
                loop.bandit.ask(more, **loop.words())
            if not isinstance(loop.bandit.rule, SpreadRule):
                yield loop, loop.bandit.acquisition(**loop.words())
        loop.bandit.forget(ids=loop.bandit.pending_ids[1:])


@pytest.mark.filterwarnings("ignore:Negative variance values")
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 31))])
def test_whatever_is_put_together_the_largest_value_of_a_set_is_asked_for(seed, tmp_path, monkeypatch):
    """But for plays that are to show whether more is safe, which no acquisition function stands for."""
    monkeypatch.setattr(constrained, "expansion", lambda *words: None)
    for combination in maximising(seed, 7 if seed else 3, on_a_box=False):
        for loop, function in shown(combination, tmp_path):
            assert_largest(loop.bandit, loop.words(), function(loop.offered.unsqueeze(-2)).detach())


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:Negative variance values")
@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 41))])
def test_whatever_is_put_together_on_a_box_nothing_is_better_than_what_is_asked_for(seed, tmp_path, monkeypatch):
    """Neither 200 random points nor what was played. (Before any reward that counts points fill the box instead.)"""
    monkeypatch.setattr(constrained, "expansion", lambda *words: None)
    monkeypatch.setitem(SEARCH, "num_restarts", 8)
    monkeypatch.setitem(SEARCH, "raw_samples", 128)
    (combination,) = maximising(seed, 1, on_a_box=True)
    for loop, function in shown(combination, tmp_path):
        bandit, columns = loop.bandit, 2 - combination.where.context_dim
        played = bandit.candidates.actions(bandit.history.X)
        values = function(torch.cat([data(200, columns, 9)[0], played]).unsqueeze(-2)).detach()
        value = float(function(bandit.ask(remember=False, **loop.words()).unsqueeze(-2)))
        assert value >= float(values.max()) - 1e-6 * max(1.0, abs(value)) or not bool(bandit.weights.any())


def test_improvement_on_arms_is_over_the_best_that_was_played():
    """A window on few arms, whose posterior is exact: as without a window, and as ``acquisition()`` has it."""
    rule, words = ProbabilityOfImprovementRule(), {"kernel": rbf(0.3), "regularization": LAMBDA, "seed": 0}
    for number in range(1, 9):
        bandit = Bandit(candidates=Arms(ARMS), acquisition=rule, memory=SlidingWindow(9.0), **words)
        bandit.tell(ARMS[:number], reward(ARMS[:number]))
        assert_largest(bandit, {}, bandit.acquisition()(ARMS.unsqueeze(-2)).detach())
