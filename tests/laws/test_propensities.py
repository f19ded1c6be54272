"""Propensities are the probabilities with which candidates are played: by formula, by dense draws, and by counting.

Statistics have fixed seeds; each says how often chance alone would fail it.
"""

import math

import numpy as np
import oracles
import pytest
import torch
from problems import DOUBLE, KERNELS, data, difference, matern
from scipy.stats import norm

import torch_kbandits as kb
from torch_kbandits import Arms, Bandit, Box, ConstantWidth, ContextualActions, InputError, algorithms
from torch_kbandits.acquisition import (
    EpsilonGreedy,
    ExpectedImprovementRule,
    SoftmaxRule,
    StagedRule,
    ThompsonRule,
    UniformRule,
    UpperConfidenceRule,
)
from torch_kbandits.bandit import StayRule
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.outcomes import Scalarization
from torch_kbandits.priors.families import Elimination, Family, ModelSpec, Sampling

LAMBDA, BETA = 0.05, 1.5
DENSE = KERNELS["matern"].dense
ARMS = data(6, 2)[0]
TOLD, Y = ARMS[[0, 2]], torch.tensor([0.4, 0.9], dtype=DOUBLE)
CONTEXT, ACTIONS = torch.tensor([0.3], dtype=DOUBLE), data(5, 1, seed=3)[0]
UCB = UpperConfidenceRule()
BOX = Box(torch.tensor([[0.0], [1.0]], dtype=DOUBLE))


def bandit_of(acquisition, candidates=ARMS, *, seed=0, told=(TOLD, Y), **words):
    candidates = candidates if not isinstance(candidates, torch.Tensor) else Arms(candidates)
    prior = {} if "prior" in words else {"kernel": matern(), "regularization": LAMBDA}
    bandit = Bandit(
        **{"candidates": candidates, "acquisition": acquisition, "width": ConstantWidth(BETA), "seed": seed}
        | prior
        | words
    )
    if told is not None and not candidates.is_contextual:
        bandit.tell(*told)
    return bandit


def contextual(acquisition, actions=ACTIONS, *, seed=0, told=True, **words):
    bandit = bandit_of(acquisition, ContextualActions(actions, context_dim=1), seed=seed, **words)
    if told:
        bandit.tell(actions[:2], Y, context=torch.tensor([0.1], dtype=DOUBLE))
    return bandit


def oracle(X, y, at, pending=()):
    """Means and covariance of the exact posterior, of which pending points change nothing."""
    found = oracles.exact(DENSE, X.numpy(), y.numpy(), np.full(len(X), LAMBDA), at.numpy())
    return found.mean, found.covariance


def dense_probabilities(mean, covariance, draws=100_000):
    """How often each is the largest of a draw, by another generator."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(mean)))
    drawn = mean + BETA * np.random.default_rng(0).standard_normal((draws, len(mean))) @ root.T
    return np.bincount(drawn.argmax(-1), minlength=len(mean)) / draws


# ---------------------------------------------------------------- formulas


def test_thompson_propensities_are_those_of_the_dense_posterior():
    """Of 6 arms and 5 actions, each 5 standard errors at most: chance alone fails it with probability 11 · 6e-7."""
    number = 20_000
    rule = ThompsonRule(num_draws=number)
    joint = torch.cat([CONTEXT.expand(5, 1), ACTIONS], -1)
    told = torch.cat([torch.full((2, 1), 0.1, dtype=DOUBLE), ACTIONS[:2]], -1)
    for found, moments in (
        (bandit_of(rule).propensities(), oracle(TOLD, Y, ARMS)),
        (contextual(rule).propensities(context=CONTEXT), oracle(told, Y, joint)),
    ):
        expected = dense_probabilities(*moments)
        error = np.sqrt(expected * (1.0 - expected) * (1.0 / number + 1.0 / 100_000)) + 1.0 / number
        assert (np.abs(found.numpy() - expected) <= 5.0 * error).all()
        assert found.dtype == DOUBLE
        assert abs(float(found.sum()) - 1.0) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_of_two_actions_thompson_propensities_are_exact(dtype):
    """Φ of the difference of the means over the deviation of the difference, whatever is pending."""
    two = ACTIONS[:2].to(dtype)
    bandit = bandit_of(ThompsonRule(), ContextualActions(two, context_dim=1))
    bandit.tell(two, Y.to(dtype), context=[0.1])
    bandit.ask(context=[0.2])
    context = torch.tensor([0.3], dtype=dtype)
    told = torch.cat([torch.full((2, 1), 0.1, dtype=dtype), two], -1).double()
    mean, covariance = oracle(told, Y.to(dtype).double(), torch.cat([context.expand(2, 1), two], -1).double())
    spread = BETA * math.sqrt(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1])
    first = norm.cdf((mean[0] - mean[1]) / spread)
    expected = np.array([first, 1.0 - first])
    assert difference(bandit.propensities(context=context), expected) <= (1e-9 if dtype == DOUBLE else 1e-5)


@pytest.mark.parametrize("rule", [UCB, ExpectedImprovementRule()])
def test_a_rule_that_draws_nothing_has_a_point_mass_and_equals_share_it(rule):
    bandit = bandit_of(rule)
    found, x = bandit.propensities(), bandit.ask()
    assert torch.equal(found, (x == ARMS).all(-1).double())
    twins = bandit_of(rule, torch.cat([ARMS, ARMS]))
    assert torch.equal(twins.propensities(), 0.5 * torch.cat([(x == ARMS).all(-1).double()] * 2))


@pytest.mark.parametrize("inside", [UCB, UniformRule(), ThompsonRule(num_draws=64), StagedRule(30)])
@pytest.mark.parametrize("make", [bandit_of, contextual])
def test_epsilon_greedy_mixes_the_propensities_of_its_rule_with_uniform_ones(inside, make):
    words = {"context": CONTEXT} if make is contextual else {}
    plain, mixed = (make(rule).propensities(**words) for rule in (inside, EpsilonGreedy(inside, 0.2)))
    assert difference(mixed, 0.8 * plain + 0.2 / len(plain)) < 1e-15


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_softmax_is_that_of_the_scores_in_prior_deviations(scale):
    """So that units of rewards change nothing."""
    kernel = matern(outputscale=1.7 * scale**2)
    prior = kb.Prior(kernel, LAMBDA * scale**2)
    found = bandit_of(SoftmaxRule(UCB, 0.3), prior=prior, told=(TOLD, Y * scale)).propensities()
    mean, covariance = oracle(TOLD, Y, ARMS)
    logits = (mean + BETA * np.sqrt(np.diag(covariance))) / (0.3 * math.sqrt(1.7))
    weights = np.exp(logits - logits.max())
    assert difference(found, weights / weights.sum()) < 1e-9


def test_propensities_of_pending_points_are_those_of_one_after_another():
    """``ask(3)`` is three asks, and each has its own: what is pending shrinks what an upper bound may hope for."""
    bandit, other = (bandit_of(EpsilonGreedy(UCB, 0.3)) for _ in range(2))
    asked = other.ask(3)
    for x in asked.split(1):
        before = bandit.propensities()
        assert torch.equal(before, bandit.propensities())  # nothing changes
        plain = bandit_of(UCB)
        for point in bandit.pending:
            plain.mark_pending(point.unsqueeze(0))
        assert difference(before, 0.7 * plain.propensities() + 0.3 / len(ARMS)) < 1e-15
        assert torch.equal(bandit.ask(), x)


# ---------------------------------------------------------------- what may be played


def safe(X):
    return X[:, 0] < 0.5


HEAT = kb.Outcome("heat", kb.Prior(matern(), LAMBDA))
LIMIT = (kb.AtMost(HEAT, 0.3, beta=1.0, safe_seed=safe),)


def limited(acquisition, seed=0):
    bandit = bandit_of(acquisition, seed=seed, told=None, constraints=LIMIT)
    bandit.tell(TOLD, Y, outcomes={"heat": [0.1, 0.2]})
    return bandit


def failing(acquisition, seed=0):
    bandit = bandit_of(acquisition, seed=seed)
    bandit.tell(ARMS[[4]], None, failed=True)
    return bandit


def unfitted(acquisition, seed=0):
    """A bandit whose first points are spread."""
    return bandit_of(acquisition, seed=seed, prior=kb.LearnedPrior(num_initial=10))


def balanced(acquisition, seed=0, rule=None):
    family = Family((ModelSpec(), ModelSpec(kernel=matern(0.1))), rule or Sampling())
    return bandit_of(acquisition, seed=seed, family=family)


def scalarized(acquisition, seed=0):
    objective = Scalarization({"reward": "maximize", "heat": "minimize"})
    bandit = bandit_of(acquisition, seed=seed, told=None, objective=objective, outcomes=[HEAT])
    bandit.tell(TOLD, Y, outcomes={"heat": [-2.0, 2.5]})
    return bandit


@pytest.mark.parametrize("inside", [UCB, ThompsonRule(num_draws=32)])
@pytest.mark.parametrize("make", [limited, failing, unfitted])
def test_what_may_not_be_played_has_0_and_with_a_floor_nothing_else(make, inside):
    """Also before a prior is fitted, and where safe points are sought to learn which others are safe."""
    assert (make(inside).propensities() == 0.0).any()
    found = make(EpsilonGreedy(inside, 0.25)).propensities()
    playable = found > 0.0
    assert bool(playable.all()) == (make is unfitted)
    assert float(found[playable].min()) >= 0.25 / int(playable.sum()) - 1e-15
    assert abs(float(found.sum()) - 1.0) < 1e-12


# ---------------------------------------------------------------- counting


def excess(choices, propensities):
    """Return the largest difference between how often each row was chosen and what was stated, in its deviations.

    Given its propensities, whatever they depend on, a choice is 1 with that probability: sums of differences have a
    variance of at most the sum of p (1 − p).
    """
    stated = torch.stack(propensities)
    seen = torch.nn.functional.one_hot(torch.tensor(choices), stated.shape[-1]).double()
    deviation = (stated * (1.0 - stated)).sum(0).sqrt()
    off = (seen - stated).sum(0).abs()
    assert bool((off[deviation == 0.0] < 1e-9).all())
    return float((off / deviation)[deviation > 0.0].amax()) if bool((deviation > 0.0).any()) else 0.0


def in_a_memory(acquisition, seed=0):
    """Arms that know the time."""
    return bandit_of(acquisition, seed=seed, memory=TemporalPrior(0.1))


def with_twins(acquisition, seed=0):
    return contextual(acquisition, torch.cat([ACTIONS[:3], ACTIONS[:3]]), seed=seed)


FEW = ThompsonRule(num_draws=24)
COUNTED = {
    "Thompson": lambda seed: bandit_of(FEW, seed=seed),
    "Thompson in a context": lambda seed: contextual(FEW, seed=seed),
    "Thompson with twins": lambda seed: with_twins(FEW, seed=seed),
    "Thompson at a time": lambda seed: in_a_memory(FEW, seed=seed),
    "Thompson on two": lambda seed: contextual(FEW, ACTIONS[:2], seed=seed),
    "Thompson with a floor": lambda seed: bandit_of(EpsilonGreedy(FEW, 0.5), seed=seed),
    "Thompson within limits": lambda seed: limited(EpsilonGreedy(FEW, 0.2), seed),
    "Thompson with failures": lambda seed: failing(FEW, seed),
    "Thompson of a family": lambda seed: balanced(FEW, seed),
    "Thompson of an eliminated family": lambda seed: balanced(FEW, seed, Elimination()),
    "Thompson of objectives": lambda seed: scalarized(FEW, seed),
    "upper bounds of objectives": lambda seed: scalarized(UCB, seed),
    "upper bounds with a floor": lambda seed: contextual(EpsilonGreedy(UCB, 0.5), seed=seed),
    "upper bounds with twins": lambda seed: with_twins(UCB, seed=seed),
    "upper bounds of a family": lambda seed: balanced(EpsilonGreedy(UCB, 0.5), seed),
    "softmax": lambda seed: contextual(SoftmaxRule(UCB, 0.5), seed=seed),
    "softmax of improvement": lambda seed: bandit_of(SoftmaxRule(ExpectedImprovementRule(), 1.0), seed=seed),
    "uniform within limits": lambda seed: limited(UniformRule(), seed),
    "stages with a floor": lambda seed: bandit_of(EpsilonGreedy(StagedRule(30), 0.5), seed=seed),
    "spread with a floor": lambda seed: unfitted(EpsilonGreedy(UCB, 0.5), seed),
}


#: Their propensities are counted in other choices, and only where they are asked for by themselves.
DEAR = {name for name in COUNTED if "family" in name or "objectives" in name} - {"upper bounds of a family"}


def counted(name, seeds, points=2):
    """Return the largest ``excess`` of so many points that were asked for one after another, over seeds."""
    each = [([], []) for _ in range(points)]
    for seed in range(seeds):
        bandit = COUNTED[name](seed)
        context = {"context": CONTEXT} if isinstance(bandit.candidates, ContextualActions) else {}
        for choices, stated in each:
            stated.append(bandit.propensities(**context))
            found = bandit.ask(**context, details=True)
            choices.append(int(found.rows))
            assert (found.propensities is None) == (name in DEAR)
            assert name in DEAR or float(found.propensities) == float(stated[-1][choices[-1]]) > 0.0
    return max(excess(*found) for found in each)


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_choices_are_as_frequent_as_their_propensities(name):
    """Of at most 6 arms in two places, over 400 seeds: 5 deviations are exceeded by chance with probability 1e-5."""
    assert counted(name, 400) < 5.0


@pytest.mark.parametrize("name", ["Thompson", "Thompson with twins", "softmax", "upper bounds with a floor"])
def test_some_choices_are_as_frequent_as_their_propensities(name):
    """The same over 30 seeds."""
    assert counted(name, 30) < 5.0


# ---------------------------------------------------------------- refused, and kept


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: bandit_of(UCB, BOX, told=None).propensities(), "give arms or actions"),
        (lambda: bandit_of(SoftmaxRule(UCB, 1.0), BOX, told=None), "give arms or actions"),
        (lambda: SoftmaxRule(ThompsonRule(), 1.0), "draws nothing"),
        (lambda: SoftmaxRule(StagedRule(30), 1.0), "draws nothing"),
        (lambda: SoftmaxRule(UCB, 0.0), "temperature"),
        (lambda: EpsilonGreedy(UCB, 1.5), "epsilon must lie between 0 and 1"),
        (lambda: EpsilonGreedy("ucb", 0.5), "UpperConfidenceRule"),
        (lambda: ThompsonRule(num_draws=0), "num_draws"),
        (lambda: bandit_of(EpsilonGreedy(UCB, 0.1), batches=StayRule(2.0)), "leave out EpsilonGreedy"),
    ],
)
def test_what_has_no_propensities_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_epsilon_greedy_plays_on_boxes_too():
    asked = []
    for seed in range(20):
        bandit = bandit_of(EpsilonGreedy(UCB, 0.5), BOX, seed=seed, told=(TOLD[:, :1], Y))
        asked.append(float(bandit.ask()))
    best = float(bandit_of(UCB, BOX, told=(TOLD[:, :1], Y)).ask())
    assert 3 <= sum(abs(each - best) < 1e-3 for each in asked) <= 17  # of 20 with 1/2: but for 1e-4


def test_slates_and_what_is_excluded_have_propensities():
    """Each given those before it, 0 for what may not be played, and the floor is shared by the rest."""
    bandit, other = (contextual(EpsilonGreedy(UCB, 0.2)) for _ in range(2))
    found = bandit.ask(3, context=CONTEXT, details=True, distinct=True, exclude=[1])
    barred = [1]
    for row, propensity in zip(found.rows.tolist(), found.propensities.tolist(), strict=True):
        probabilities = other.propensities(context=CONTEXT, exclude=barred)
        assert bool((probabilities[barred] == 0.0).all())
        assert propensity == float(probabilities[row]) >= 0.2 / (5 - len(barred)) - 1e-15
        other.ask(context=CONTEXT, exclude=barred)
        barred.append(row)
    assert len({*barred}) == 4


@pytest.mark.parametrize("acquisition", [EpsilonGreedy(UCB, 0.4), UCB, FEW])
def test_propensities_are_kept_with_what_was_played(acquisition, tmp_path):
    """Always where the rule says that they are wanted, else where they were asked for; NaN elsewhere."""
    bandit, stated = contextual(acquisition), []
    for number in range(4):
        found = bandit.ask(context=CONTEXT, details=True)
        stated.append(float(found.propensities))
        x = bandit.ask(context=CONTEXT)
        kept = bandit.mark_pending(x, context=CONTEXT)  # which nobody chose
        if number == 1:
            bandit.save(tmp_path / "bandit.kb")
            bandit = Bandit.load(tmp_path / "bandit.kb")
        bandit.tell(ids=found.ids, y=0.1 * number)
        bandit.tell(ids=kept, y=0.2)
        bandit.forget()
    column = bandit.history.propensities
    assert column[2::2].tolist() == stated
    assert bool(column[[0, 1, 3, 5, 7, 9]].isnan().all())
    twin = bandit_of(acquisition, ContextualActions(ACTIONS, context_dim=1))
    twin.replay(bandit.history)
    assert torch.equal(twin.history.propensities.nan_to_num(), column.nan_to_num())
    with pytest.raises(InputError, match="propensities must lie in"):
        bandit_of(acquisition, ContextualActions(ACTIONS, context_dim=1)).replay(
            bandit.history._replace(propensities=column * 0.0)
        )


def test_a_floor_is_kept_without_being_asked_and_without_it_nothing_is_noted():
    for epsilon, noted in ((0.0, False), (0.1, True)):
        words = {"candidates": ARMS, "kernel": matern(), "regularization": LAMBDA, "beta": 2.0, "seed": 0}
        bandit = algorithms.EKUCB(**words, epsilon=epsilon)
        bandit.run(lambda x: float(x.sum()), 3)
        assert (bandit.history.propensities is not None) == noted
    assert bool((bandit.history.propensities >= 0.1 / len(ARMS) - 1e-15).all())


def test_what_would_cost_many_choices_is_counted_where_it_is_wanted():
    """By Thompson sampling of more than 2,000 candidates, and of families that draw a hypothesis."""
    many = data(2_001, 1, seed=5)[0]
    rule = ThompsonRule(num_draws=3)
    assert contextual(rule, many).ask(context=CONTEXT, details=True).propensities is None
    assert balanced(rule).ask(details=True).propensities is None
    for bandit, words in ((contextual(EpsilonGreedy(rule, 0.5), many), {"context": CONTEXT}), (balanced(rule), {})):
        assert abs(float(bandit.propensities(**words).sum()) - 1.0) < 1e-12
    found = contextual(EpsilonGreedy(rule, 0.5), many).ask(context=CONTEXT, details=True).propensities
    assert 0.0 < float(found) <= 1.0
