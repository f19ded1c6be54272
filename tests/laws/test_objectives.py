"""Several objectives: what is chosen is the best by the scalarised bounds or draws of the posteriors of all."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from hypothesis import given
from problems import DOUBLE, data, dense, examples, rbf
from scipy.stats import kstest

import torch_kbandits as kb
from torch_kbandits import algorithms

ARMS = data(30, 2, seed=4)[0]
BOX = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE)
KERNELS = {"reward": (0.4, 1.0), "cost": (0.3, 9.0), "heat": (0.5, 0.25)}
NOISES = {"reward": 0.05, "cost": 0.2, "heat": 0.01}
PRIORS = {name: kb.Prior(rbf(*KERNELS[name]), NOISES[name]) for name in KERNELS}
COST = kb.Outcome("cost", PRIORS["cost"])
HEAT = kb.Outcome("heat", PRIORS["heat"])
BOTH = {"reward": "maximize", "cost": "minimize"}
ALL = BOTH | {"heat": "maximize"}


def make(objective, name="gp-ucb", outcomes=(COST, HEAT), seed=3, **words):
    """A named algorithm under the reward's prior, on the arms unless words say otherwise."""
    words = {"candidates": None if "bounds" in words else ARMS, "beta": 1.5, "prior": PRIORS["reward"]} | words
    words = {word: value for word, value in words.items() if value is not None}
    return algorithms.build(name, outcomes=outcomes, objective=objective, seed=seed, **words)


def values(X, name):
    """What is measured at points (n, 2), without noise."""
    shift = {"reward": 0.0, "cost": 1.0, "heat": 2.0}[name]
    return (torch.sin(4.0 * X[:, 0] + shift) + torch.cos(3.0 * X[:, 1] - shift)) * KERNELS[name][1] ** 0.5


def told(bandit, X):
    """Tell what is measured at points (n, 2), in one call."""
    outcomes = {name: values(X, name) for name in bandit.outcomes}
    bandit.tell(X, values(X, "reward"), outcomes=outcomes)
    return bandit


def play(bandit, rounds):
    """Play rounds without a context; what was asked for, (rounds, d)."""
    asked = []
    for _ in range(rounds):
        asked.append(bandit.ask())
        told(bandit, asked[-1])
    return torch.cat(asked)


def of_names(scalarization, X, arms, beta, pending=None):
    """Dense bounds of the objectives at the arms, their means at the points told, in prior deviations, (k, ...)."""
    bounds, means = [], []
    for name, direction in scalarization.objectives.items():
        (length, scale), noise = KERNELS[name], NOISES[name]
        kernel, sign = oracles.rbf(length, scale), 1.0 if direction == "maximize" else -1.0
        known, y = dense(X, values(X, name))
        at = oracles.exact(kernel, known, y, np.full(len(known), noise), dense(arms)[0])
        seen = known if pending is None else np.concatenate([known, dense(pending)[0]])
        ahead = oracles.exact(kernel, seen, np.zeros(len(seen)), np.full(len(seen), noise), dense(arms)[0])
        bounds.append((sign * at.mean + beta * np.sqrt(ahead.variance)) / scale**0.5)
        played = oracles.exact(kernel, known, y, np.full(len(known), noise), known)
        means.append(sign * played.mean / scale**0.5)
    return np.array(bounds), np.array(means)


def weighed(scalarization, weights, bounds, means):
    """The scalarised bounds (A,), by loops over points and objectives."""
    if scalarization.kind == "linear":
        return weights @ bounds
    front = []
    for mine in means.T:
        if not any((other >= mine).all() and (other > mine).any() for other in means.T):
            front.append(mine)
    low, high = np.min(front, axis=0), np.max(front, axis=0)
    gain = weights[:, None] * (bounds - (low - 0.1 * (high - low))[:, None])
    return gain.min(0) + 0.05 * gain.sum(0)


@examples(18)
@given(
    seed=st.integers(0, 1000),
    shares=st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3),
    kind=st.sampled_from(["linear", "chebyshev"]),
    number=st.integers(1, 12),
    waiting=st.integers(0, 3),
)
def test_the_largest_scalarised_bound_is_chosen(seed, shares, kind, number, waiting):
    weights = dict(zip(ALL, shares, strict=True))
    bandit = make(kb.Scalarization(ALL, weights, kind))
    X = data(number, 2, seed)[0]
    told(bandit, X)
    pending = data(waiting, 2, seed + 1)[0] if waiting else None
    if pending is not None:
        bandit.mark_pending(pending)
    bounds, means = of_names(bandit.objective, X, ARMS, 1.5, pending)
    scores = weighed(bandit.objective, np.array(shares) / sum(shares), bounds, means)
    found = bandit.acquisition()(ARMS.unsqueeze(-2)).detach().numpy()
    assert np.abs(found - scores).max() < 1e-7
    row = int((bandit.ask() == ARMS).all(-1).nonzero())
    assert scores[row] >= scores.max() - 1e-7


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["gp-ucb", "gp-ts", "bkb"])
@pytest.mark.parametrize("kind", ["linear", "chebyshev"])
def test_all_weight_on_the_reward_is_the_bandit_of_the_reward(name, kind):
    alone, expected = kb.Scalarization(ALL, {"reward": 2.0, "cost": 0.0, "heat": 0.0}, kind), play(make(None, name), 6)
    nearly = kb.Scalarization(BOTH, {"reward": 1.0, "cost": 1e-12}, "linear")
    for objective in (alone, nearly):
        assert torch.equal(play(make(objective, name), 6), expected)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_an_outcome_may_be_all_that_is_sought(direction):
    """It is then what a bandit of that outcome, or of its negative, plays, but for ties."""
    sign = 1.0 if direction == "maximize" else -1.0
    bandit = make(kb.Scalarization({"cost": direction}, "random", "linear"), outcomes=[COST])
    twin = make(None, outcomes=(), prior=PRIORS["cost"])
    for _ in range(8):
        x = bandit.ask()
        assert torch.equal(x, twin.ask())
        bandit.tell(x, 0.0, outcomes={"cost": values(x, "cost")})
        twin.tell(x, sign * values(x, "cost"))
    assert torch.equal(bandit.recommend(), twin.recommend())


@pytest.mark.slow
def test_draws_of_objectives_are_independent_and_of_their_own_posterior():
    """Of draws that choose between two arms by an outcome or the reward alone; false alarm 1e-4 for each of 2."""
    arms, number, wins = ARMS[:2], 400, dict.fromkeys(("reward", "cost"), 0)
    both = []
    for seed in range(number):
        rows = []
        for name in wins:
            bandit = make(kb.Scalarization({name: "maximize"}), "gp-ts", candidates=arms, seed=seed, beta=1.0)
            told(bandit, arms[:1])
            rows.append(bool((bandit.ask() == arms[1]).all()))
        both.append(rows)
    share = np.array(both).mean(0)
    for column, name in enumerate(wins):
        (length, scale), noise = KERNELS[name], NOISES[name]
        y = dense(values(arms[:1], name))[0]
        at = oracles.exact(oracles.rbf(length, scale), *dense(arms[:1]), y, np.array([noise]), *dense(arms))
        spread = at.covariance[0, 0] + at.covariance[1, 1] - 2.0 * at.covariance[0, 1]
        expected = 0.5 * (1.0 + math.erf((at.mean[1] - at.mean[0]) / math.sqrt(2.0 * spread)))
        assert abs(share[column] - expected) < 3.9 * math.sqrt(expected * (1.0 - expected) / number)
    joint = np.array(both).astype(float)
    if (joint.std(0) > 0.0).all():
        assert abs(np.corrcoef(joint.T)[0, 1]) < 3.9 / math.sqrt(number)


def test_random_weights_are_uniform_on_the_simplex_and_follow_from_the_seed():
    """The first of k uniform weights has distribution function 1 − (1 − w)^(k − 1); false alarm 1e-4 for each of 3."""
    objective = kb.Scalarization(ALL)
    drawn = torch.stack([objective.sought(seed) for seed in range(2000)])
    assert torch.equal(drawn, torch.stack([objective.sought(seed) for seed in range(2000)]))
    assert (drawn >= 0.0).all()
    assert (drawn.sum(-1) - 1.0).abs().max() < 1e-12
    for column in drawn.T:
        assert kstest(column.numpy(), lambda w: 1.0 - (1.0 - w) ** 2).pvalue > 1e-4
    assert objective.sought().tolist() == pytest.approx([1 / 3] * 3)


def test_each_choice_of_a_batch_has_random_weights_of_its_own():
    bandit, shown = told(make(kb.Scalarization(BOTH)), ARMS[:6]), []
    for _ in range(4):
        shown.append(bandit.acquisition()(ARMS.unsqueeze(-2)).detach())
        row = int((bandit.ask() == ARMS).all(-1).nonzero())
        assert float(shown[-1][row]) >= float(shown[-1].max()) - 1e-7
    gains = [before - after for before, after in pairwise(shown)]
    assert any(float(gain.min()) < 0.0 for gain in gains)  # bounds alone never grow as points become pending


SPACE = kb.ParameterSpace({"x": kb.Float(0.0, 1.0), "y": kb.Float(0.0, 1.0)})


@pytest.mark.parametrize("waiting", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_search_of_configurations_finds_at_least_what_a_grid_has(waiting):
    bandit = make(kb.Scalarization(BOTH), candidates=kb.Configurations(SPACE))
    at = {"outcomes": {name: values(ARMS[:7], name) for name in bandit.outcomes}}
    bandit.tell(bandit.candidates.actions(ARMS[:7]), values(ARMS[:7], "reward"), **at)
    if waiting:
        bandit.ask(waiting)
    function, steps = bandit.acquisition(), torch.linspace(0.0, 1.0, 41, dtype=DOUBLE)
    x, grid = SPACE.encode(bandit.ask()), torch.cartesian_prod(steps, steps)
    with torch.no_grad():
        assert float(function(x.unsqueeze(0))) >= float(function(grid.unsqueeze(-2)).max()) - 1e-6


@pytest.mark.parametrize("words", [{}, pytest.param({"bounds": BOX}, marks=pytest.mark.slow)], ids=["arms", "box"])
@pytest.mark.parametrize("mode", ["safe", "optimistic"])
def test_limits_hold_of_what_several_objectives_choose(words, mode):
    is_safe, (length, scale) = mode == "safe", KERNELS["heat"]
    limit = kb.AtMost("heat", 0.2, mode="optimistic", beta=1.0)
    if is_safe:
        limit = kb.AtLeast("heat", -0.3, safe_seed=lambda X: X[:, 0] < 0.2)
    bandit = told(make(kb.Scalarization(BOTH), constraints=[limit], **words), ARMS[:3])
    for _ in range(6):
        X, x = bandit.history.X, bandit.ask()
        noise = np.full(len(X), NOISES["heat"])
        at = oracles.exact(oracles.rbf(length, scale), *dense(X, values(X, "heat")), noise, *dense(x))
        mean, deviation = at.mean[0], float(np.sqrt(at.variance[0]))
        if is_safe:
            assert mean - 3.0 * deviation >= -0.3 - 1e-7 or float(x[0, 0]) < 0.2
        else:
            assert mean - deviation <= 0.2 + 1e-7
        told(bandit, x)


def test_a_safe_set_grows_towards_what_is_sought():
    """From one known corner; without plays that show what is safe the safe set would stay small."""
    limit = kb.AtLeast("heat", -5.0, safe_seed=ARMS[:1], beta=2.0)
    prior = kb.Prior(rbf(0.5, 16.0), 0.01)
    bandit = make(kb.Scalarization(BOTH), constraints=[limit], outcomes=[COST, kb.Outcome("heat", prior)])
    asked = play(bandit, 12)
    assert len({tuple(x) for x in asked.tolist()}) > 3


def test_points_are_spread_until_each_prior_is_fitted_and_plays_without_a_reward_count_for_the_rest():
    learned = [kb.Outcome("cost", kb.LearnedPrior(num_initial=6))]
    bandit, asked = make(kb.Scalarization(BOTH), outcomes=learned), set()
    for number in range(8):
        x = bandit.ask()
        bandit.tell(x, values(x, "reward"), outcomes={} if number % 2 else {"cost": values(x, "cost")})
        asked.add(tuple(x[0].tolist()))
    assert len(asked) == 8  # no arm again before all were chosen
    assert type(bandit.rule).__name__ == "SobolRule"
    told(bandit, ARMS[:3])
    unweighted = make(kb.Scalarization(BOTH, {"reward": 1.0, "cost": 0.0}), outcomes=learned)
    assert {type(each.rule).__name__ for each in (bandit, unweighted)} == {"UpperConfidenceRule"}
    bandit.tell(ARMS[:2], failed=True, outcomes={"cost": [1.0, -1.0]})
    assert bandit.ask(2).shape == (2, 2)


@pytest.mark.parametrize("kind", ["linear", "chebyshev"])
def test_the_best_point_played_by_scalarised_means_is_recommended(kind):
    for weights, shares in (("random", (0.5, 0.5)), ({"reward": 1.0, "cost": 3.0}, (0.25, 0.75))):
        bandit = told(make(kb.Scalarization(BOTH, weights, kind)), ARMS[:8])
        _, means = of_names(bandit.objective, ARMS[:8], ARMS, 0.0)
        row = int(weighed(bandit.objective, np.array(shares), means, means).argmax())
        assert torch.equal(bandit.recommend(), ARMS[row, None])


@pytest.mark.parametrize("kind", ["listed", pytest.param("box", marks=pytest.mark.slow)])
def test_contexts_have_choices_of_their_own(kind):
    actions = {"actions": ARMS[:, 1:]} if kind == "listed" else {"bounds": BOX[:, 1:]}
    bandit = make(kb.Scalarization(BOTH, "random"), candidates=kb.ContextualActions(context_dim=1, **actions))
    for number in range(6):
        context = torch.tensor([0.1 + 0.8 * (number % 2)], dtype=DOUBLE)
        x = bandit.ask(context=context)
        joint = torch.cat([context.expand(1, 1), x], -1)
        bandit.tell(x, values(joint, "reward"), context=context, outcomes={"cost": values(joint, "cost")})
    among = ARMS[:, 1:] if kind == "listed" else torch.linspace(0.0, 1.0, 101, dtype=DOUBLE).unsqueeze(-1)
    for at in (0.1, 0.9):
        context = torch.tensor([at], dtype=DOUBLE)
        function, x = bandit.acquisition(context=context), bandit.ask(context=context, remember=False)
        with torch.no_grad():
            assert float(function(x.unsqueeze(0))) >= float(function(among.unsqueeze(-2)).max()) - 1e-6
        assert bandit.recommend(context=context).shape == (1, 1)


def test_what_makes_no_sense_is_refused():
    two = kb.Scalarization(BOTH)
    for call, message in (
        (lambda: kb.Scalarization({"reward": "up"}), "direction of 'reward'"),
        (lambda: kb.Scalarization(BOTH, {"reward": 1.0}), "one number for each"),
        (lambda: kb.Scalarization(BOTH, {"reward": 0.0, "cost": 0.0}), "all 0"),
        (lambda: kb.Scalarization(BOTH, kind="max"), "kind"),
        (lambda: make(two, "gp-ei", beta=None), "several have no meaning"),
        (lambda: make(two, "gp-pi", beta=None), "several have no meaning"),
        (lambda: make(two, "pe-gp-ucb"), "Leave out objective with a family"),
        (lambda: make(two, outcomes=["reward"]), "give the outcome another name"),
        (lambda: make(BOTH), "Scalarization"),
    ):
        with pytest.raises(kb.InputError, match=message):
            call()
    with pytest.raises(kb.EmptyHistoryError):
        make(two).recommend()
