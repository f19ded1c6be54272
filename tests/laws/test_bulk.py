"""Many rewards told in one call: the dictionary is as large as that of rewards in parts, and so is the work."""

import time
from functools import cache
from itertools import product

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, data, dense, exactly, rbf

from torch_kbandits import (
    KORS,
    Arms,
    Bandit,
    Box,
    CappedDictionary,
    ConstantWidth,
    ContextualActions,
    NystromGP,
    RidgeLeverageSampling,
    algorithms,
)
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.errors import DictionaryFullError
from torch_kbandits.memory import Discount, SlidingWindow, UncertaintyInjection
from torch_kbandits.memory.growth import Linear
from torch_kbandits.numerics.random import generator_for

LAMBDA = 0.02
N, PART, CAP = 400, 80, 12
X = data(N, 2, seed=41)[0]
Y = torch.sin(4.0 * X[:, 0] - 3.0 * X[:, 1]) + 0.1 * data(N, 1, seed=42)[0][:, 0]
TESTED = data(50, 2, seed=43)[0]
KERNEL = oracles.rbf(0.3)

RULES = {
    "fresh": RidgeLeverageSampling(3.0),
    "coupled": RidgeLeverageSampling(3.0, "coupled"),
    "growth": RidgeLeverageSampling(3.0, "growth"),
    "kors": KORS(1.0),
    "capped": CappedDictionary(RidgeLeverageSampling(3.0), CAP, "stop"),
    "capped coupled": CappedDictionary(RidgeLeverageSampling(3.0, "coupled"), CAP, "stop"),
    "capped growth": CappedDictionary(RidgeLeverageSampling(3.0, "growth"), CAP, "stop"),
    "capped kors": CappedDictionary(KORS(1.0), CAP, "stop"),
}
DOMAINS = {
    "arms": lambda: Arms(X[:100]),
    "box": lambda: Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), num_restarts=1, raw_samples=8),
    "contexts": lambda: ContextualActions(action_dim=1, context_dim=1),
}
#: Under all of them what is told in a few rounds counts at their end.
MEMORIES = {
    "none": None,
    "window": SlidingWindow(1e6),
    "discount": Discount(0.99),
    "growing noise": UncertaintyInjection(Linear(1e-4)),
}
#: Quickly one in five is tried, which is each rule in each domain or nearly so.
CASES = [
    pytest.param(*case, marks=() if number % 5 == 0 else pytest.mark.slow)
    for number, case in enumerate(product(MEMORIES, DOMAINS, RULES))
]


class CountingKernel(RBFKernel):
    """A kernel that knows how many of its values were computed."""

    computed = 0

    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        CountingKernel.computed += values.numel()
        return values


def kernel():
    counting = CountingKernel().double()
    counting.lengthscale = exactly(0.3)
    return counting


def make(rule, domain="arms", memory=None, **words):
    candidates = DOMAINS[domain]() if isinstance(domain, str) else domain
    pieces = {"candidates": candidates, "kernel": kernel(), "regularization": LAMBDA, "seed": 3}
    return Bandit(dictionary=rule, memory=memory, width=ConstantWidth(2.0), **pieces, **words)


def told(bandit, part):
    """Tell everything, so many at a time; return the bandit and how many kernel values that took."""
    before, dtype = CountingKernel.computed, bandit.candidates.example.dtype
    for points, rewards in zip(X.to(dtype).split(part), Y.to(dtype).split(part), strict=True):
        if bandit.candidates.is_contextual:
            bandit.tell(points[:, 1:], rewards, context=points[:, :1])
        else:
            bandit.tell(points, rewards)
    return bandit, CountingKernel.computed - before


@cache
def size_in_parts(rule):
    return len(told(make(RULES[rule]), PART)[0].inducing_points)


@pytest.mark.one_in(21)
@pytest.mark.parametrize(("memory", "domain", "rule"), CASES)
def test_told_at_once_dictionary_and_work_are_those_of_parts(rule, domain, memory):
    bandit, work = told(make(RULES[rule], domain, MEMORIES[memory]), N)
    m, in_parts = len(bandit.inducing_points), size_in_parts(rule)
    # Points that never leave were scored by posteriors of few rewards, where they came in parts.
    least, most = (0.25, 1.0) if rule == "growth" else (0.5, 2.0)
    assert least * in_parts <= m <= most * in_parts
    assert m == CAP or not rule.startswith("capped")
    assert work <= 8 * N * m


@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, Discount(0.99)], ids=repr)
@pytest.mark.parametrize(
    "domain", [Arms(X[:100].float()), Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))], ids=["arms", "box"]
)
def test_told_at_once_in_single_precision(domain, memory):
    bandit, _ = told(make(RULES["fresh"], domain, memory), N)
    assert 0.5 * size_in_parts("fresh") <= len(bandit.inducing_points) <= 2.0 * size_in_parts("fresh")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("rule", ["fresh", "coupled", "growth", "kors"])
def test_told_at_once_variances_are_within_a_constant_of_the_exact_ones(rule):
    bandit, _ = told(make(RULES[rule]), N)
    exact = oracles.exact(KERNEL, *dense(X, Y), np.full(N, LAMBDA), dense(TESTED)[0])
    ratio = bandit.model.posterior(TESTED.unsqueeze(-2)).variance.flatten().detach().numpy() / exact.variance
    assert ratio.min() > 1.0 / 3.0
    assert ratio.max() < 3.0


@pytest.mark.one_in(6)
@pytest.mark.parametrize("rule", ["fresh", "coupled", "growth", "kors", "capped", "capped kors"])
def test_replayed_and_loaded_bandits_have_the_same_dictionary(rule):
    bandit, replayed, loaded = (make(RULES[rule]) for _ in range(3))
    told(bandit, N)
    bandit.tell(X[:2], Y[:2])
    replayed.replay(bandit.history)
    loaded.load_state_dict(bandit.state_dict())
    for _ in range(3):
        for each in (replayed, loaded):
            assert torch.equal(each.inducing_points, bandit.inducing_points)
            assert torch.equal(each.ask(remember=False), bandit.ask(remember=False))
        for each in (bandit, replayed, loaded):
            each.tell(TESTED[:1], 0.5)


@pytest.mark.parametrize("rule", [RidgeLeverageSampling(3.0), KORS(1.0)], ids=repr)
def test_a_refusal_of_many_leaves_the_bandit_as_it_was(rule):
    bandit, twin = (make(CappedDictionary(rule, CAP, "raise")) for _ in range(2))
    for each in (bandit, twin):
        each.tell(X[:3], Y[:3])
    with pytest.raises(DictionaryFullError):
        told(bandit, N)
    assert torch.equal(bandit.inducing_points, twin.inducing_points)
    assert torch.equal(bandit.ask(), twin.ask())


def test_a_long_batch_that_brings_little_is_learned_by_the_scores_of_its_start():
    """As BBKB's batches are, whose scores add up to C − 1 at most."""
    scores = torch.linspace(0.0, 0.05, N, dtype=DOUBLE)
    one = torch.ones(N, dtype=DOUBLE)
    played = PlayedPoints(X, kernel(), torch.tensor(LAMBDA), one, scores, one.bool(), one)
    chances = RULES["fresh"].probabilities(played, generator_for(0, 0, "test"))
    torch.testing.assert_close(chances, 3.0 * scores)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("batches", [GlobalBatchRule(1.2), LocalBatchRule(1.2)], ids=repr)
@pytest.mark.parametrize(("domain", "rule"), [("arms", "fresh"), ("contexts", "fresh"), ("contexts", "kors")])
def test_a_batch_rule_sees_that_many_points_are_a_batch_without_looking_at_all(domain, rule, batches):
    """So the work is that of the first 256; of all 400 it would be 3.1 and 4.9 times the square of 256."""
    plain, work = told(make(RULES[rule], domain), N)
    bandit, with_batches = told(make(RULES[rule], domain, batches=batches), N)
    assert torch.equal(bandit.inducing_points, plain.inducing_points)
    assert with_batches - work < {"arms": 1.5, "contexts": 2.1}[domain] * 256**2


@pytest.mark.one_in(5)
@pytest.mark.parametrize("rule", ["fresh", "growth", "kors", "capped", "capped kors"])
def test_a_model_chooses_among_many_observations_at_the_work_of_its_dictionary(rule):
    """Chosen by the rule from the start, or once a model of few points was told them."""
    prior = {"covar_module": kernel(), "regularization": LAMBDA}
    before = CountingKernel.computed
    chosen = NystromGP(X, Y.unsqueeze(-1), dictionary=RULES[rule], generator=generator_for(0, 0, "test"), **prior)
    moved = NystromGP(X[:3], Y[:3].unsqueeze(-1), inducing_points=X[:3], **prior)
    moved.tell(X[3:], Y[3:].unsqueeze(-1))
    moved.set_dictionary(RULES[rule], generator_for(0, 0, "test"))
    sizes = [len(model.inducing_points) for model in (chosen, moved)]
    if rule.startswith("capped"):
        assert sizes == [CAP, CAP]
    assert max(sizes) <= 2.0 * min(sizes)
    assert CountingKernel.computed - before <= 16 * N * max(sizes)


# ---------------------------------------------------------------- how large the dictionary is


def size_and_seconds(name, dimension, lengthscale, number, part):
    """Of a dictionary after so many rewards in parts, of which half are repeats; the seconds are the processor's."""
    arms, _ = data(number // 2, dimension)
    X = arms[torch.randint(len(arms), (number,), generator=torch.Generator().manual_seed(1))]
    words = {"candidates": arms, "kernel": rbf(lengthscale), "regularization": 0.05, "beta": 2.0, "seed": 0}
    bandit, start = algorithms.build(name, **words), time.process_time()
    for told in X.split(part):
        bandit.tell(told, told.sum(-1).sin())
    return len(bandit.inducing_points), time.process_time() - start


@pytest.mark.parametrize(
    ("name", "number"),
    [("ek-ucb", 500)] + [pytest.param(name, 3_000, marks=pytest.mark.slow) for name in ("ek-ucb", "bkb", "bbkb")],
)
def test_rewards_in_one_call_need_no_more_points_than_one_by_one(name, number):
    """Within 1.2 times as many over three problems, since dictionaries are drawn; and less time on each."""
    problems = [(2, 0.3), (3, 0.6), (6, 1.5)]
    at_once, one_by_one = (
        [size_and_seconds(name, *problem, number, part) for problem in problems] for part in (number, 1)
    )
    assert all(quick[1] < slow[1] for quick, slow in zip(at_once, one_by_one, strict=True))
    assert sum(size for size, _ in at_once) <= 1.2 * sum(size for size, _ in one_by_one), (at_once, one_by_one)
