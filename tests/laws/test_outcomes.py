"""Outcomes of a play and limits on them: posteriors of what was measured, and plays that keep limits."""

import warnings
from datetime import datetime
from functools import partial

import numpy as np
import oracles
import pytest
import torch
from kinds import composed, same
from problems import DOUBLE, data, dense, difference, linear, matern, rbf
from scipy.stats import norm

import torch_kbandits as kb
from torch_kbandits import acquisition as rules
from torch_kbandits import algorithms
from torch_kbandits.bandit import GlobalBatchRule
from torch_kbandits.confidence import ConstantWidth, SelfNormalizedWidth
from torch_kbandits.memory import Discount, SlidingWindow, TemporalPrior

ARMS = data(60, 2, 3)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
CONTEXTS = data(60, 1, 5)[0]
HEAT = kb.Outcome("heat", kb.Prior(rbf(0.3), 0.05, 0.2))
COST = kb.Outcome("cost", kb.LearnedPrior(num_initial=4, refit_share=1.0))


def make(**words):
    return composed(**{"candidates": kb.Arms(ARMS), "regularization": 0.1, "outcomes": [HEAT, COST]} | words)


def play(bandit, number, outcomes=True):
    """The first outcome of every play but each third is there, the second of every other."""
    for turn in range(number):
        words = {"context": CONTEXTS[turn]} if isinstance(bandit.candidates, kb.ContextualActions) else {}
        x = bandit.ask(**words)
        heat = None if turn % 3 == 2 else np.sin(3.0 * x.sum(-1).numpy())
        told = {"outcomes": {"heat": heat} | ({"cost": 40.0 + x[:, -1]} if turn % 2 else {})} if outcomes else {}
        bandit.tell(x, torch.cos(4.0 * x).sum(-1), **words, **told)
    return bandit


def test_outcomes_that_were_last_measured_before_a_restart_come_back():
    bandit, again = play(make(), 4), make()
    play(bandit, 3, outcomes=False)
    bandit.restart()
    again.load_state_dict(bandit.state_dict())
    assert torch.equal(play(again, 3).history.X, play(bandit, 3).history.X)


@pytest.mark.usefixtures("short_searches")
def test_outcomes_have_memories_and_times_of_their_own_and_are_told_with_what_a_batch_rule_keeps_aside():
    timed = play(make(outcomes=[kb.Outcome("heat", HEAT.prior, memory=TemporalPrior(0.1)), COST]), 6)
    assert timed.outcome_model("heat").train_inputs[0].shape[-1] == 3
    assert torch.equal(timed.ask(), play(make(), 6).ask())
    held = make(batches=GlobalBatchRule(50.0))
    asked = held.ask(3, details=True)
    held.tell(ids=asked.ids[:2], y=[0.1, 0.2], outcomes={"heat": [1.0, 2.0]})
    assert held.model.num_observations == 0
    assert held.outcome_model("heat").train_targets.tolist() == [1.0, 2.0]

    dated = make(memory=SlidingWindow(3600.0))
    dated.tell(dated.ask(time=datetime(2026, 1, 1, 12)), 1.0, outcomes={"heat": 0.3})
    dated.ask(time=datetime(2026, 1, 1, 14), remember=False)
    assert dated.outcome_model("heat").num_observations == 1  # looking into the future changes nothing
    dated.tell(dated.ask(time=datetime(2026, 1, 1, 15)), 1.0)
    assert dated.outcome_model("heat").num_observations == 0


@pytest.mark.usefixtures("short_searches")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("memory", [None, Discount(0.95), TemporalPrior(0.05)], ids=["all", "discount", "prior"])
def test_outcomes_may_be_told_before_the_reward(memory):
    """The heat is told at once, and the reward with the next play but one."""
    bandit, calm, waiting = make(memory=memory), make(memory=memory), []
    for turn in range(7):
        waiting.append(asked := bandit.ask(details=True))
        bandit.tell(ids=asked.ids, outcomes={"heat": torch.sin(3.0 * asked.x.sum(-1))})
        assert asked.ids[0] in bandit.pending_ids
        if len(waiting) == 3:
            late = waiting.pop(0)
            told = {"failed": True} if turn % 5 == 4 else {"y": torch.cos(4.0 * late.x).sum(-1)}
            bandit.tell(ids=late.ids, **told, outcomes={"cost": 1.0})
            assert late.ids[0] not in bandit.pending_ids
    history = bandit.history
    told = (history.outcomes[:, 0].isfinite(), history.Y.isfinite(), history.lost)
    assert [int(each.sum()) for each in told] == [7, 4, 1]
    calm.replay(history)
    probes = torch.cat([torch.full((9, history.X.shape[-1] - 2), 30.0, dtype=DOUBLE), ARMS[:9]], -1)
    for model in (lambda each: each.model, lambda each: each.outcome_model("heat")):
        assert difference(*(model(each).posterior(probes).mean for each in (bandit, calm))) < 1e-6


@pytest.mark.usefixtures("short_searches")
def test_what_is_no_outcome_is_refused_and_changes_nothing():
    bandit = play(make(), 3)
    x = bandit.ask()
    before = bandit.state_dict()
    for y, given, says in (
        (1.0, {"haet": 1.0}, "did you mean 'heat'"),
        (1.0, {"heat": [1.0, 2.0]}, "a number for each of the 1 point"),
        (1.0, {"heat": float("inf")}, "finite"),
        (None, None, "y is missing"),
        (None, {"heat": None, "cost": float("nan")}, "y is missing"),
    ):
        with pytest.raises(kb.InputError, match=says):
            bandit.tell(x, y, outcomes=given)
        assert same(bandit.state_dict(), before)

    for words, says in (
        ({"outcomes": "heat"}, "must be a list"),
        ({"outcomes": [HEAT, kb.Outcome("heat")]}, "declared once"),
        ({"constraints": [kb.AtMost(kb.Outcome("heat"), 1.0)]}, "declared once"),
    ):
        with pytest.raises(kb.InputError, match=says):
            make(**words)


KERNEL, LEVEL = oracles.rbf(0.4), 0.02
HOT = kb.Outcome("heat", kb.Prior(rbf(0.4), LEVEL))
COOL = torch.tensor([[0.05, 0.05]], dtype=DOUBLE)
SEEDED = torch.cat([COOL, ARMS])
PLACES = {
    "arms": lambda: kb.Arms(SEEDED),
    "actions": lambda: kb.ContextualActions(SEEDED, context_dim=0),
    "box": lambda: kb.Box(BOX),
    "cube": lambda: kb.UnitCube(2),
}
RULES = {
    "upper bound": rules.UpperConfidenceRule(),
    "improvement": rules.ExpectedImprovementRule(),
    "Thompson": rules.ThompsonRule(64),
    "uniform": rules.UniformRule(),
}


def heat(X):
    """What is limited: it rises with both columns; (q, 2) to (q,)."""
    return 1.6 * X.sum(-1) - 1.2


def reward(X):
    return torch.sin(4.0 * X[..., 0]) + X[..., 1]


def limited(place, *limits, **words):
    words |= {} if words.get("acquisition", RULES["upper bound"]).uses_width else {"width": None}
    words |= {"candidates": PLACES[place]() if isinstance(place, str) else place, "constraints": limits}
    return composed(**{"width": ConstantWidth(2.0)} | words)


def bounds(X, Y, at, beta):
    """Lower and upper bounds of the outcome by dense formulas, and what rounding may take from them."""
    found = oracles.exact(KERNEL, *dense(X, Y), np.full(len(X), LEVEL), *dense(at))
    deviation = beta * np.sqrt(found.variance.clip(0.0))
    return found.mean - deviation, found.mean + deviation, max(found.rounding, 1e-6)


def noisy(values, turn):
    return values + 0.05 * torch.randn(values.shape, generator=torch.Generator().manual_seed(turn), dtype=DOUBLE)


def tell_of(bandit, x, turn):
    bandit.tell(x, noisy(reward(x), turn), outcomes={"heat": noisy(heat(x), 1000 + turn)})


def play_within(bandit, number, check=lambda history, x: None):
    """Ask and tell; ``check`` sees the history before each play, and the play."""
    for turn in range(number):
        x = bandit.ask()
        check(bandit.history, x)
        tell_of(bandit, x, turn)
    return bandit


def keeps(limit, history, x):
    """A play keeps a limit by the dense bounds."""
    column = torch.zeros(0, dtype=DOUBLE) if history.outcomes is None else history.outcomes[:, 0]
    lower, upper, rounding = bounds(history.X, column, x, float(limit.width.value))
    if limit.is_safe:
        assert bool((x == COOL).all()) or upper[0] <= limit.value + rounding, (x, upper)
    else:
        assert lower[0] <= limit.value + rounding, (x, lower)


SAFE = kb.AtMost(HOT, 0.6, beta=2.0, safe_seed=COOL)


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("limit", [SAFE, kb.AtMost(HOT, 0.6, "optimistic", beta=2.0)], ids=["safe", "optimistic"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("place", PLACES)
def test_every_play_keeps_the_limit_by_dense_bounds(place, rule, limit):
    bandit = limited(place, limit, acquisition=RULES[rule])
    play_within(bandit, 4 if place in ("box", "cube") else 10, partial(keeps, limit))
    for x in bandit.ask(3).split(1):  # each by what was told
        keeps(limit, bandit.history, x)
    if limit.is_safe:
        assert len(bandit.history.X.unique(dim=0)) > 1  # more than the seed was played


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["sup-kernel-ucb", "pe-gp-ucb", "lb-gp-ucb", "hp-gp-ts", "bbkb", "mini-gp-ucb"])
def test_limits_under_algorithms_that_choose_in_their_own_way(name):
    words = {"horizon": 20} if name == "sup-kernel-ucb" else {}
    takes = algorithms.registry.signature(name).parameters
    words |= {"beta": 2.0} if "beta" in takes else {"noise_scale": 0.1, "norm_bound": 1.0}
    words |= {"candidates": SEEDED, "kernel": matern(), "regularization": 0.05, "seed": 0, "constraints": [SAFE]}
    play_within(algorithms.build(name, **words), 10, partial(keeps, SAFE))


def test_at_least_is_at_most_turned_round_and_both_may_hold_at_once():
    ours = limited("arms", kb.AtMost(HOT, 0.6, safe_seed=COOL))
    theirs = limited("arms", kb.AtLeast(kb.Outcome("cold", kb.Prior(rbf(0.4), LEVEL)), -0.6, safe_seed=COOL))
    for turn in range(8):
        x, warm = ours.ask(), noisy(heat(ours.pending), turn)
        assert torch.equal(theirs.ask(), x)
        ours.tell(x, reward(x), outcomes={"heat": warm})
        theirs.tell(x, reward(x), outcomes={"cold": -warm})

    def check(history, x):
        keeps(SAFE, history, x)
        if history.outcomes is not None and len(history.X):
            assert bounds(history.X, history.outcomes[:, 0], x, 2.0)[1][0] >= -0.9 - 1e-6

    play_within(limited("arms", SAFE, kb.AtLeast("heat", -0.9, "optimistic")), 12, check)


LINE = torch.linspace(0.0, 1.0, 201, dtype=DOUBLE).unsqueeze(-1)
IN_CONTEXTS = {
    "actions": lambda: kb.ContextualActions(LINE, context_dim=1),
    "box": lambda: kb.ContextualActions(bounds=BOX[:, :1], context_dim=1),
}


@pytest.mark.parametrize("place", IN_CONTEXTS)
def test_in_a_context_improvement_is_over_the_best_that_the_limit_allows_there(place):
    """By dense formulas, where all that was played and what promises the largest reward are too hot."""
    played, words = 1.0 - ARMS[:3, 1:] / 2.0, {"context": torch.ones(1, dtype=DOUBLE)}
    X, T = (torch.cat([torch.ones_like(part), part], -1) for part in (played, LINE))
    rule, limit = rules.ProbabilityOfImprovementRule(0.01), kb.AtMost(HOT, 0.4, "optimistic", beta=1.0)
    bandit = limited(IN_CONTEXTS[place](), limit, acquisition=rule)
    bandit.tell(played, 3.0 * played[:, 0], outcomes={"heat": 3.0 * played[:, 0]}, **words)
    function = bandit.acquisition(**words)
    values, chosen = (function(x.unsqueeze(-2)).detach().numpy() for x in (LINE, bandit.ask(**words)))
    told = dense(X, 3.0 * played[:, 0])
    mean, variance = oracles.exact(oracles.matern52(0.5, 1.7), *told, np.full(3, 0.05), T.numpy())[:2]
    within = np.isfinite(values)
    best = mean[within].max()
    assert best < mean.max() - 0.1
    assert not bool(function(played.unsqueeze(-2)).isfinite().any())
    expected = norm.logcdf((mean - best - rule.margin) / np.sqrt(variance))
    # On a box it is the best of 1,024 points that are spread, which a mean of this slope misses by less than 0.01.
    assert np.abs(values - expected)[within].max() < (0.05 if place == "box" else 1e-8)
    assert chosen[0] >= values.max() - (1e-6 if place == "box" else 1e-8)


def test_safe_play_goes_to_the_border_beyond_the_seed_and_finds_what_is_safe_and_best():
    """Before the outcome's prior is fitted only what is known to be safe is played. A search halves its last step."""
    seed = kb.AtMost(kb.Outcome("heat", kb.LearnedPrior(num_initial=9)), 0.6, safe_seed=lambda X: X[:, 0] <= 0.6)
    line, X = limited(kb.Box(BOX[:, :1]), seed, kernel=linear()), torch.tensor([[0.2], [0.4]], dtype=DOUBLE)
    line.tell(X, X, outcomes={"heat": X[:, 0]})
    assert 0.6 - 1e-6 < float(line.ask()) <= 0.6
    limit = kb.AtMost(HOT, 0.5, beta=2.0, safe_seed=COOL)
    bandit = play_within(limited("arms", limit), 60, partial(keeps, limit))
    assert float(reward(bandit.recommend())) >= float(reward(SEEDED)[heat(SEEDED) <= 0.5].max()) - 0.25
    assert bool((heat(bandit.history.X) <= 0.5).all())
    few = torch.cat([COOL, COOL + 0.1, COOL + 0.2])
    learned = kb.AtMost(kb.Outcome("heat", kb.LearnedPrior(num_initial=5)), 0.6, safe_seed=few)
    bandit = play_within(limited(kb.Arms(torch.cat([few, ARMS])), learned), 20)
    known = [bool((x == few).all(-1).any()) for x in bandit.history.X]
    assert all(known[:5])
    assert not all(known)


@pytest.mark.parametrize(("side", "mode"), [(0.3, "safe"), (1.0, "safe"), (0.3, "optimistic")])
def test_a_prior_fitted_to_a_corner_is_warned_of_where_plays_are_to_be_safe(side, mode):
    """Once, at the first fit; not where values span the range, nor where plays are only hoped to keep the limit."""
    arms = torch.cartesian_prod(*(torch.linspace(0.0, 1.0, 6, dtype=DOUBLE),) * 2)
    seed = {"safe_seed": arms[(arms <= side).all(-1)]} if mode == "safe" else {}
    limit = kb.AtMost("heat", 9.0, mode, **seed)
    bandit = kb.algorithms.GPUCB(candidates=arms, prior=kb.Prior(rbf(0.3), 0.04), beta=2.0, constraints=[limit], seed=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", kb.KernelBanditWarning)
        known = arms[(arms <= side).all(-1)]
        for number in range(14):
            x = known[5 * number % len(known)]
            bandit.tell(x[None], float(x.sum()), outcomes={"heat": float(x.square().sum())})
    about = [each for each in said if "kept safely" in str(each.message)]
    assert len(about) == (side < 1.0 and mode == "safe")
    assert all(each.filename == __file__ for each in about)


def test_infeasibility_is_said_with_its_confidence_and_changes_nothing():
    bandit = limited(kb.Arms(ARMS), kb.AtMost(HOT, 0.5))
    before = bandit.state_dict()
    with pytest.raises(kb.InfeasibleError, match="Give the limit safe_seed="):
        bandit.ask()
    assert same(bandit.state_dict(), before)
    bandit.tell(ARMS[:1], reward(ARMS[:1]), outcomes={"heat": [-3.0]})  # a play that was made elsewhere
    assert bounds(ARMS[:1], torch.tensor([-3.0], dtype=DOUBLE), bandit.ask(), 3.0)[1][0] <= 0.5 + 1e-9
    assert (
        len(limited(kb.Arms(ARMS), kb.AtMost(kb.Outcome("heat", kb.Prior(rbf(0.4, 0.01), LEVEL, -2.0)), 0.5)).ask())
        == 1
    )
    theory, X = SelfNormalizedWidth(0.1, 1.0, 0.05), data(40, 2, 9)[0]
    for place, value, beta, says in (
        *((place, -2.0, 2.0, "heat, with a confidence of 2 deviations: the problem is infeasible") for place in PLACES),
        ("arms", -30.0, theory, r"with a confidence of \d"),
    ):
        bandit = limited(place, kb.AtMost(HOT, value, "optimistic", beta=beta))
        bandit.tell(X, reward(X), outcomes={"heat": heat(X).abs() + 1.0})
        with pytest.raises(kb.InfeasibleError, match=says):
            bandit.ask()
    bandit = limited("arms", kb.AtMost(HOT, -5.0, "optimistic", beta=9.0))
    bandit.tell(SEEDED[:2], reward(SEEDED[:2]), outcomes={"heat": heat(SEEDED[:2])})
    with pytest.raises(kb.InfeasibleError, match="of the points played none is within the limits on heat"):
        bandit.recommend()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_safe_may_be_said_in_any_form(place):
    for seed in (COOL, lambda X: (X < 0.1).all(-1)):
        assert bool((limited(place, kb.AtMost(HOT, 0.5, safe_seed=seed)).ask() <= 0.1).all())
    for seed in (torch.zeros(1, 3, dtype=DOUBLE), torch.zeros(0, 2, dtype=DOUBLE), "cold", [1.0]):
        with pytest.raises(kb.InputError, match="safe_seed"):
            limited(place, kb.AtMost(HOT, 0.5, safe_seed=seed))


def test_a_seed_of_configurations_and_what_is_no_limit():
    space = kb.ParameterSpace({"power": kb.Float(0.0, 1.0), "mode": kb.Categorical(["slow", "fast"])})
    known = {"power": 0.1, "mode": "slow"}
    (asked,) = limited(kb.Configurations(space), kb.AtMost(HOT, 0.5, safe_seed=[known]), kernel=rbf()).ask()
    assert asked["mode"] == "slow"
    assert asked["power"] == pytest.approx(0.1)
    for words, says in (
        ({"outcome": 3, "value": 1.0}, "outcome must be a name"),
        ({"outcome": "heat", "value": 1.0, "mode": "sfae"}, "mode"),
        ({"outcome": "heat", "value": 1.0, "mode": "optimistic", "safe_seed": COOL}, "leave it out"),
    ):
        with pytest.raises(kb.InputError, match=says):
            kb.AtMost(**words)


def test_what_is_recommended_keeps_the_limit_by_its_mean():
    bandit = play_within(limited("arms", kb.AtMost(HOT, 0.2, "optimistic", beta=1.0)), 25)
    best, means = bandit.recommend(), bandit.model.posterior(bandit.history.X).mean.flatten()
    assert float(bandit.outcome_model("heat").posterior(best).mean) <= 0.2 + 1e-9
    assert float(bandit.model.posterior(best).mean) < float(means.max())  # another was better and too hot
