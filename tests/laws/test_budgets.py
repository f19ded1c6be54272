"""Costs: what is chosen is the best by reward and cost as dense formulas say, and a budget is kept on average."""

import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, dense, examples, rbf, seeded
from scipy.stats import binom, norm

import torch_kbandits as kb
from torch_kbandits import BudgetPacing, CostCooling, algorithms
from torch_kbandits.acquisition import ExpectedImprovementRule
from torch_kbandits.confidence import BayesianGPUCBWidth

ARMS = data(30, 2, seed=4)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
KERNELS = {"reward": (0.4, 2.25), "cost": (0.3, 0.25)}
NOISES = {"reward": 0.05, "cost": 0.02}
BETA, MEAN = 1.5, 0.4
COST = kb.Outcome("cost", kb.Prior(rbf(*KERNELS["cost"]), NOISES["cost"], MEAN))
EQUAL = kb.Outcome("cost", kb.Prior(rbf(*KERNELS["cost"]), NOISES["cost"], 3.0))


def make(objective, name="gp-ucb", outcomes=(COST,), **words):
    """A named algorithm under the reward's prior, on the arms unless words say otherwise."""
    given = {} if "bounds" in words else {"candidates": ARMS}
    given |= {"kernel": rbf(*KERNELS["reward"]), "regularization": NOISES["reward"], "seed": 3}
    given |= {} if name == "gp-ei" else {"beta": BETA}
    return algorithms.build(name, objective=objective, outcomes=outcomes, **given | words)


def reward(X):
    return torch.sin(4.0 * X[:, 0]) + torch.cos(3.0 * X[:, 1])


def price(X):
    return 0.3 + X.square().sum(-1)


def told(bandit, X, missing=()):
    """Tell rewards of points one by one, and costs but for those of some rows."""
    for row, x in enumerate(X.split(1)):
        bandit.tell(x, reward(x), outcomes={"cost": math.nan if row in missing else price(x)})
    return bandit


def posterior(name, X, y, T, pending=None, shift=0.0):
    """The dense means, and variances with points pending, at points T, and the means at what was played or is."""
    kernel, level = oracles.rbf(*KERNELS[name]), NOISES[name]
    seen = X if pending is None else torch.cat([X, pending])
    known, y, at, every = dense(X, y - shift, T, seen)
    found = oracles.exact(kernel, known, y, np.full(len(known), level), at)
    ahead = oracles.exact(kernel, every, np.zeros(len(every)), np.full(len(every), level), at)
    played = oracles.exact(kernel, known, y, np.full(len(known), level), every)
    return found.mean + shift, ahead.variance, played.mean + shift


def multiplier(costs, pace, step):
    """The multiplier after costs of one play each."""
    known = [0.0 if math.isnan(cost) else cost for cost in costs]
    return step * max(0.0, sum(known) / pace - len(known)) / math.sqrt(max(len(known), 1))


DRAWN = {"seed": st.integers(0, 1000), "number": st.integers(1, 12), "waiting": st.integers(0, 3)}


@examples(12)
@given(**DRAWN, pace=st.floats(0.2, 2.0), step=st.floats(0.1, 3.0))
def test_pacing_plays_the_largest_lagrangian(seed, number, waiting, pace, step):
    X, pending = data(number, 2, seed)[0].abs(), data(waiting, 2, seed + 1)[0] if waiting else None
    bandit = told(make(BudgetPacing(per_round=pace, step=step)), X, missing={2})
    if pending is not None:
        bandit.mark_pending(pending)
    costs, there = price(X), torch.arange(number) != 2
    nu = multiplier([*costs.masked_fill(~there, math.nan).tolist()], pace, step)
    mean, variance, _ = posterior("reward", X, reward(X), ARMS, pending)
    upper = (mean + BETA * np.sqrt(variance)) / KERNELS["reward"][1] ** 0.5
    mean, variance, _ = posterior("cost", X[there], costs[there], ARMS, pending, MEAN)
    lower = np.maximum(mean - BETA * np.sqrt(variance), 0.0) / pace
    scores = (upper - nu * lower) / (1.0 + nu)
    function = bandit.acquisition()(ARMS.unsqueeze(-2)).detach().numpy()
    assert not nu or np.abs(function - scores).max() < 1e-7  # else it is the upper bound in units of rewards
    row = int((bandit.ask() == ARMS).all(-1).nonzero())
    assert scores[row] >= scores.max() - 1e-7
    assert bandit.spent == pytest.approx(float(costs[there].sum()))


@examples(12)
@given(**DRAWN, budget=st.one_of(st.none(), st.floats(0.5, 30.0)))
def test_cooling_plays_the_largest_improvement_by_cost_to_a_power_that_falls(seed, number, waiting, budget):
    X, pending = data(number, 2, seed)[0].abs(), data(waiting, 2, seed + 1)[0] if waiting else None
    words = {
        "candidates": kb.Arms(ARMS),
        "kernel": rbf(*KERNELS["reward"]),
        "regularization": NOISES["reward"],
        "seed": 3,
    }
    words |= {"acquisition": ExpectedImprovementRule(), "width": kb.ConstantWidth(BETA)}  # that counts for nothing
    bandit, costs = told(kb.Bandit(objective=CostCooling(budget=budget), outcomes=[COST], **words), X), price(X)
    if pending is not None:
        bandit.mark_pending(pending)
    alpha = 1.0 if budget is None else max(0.0, 1.0 - float(costs.sum()) / budget)
    mean, variance, played = posterior("reward", X, reward(X), ARMS, pending)
    z = (mean - played.max()) / np.sqrt(variance)
    improvement = np.sqrt(variance) * (norm.pdf(z) + z * norm.cdf(z))
    dear = np.maximum(posterior("cost", X, costs, ARMS, pending, MEAN)[0], float(costs.min()) / 2.0)
    function = bandit.acquisition()(ARMS.unsqueeze(-2)).detach().numpy()
    likely = z > -5.0  # below, the difference in the dense formula is rounding
    expected = np.log(improvement[likely]) - alpha * np.log(dear[likely])
    assert np.abs(function[likely] - expected).max(initial=0.0) < 1e-6
    row = int((bandit.ask() == ARMS).all(-1).nonzero())
    assert function[row] >= function.max() - 1e-7


@examples(60)
@given(
    costs=st.lists(st.one_of(st.just(math.nan), st.floats(0.0, 50.0)), max_size=40),
    pace=st.floats(0.1, 10.0),
    step=st.floats(0.05, 5.0),
)
def test_whatever_plays_cost_what_was_spent_is_bounded_by_the_multiplier(costs, pace, step):
    objective = BudgetPacing(per_round=pace, step=step)
    paid, number = torch.tensor(costs, dtype=DOUBLE), len(costs)
    weights = objective.after(paid, torch.ones(number, dtype=torch.bool)).weights
    found = weights[1] / weights[0]
    assert found == pytest.approx(multiplier(costs, pace, step), rel=1e-9, abs=1e-9)
    bound = pace * number + pace * found * math.sqrt(number) / step
    assert float(paid.nansum()) <= bound * (1.0 + 1e-9) + 1e-9


@pytest.mark.slow
def test_average_spend_is_within_the_budget_but_for_what_the_rounds_make_small():
    """Where the band holds, with probability 0.99 a run, plays cost less than b from a multiplier Λ on.

    Λ = (range f + 2β) b / (s (b − c_min)), so no more is overspent than Λ stands for, and one play. The cost is known
    and grows with the reward: play without a budget spends all there is. False alarm 1e-4.
    """
    number, rounds, pace, step, beyond, runs = 30, 250, 0.5, 5.0, 0, 8
    kernel = oracles.rbf(0.4)
    root = np.linalg.cholesky(kernel(ARMS.numpy(), ARMS.numpy()) + 1e-10 * np.eye(number))
    for seed in range(runs):
        generator = seeded(seed, 5)
        f = torch.from_numpy(root) @ torch.randn(number, generator=generator, dtype=DOUBLE)
        costs = 0.1 + 0.9 * f.argsort().argsort() / (number - 1)
        known = kb.Outcome.known("cost", costs)
        width = BayesianGPUCBWidth(number, failure_probability=0.01)
        spent, widest = {}, 0.0
        for objective in (BudgetPacing(per_round=pace, step=step), BudgetPacing(per_round=math.inf)):
            bandit = make(objective, outcomes=[known], kernel=rbf(0.4), regularization=0.04, beta=width, seed=seed)
            for _ in range(rounds):
                row = int((bandit.ask() == ARMS).all(-1).nonzero())
                y = f[row] + 0.2 * torch.randn((), generator=generator, dtype=DOUBLE)
                bandit.tell(ARMS[row, None], y, outcomes={"cost": costs[row]})
                widest = max(widest, float(bandit.beta))
            spent[objective.pace] = bandit.spent
        most = (float(f.max() - f.min()) + 2.0 * widest) * pace / (pace - 0.1)
        bound = pace * rounds + pace * math.sqrt(rounds) * most / step + 1.0 - pace
        beyond += spent[pace] > bound
        assert spent[math.inf] > bound  # the bound says something
    assert beyond <= binom.isf(1e-4, runs, 0.01)


@pytest.mark.parametrize("words", [{}, pytest.param({"bounds": BOX}, marks=pytest.mark.slow)], ids=["arms", "box"])
@pytest.mark.parametrize("name", ["gp-ucb", "gp-ts"])
def test_an_infinite_budget_changes_no_choice(name, words):
    rich, blind = make(BudgetPacing(total=math.inf, rounds=9), name, **words), make(None, name, **words)
    for _ in range(3 if words else 8):
        x = rich.ask(2)
        assert torch.equal(x, blind.ask(2))
        for bandit in (rich, blind):
            bandit.tell(x, reward(x), outcomes={"cost": price(x)})


def test_a_cost_that_is_the_same_everywhere_changes_no_choice_of_improvement_per_cost():
    beside = {"candidates": kb.ContextualActions(ARMS[:, 1:], context_dim=1)}
    for words, context in (({}, {}), (beside, {"context": 0.3})):
        aware, blind = (make(goal, "gp-ei", [EQUAL], **words) for goal in (CostCooling(budget=40.0), None))
        for number in range(9):
            at = {name: torch.tensor([value + 0.1 * (number % 3)], dtype=DOUBLE) for name, value in context.items()}
            x = aware.ask(**at)
            assert torch.equal(x, blind.ask(**at))
            for bandit in (aware, blind):
                bandit.tell(x, torch.sin(5.0 * x.sum(-1)), outcomes={"cost": 3.0}, **at)
        assert torch.equal(aware.recommend(**at), blind.recommend(**at))
    aware, blind = (make(goal, "gp-ei", [EQUAL], bounds=BOX) for goal in (CostCooling(), None))
    for bandit in (aware, blind):
        bandit.tell(ARMS[:5], reward(ARMS[:5]), outcomes={"cost": [3.0] * 5})
    shift = aware.acquisition()(ARMS.unsqueeze(-2)) - blind.acquisition()(ARMS.unsqueeze(-2))
    assert float((shift + math.log(3.0)).abs().max()) < 1e-9


@pytest.mark.parametrize(("name", "objective"), [("gp-ucb", BudgetPacing(per_round=0.5)), ("gp-ei", CostCooling())])
@pytest.mark.parametrize("kind", ["box", pytest.param("context", marks=pytest.mark.slow)])
def test_a_search_finds_at_least_what_a_grid_has(name, objective, kind):
    at = {"context": torch.tensor([0.4], dtype=DOUBLE)} if kind == "context" else {}
    words = {"candidates": kb.ContextualActions(bounds=BOX[:, 1:], context_dim=1)} if at else {"bounds": BOX}
    bandit, X = make(objective, name, **words), data(6, 2, 8)[0].abs().clamp_max(1.0)
    for x in X.split(1):
        place = {"context": x[0, :1]} if at else {}
        bandit.tell(x[:, 1:] if at else x, reward(x), outcomes={"cost": price(x)}, **place)
    steps = torch.linspace(0.0, 1.0, 41, dtype=DOUBLE)
    grid = steps.unsqueeze(-1) if at else torch.cartesian_prod(steps, steps)
    function, x = bandit.acquisition(**at), bandit.ask(**at)
    with torch.no_grad():
        assert float(function(x.unsqueeze(0))) >= float(function(grid.unsqueeze(-2)).max()) - 1e-6


def test_limits_hold_of_what_costs_are_weighed_in():
    """Improvement is then over the best play within the limit."""
    limit = kb.AtMost("cost", 3.0, mode="optimistic", beta=0.5)
    for objective, name in ((BudgetPacing(per_round=0.6), "gp-ucb"), (CostCooling(budget=900.0), "gp-ei")):
        bandit = told(make(objective, name, constraints=[limit]), ARMS[:4])
        bandit.tell(ARMS[4, None], 9.0, outcomes={"cost": 8.0})
        for _ in range(5):
            x, function = bandit.ask(remember=False), bandit.acquisition()(ARMS.unsqueeze(-2)).detach()
            X, costs = bandit.history.X, bandit.history.outcomes[:, 0]
            mean, variance, _ = posterior("cost", X, costs, x, shift=MEAN)
            assert mean[0] - 0.5 * np.sqrt(variance[0]) <= 3.0 + 1e-7
            assert float(function[(x == ARMS).all(-1)]) >= float(function.max()) - 1e-7
            told(bandit, x)


def test_a_known_cost_is_not_learned_and_what_comes_late_is_spent_once():
    bandit = make(BudgetPacing(per_round=0.5), outcomes=[kb.Outcome.known("cost", price)])
    ids = bandit.ask(2, details=True).ids
    bandit.tell(ids=ids[0], outcomes={"cost": 2.0})
    bandit.tell(ids=ids[::-1], y=[0.1, 0.2])
    assert bandit.spent == 2.0
    model = bandit.outcome_model("cost").posterior(ARMS)
    assert torch.equal(model.mean.squeeze(-1), price(ARMS))
    assert float(model.variance.max()) < 1e-20


def test_what_makes_no_sense_is_refused():
    for call, message in (
        (lambda: BudgetPacing(), "Give per_round="),
        (lambda: BudgetPacing(per_round=1.0, total=3.0, rounds=3), "Give per_round="),
        (lambda: BudgetPacing(total=3.0), "Give per_round="),
        (lambda: BudgetPacing(per_round=0.0), "per_round"),
        (lambda: BudgetPacing(per_round=1.0, step=math.inf), "step"),
        (lambda: CostCooling(budget=-1.0), "budget"),
        (lambda: CostCooling(cost="reward"), "name of an outcome"),
        (lambda: make(CostCooling()), "CostCooling weighs no cost.*ExpectedImprovementRule"),
        (lambda: make(BudgetPacing(per_round=1.0), "gp-ei"), "BudgetPacing weighs no cost.*UpperConfidenceRule"),
        (lambda: make(BudgetPacing(per_round=1.0), "pe-gp-ucb"), "Leave out objective with a family"),
        (lambda: make(None).spent, "spent needs objective="),
    ):
        with pytest.raises(kb.InputError, match=message):
            call()


def test_a_cost_below_0_is_refused_and_changes_nothing():
    bandit = told(make(BudgetPacing(per_round=1.0)), ARMS[:3])
    spent, bad = bandit.spent, bandit.history
    with pytest.raises(kb.InputError, match="'cost' is a cost and must be at least 0, got -1"):
        bandit.tell(ARMS[:2], [0.0, 0.0], outcomes={"cost": [1.0, -1.0]})
    assert (bandit.spent, bandit.num_observations) == (spent, 3)
    with pytest.raises(kb.InputError, match="must be at least 0"):
        make(BudgetPacing(per_round=1.0)).replay(bad._replace(outcomes=-bad.outcomes))
    free = make(None)  # without a price it is an outcome like others
    free.tell(ARMS[:1], 0.0, outcomes={"cost": -1.0})
