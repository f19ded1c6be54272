"""What rewards cost, in kernel values: one what it changes, many in one call what they cost in parts."""

from functools import cache
from itertools import product

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel
from problems import DOUBLE, data, dense, difference, exactly

import torch_kbandits as kb
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.memory import Discount, LinearGrowth, QuadraticGrowth, Restart, SlidingWindow, UncertaintyInjection

LAMBDA = 0.02
N, PART, CAP = 400, 80, 12
X = data(N, 2, seed=41)[0]
Y = torch.sin(4.0 * X[:, 0] - 3.0 * X[:, 1]) + 0.1 * data(N, 1, seed=42)[0][:, 0]
TESTED = data(50, 2, seed=43)[0]
BOX = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=DOUBLE)
SEARCH = {"num_restarts": 1, "raw_samples": 8}
DOMAINS = {
    "arms": lambda: kb.Arms(X[:100]),
    "box": lambda: kb.Box(BOX, **SEARCH),
    "actions": lambda: kb.ContextualActions(X[:100], context_dim=0),
    "contexts": lambda: kb.ContextualActions(action_dim=1, context_dim=1),
    "box in a context": lambda: kb.ContextualActions(bounds=BOX[:, :1], context_dim=1, **SEARCH),
}
RULES = {
    "fresh": kb.RidgeLeverageSampling(3.0),
    "coupled": kb.RidgeLeverageSampling(3.0, "coupled"),
    "growth": kb.RidgeLeverageSampling(3.0, "growth"),
    "kors": kb.KORS(1.0),
    "capped": kb.CappedDictionary(kb.RidgeLeverageSampling(3.0), CAP, "stop"),
    "capped growth": kb.CappedDictionary(kb.RidgeLeverageSampling(3.0, "growth"), CAP, "stop"),
    "capped kors": kb.CappedDictionary(kb.KORS(1.0), CAP, "stop"),
}


class Counting(RBFKernel):
    """Knows how many of its values were computed, and between how many points at once."""

    computed = largest = 0

    def forward(self, x1, x2, diag=False, **params):
        values = super().forward(x1, x2, diag=diag, **params)
        type(self).computed += values.numel()
        if not diag:
            type(self).largest = max(self.largest, min(x1.shape[-2], x2.shape[-2]))
        return values


def kernel(lengthscale=0.3):
    counting = Counting().double()
    counting.lengthscale = exactly(lengthscale)
    return counting


def make(rule, domain="arms", memory=None, **words):
    candidates = DOMAINS[domain]() if isinstance(domain, str) else domain
    pieces = {"candidates": candidates, "kernel": kernel(), "regularization": LAMBDA, "seed": 3} | words
    return kb.Bandit(dictionary=rule, memory=memory, width=kb.ConstantWidth(2.0), **pieces)


def tell(bandit, points, rewards):
    if bandit.candidates.context_dim if bandit.candidates.is_contextual else False:
        bandit.tell(points[:, 1:], rewards, context=points[:, :1])
    else:
        bandit.tell(points, rewards)


def told(bandit, part):
    """Tell everything, so many at a time; return the bandit and how many kernel values that took."""
    before, dtype = Counting.computed, bandit.candidates.example.dtype
    for points, rewards in zip(X.to(dtype).split(part), Y.to(dtype).split(part), strict=True):
        tell(bandit, points, rewards)
    return bandit, Counting.computed - before


MEMORIES = {
    "all": None,
    "window": SlidingWindow(24),
    "restart": Restart(60),
    "discount": Discount(0.95),
    "injection": UncertaintyInjection(QuadraticGrowth(0.02), 2.0),
}
FEW_RULES = {
    "exact": None,
    "kors": kb.KORS(2.0),
    "capped": kb.CappedDictionary(kb.KORS(2.0), 8, "stop"),
    "growth": RULES["growth"],
    "fixed": kb.FixedDictionary(X[:12]),
}


@pytest.mark.one_in(40)
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("rule", FEW_RULES)
@pytest.mark.parametrize("domain", DOMAINS)
def test_twenty_rewards_make_at_most_one_full_fit(domain, rule, memory):
    """A full fit has kernel values between most of the points of the dictionary."""
    bandit = make(FEW_RULES[rule], domain, MEMORIES[memory], kernel=kernel(0.2), regularization=0.1)
    rows = torch.arange(44) % 30
    tell(bandit, X[rows[:24]], Y[:24])
    half, full_fits = len(bandit.inducing_points) // 2, 0
    for row in range(24, 44):
        Counting.largest = 0
        tell(bandit, X[rows[row : row + 1]], Y[row : row + 1])
        full_fits += Counting.largest >= half
    assert full_fits <= 1


#: How far apart points are told that are nearly one; None where only a smooth kernel makes them so.
GAPS = [None, 1e-1, 1e-3, 1e-5, 1e-7, 1e-9]
EVERY_POINT = {"exact": None, "kors": kb.KORS(1e8), "growth": kb.RidgeLeverageSampling(1e8, "growth")}


def nearly_spanned(n, gap):
    """Points (n, 3), every other one as near to one before as ``gap`` says, and rewards (n,)."""
    (X, Y), random = data(n, 3, seed=1), np.random.default_rng(2)
    for row in range(1, n, 2) if gap is not None else ():
        X[row] = X[int(random.integers(row))] + gap * X[row]
    return X, Y.squeeze(-1)


@pytest.mark.one_in(12)
@pytest.mark.parametrize("rule", EVERY_POINT)
@pytest.mark.parametrize("domain", ["arms", "actions"])
@pytest.mark.parametrize("gap", GAPS)
def test_points_that_are_nearly_spanned_are_right_and_cost_no_full_fits(gap, domain, rule):
    """All points are in the dictionary, so the posterior is the exact one. There were up to 81 full fits."""
    n = 120
    X, Y = nearly_spanned(n, gap)
    candidates = kb.Arms(X) if domain == "arms" else kb.ContextualActions(action_dim=3, context_dim=0)
    bandit = make(EVERY_POINT[rule], candidates, kernel=kernel(0.6), regularization=0.1)
    before = Counting.computed
    for row in range(n):
        tell(bandit, X[row, None], Y[row, None])
    assert Counting.computed - before < 10 * n**2  # a full fit in every round takes four times that
    expected = oracles.exact(oracles.rbf(0.6), *dense(X, Y), np.full(n, 0.1), dense(X)[0])
    offered = {} if domain == "arms" else {"candidates": X}
    x = bandit.ask(**offered)
    bounds = expected.mean + 2.0 * np.sqrt(expected.variance)
    row = int((x == X).all(-1).nonzero()[0])
    assert bounds[row] >= bounds.max() - 2.0 * expected.upper_rounding(2.0)
    shown = bandit.model.posterior(X.unsqueeze(-2))
    assert difference(shown.mean.flatten(), expected.mean) < 1e-6
    assert difference(shown.variance.flatten(), expected.variance) < 1e-6


#: Under all of them what is told in a few rounds counts at their end.
LASTING = {
    "none": None,
    "window": SlidingWindow(1e6),
    "discount": Discount(0.99),
    "growing noise": UncertaintyInjection(LinearGrowth(1e-4)),
}


@cache
def size_in_parts(rule):
    return len(told(make(RULES[rule]), PART)[0].inducing_points)


@pytest.mark.one_in(28)
@pytest.mark.parametrize(("memory", "domain", "rule"), [*product(LASTING, ["arms", "box", "contexts"], RULES)])
def test_told_at_once_dictionary_and_work_are_those_of_parts(rule, domain, memory):
    bandit, work = told(make(RULES[rule], domain, LASTING[memory]), N)
    m, in_parts = len(bandit.inducing_points), size_in_parts(rule)
    # Points that never leave were scored by posteriors of few rewards, where they came in parts.
    least, most = (0.25, 1.0) if rule == "growth" else (0.5, 2.0)
    assert least * in_parts <= m <= most * in_parts
    assert m == CAP or not rule.startswith("capped")
    assert work <= 8 * N * m
    if not rule.startswith("capped") and memory == "none":
        exact = oracles.exact(oracles.rbf(0.3), *dense(X, Y), np.full(N, LAMBDA), dense(TESTED)[0])
        ratio = bandit.model.posterior(TESTED.unsqueeze(-2)).variance.flatten().detach().numpy() / exact.variance
        assert ratio.min() > 1.0 / 3.0
        assert ratio.max() < 3.0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("batches", [GlobalBatchRule(1.2), LocalBatchRule(1.2)], ids=repr)
@pytest.mark.parametrize(("domain", "rule"), [("arms", "fresh"), ("contexts", "fresh"), ("contexts", "kors")])
def test_a_batch_rule_sees_that_many_points_are_a_batch_without_looking_at_all(domain, rule, batches):
    """So the work is that of the first 256; of all 400 it would be 3.1 and 4.9 times the square of 256."""
    plain, work = told(make(RULES[rule], domain), N)
    bandit, with_batches = told(make(RULES[rule], domain, batches=batches), N)
    assert torch.equal(bandit.inducing_points, plain.inducing_points)
    assert with_batches - work < {"arms": 1.5, "contexts": 2.1}[domain] * 256**2
