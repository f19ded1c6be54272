"""On a box beside a context improvement is over the best mean of that box in that context, which is searched for."""

import numpy as np
import pytest
import torch
from contextual import LAMBDA, dense_moments, joint
from problems import DOUBLE, data, difference, rbf, reward
from scipy.stats import norm

from torch_kbandits import KORS, Bandit, ContextualActions, InputError, RidgeLeverageSampling
from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule, rules
from torch_kbandits.memory import SlidingWindow

DICTIONARIES = {"exact": None, "grows": KORS(oversampling=0.5), "resampled": RidgeLeverageSampling(oversampling=0.5)}
#: Context and action columns.
DIMENSIONS = {"one": (1, 1), "two": (1, 2), "no context": (0, 2)}
RULES = {"expected": ExpectedImprovementRule(), "probability": ProbabilityOfImprovementRule(margin=0.02)}


def make(rule, dictionary, dimensions="one", **words):
    context_dim, action_dim = DIMENSIONS[dimensions]
    bounds = torch.tensor([[0.0], [1.0]], dtype=DOUBLE).expand(2, action_dim)
    return Bandit(
        candidates=ContextualActions(bounds=bounds, context_dim=context_dim, num_restarts=4, raw_samples=64),
        kernel=rbf(0.6),
        regularization=LAMBDA,
        dictionary=DICTIONARIES[dictionary],
        acquisition=RULES[rule],
        seed=0,
        **words,
    )


def told(bandit, number=12):
    """The bandit, told rewards in many contexts and with two points pending, and the context of this round."""
    c, d = bandit.candidates.context_dim, bandit.candidates.example.shape[-1]
    X = data(number + 2, d, seed=3)[0]
    bandit.tell(X[:number, c:], reward(X[:number]), context=X[:number, :c])
    bandit.mark_pending(X[number:, c:], context=X[number:, :c])
    return bandit, torch.full((c,), 0.3, dtype=DOUBLE)


def dense_scores(bandit, points, best):
    """Log EI, or log PI, at joint points (k, d), as NumPy and SciPy have it."""
    mean, variance = dense_moments(bandit, points)
    deviation, margin = np.sqrt(variance), getattr(bandit.rule, "margin", 0.0)
    ratio = (mean - best - margin) / deviation
    if margin:
        return norm.logcdf(ratio)
    return np.log(deviation) + np.log(norm.pdf(ratio) + ratio * norm.cdf(ratio))


@pytest.mark.one_in(20)
@pytest.mark.parametrize("dimensions", DIMENSIONS)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize("rule", RULES)
def test_the_action_asked_for_is_the_best_of_a_dense_grid_with_points_pending(rule, dictionary, dimensions):
    bandit, context = told(make(rule, dictionary, dimensions))
    side, action_dim = (201, 1) if dimensions == "one" else (31, 2)
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, side, dtype=DOUBLE)] * action_dim).reshape(-1, action_dim)
    recommended = bandit.recommend(context=context)
    means = dense_moments(bandit, joint(context, torch.cat([recommended, grid])))[0]
    assert means[0] > means[1:].max() - 1e-6
    x, function = bandit.ask(context=context, remember=False), bandit.acquisition(context=context)
    scores = dense_scores(bandit, joint(context, torch.cat([x, grid])), means[0])
    ours = function(torch.cat([x, grid]).unsqueeze(-2)).detach().numpy()
    near = scores > scores[0] - 10.0  # the density of what is far from likely underflows in the formula
    assert np.abs(ours - scores)[near].max() < 1e-5
    assert scores[0] > scores[1:].max() - 1e-4


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_the_incumbent_is_searched_for_once_for_all_points_asked_for(dictionary, monkeypatch):
    bandit, context = told(make("expected", dictionary))
    bandit.forget()
    search, calls = rules.optimize_acqf, []
    monkeypatch.setattr(rules, "optimize_acqf", lambda *args, **words: calls.append(1) or search(*args, **words))
    together = bandit.ask(3, context=context, remember=False)
    assert len(calls) == 4
    assert torch.equal(together, torch.cat([bandit.ask(context=context) for _ in range(3)]))


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("rule", RULES)
def test_before_any_reward_and_when_all_is_forgotten_there_is_nothing_to_improve_on(rule):
    context, actions = torch.full((1,), 0.3, dtype=DOUBLE), torch.tensor([[0.2], [0.7]], dtype=DOUBLE)
    bandit = make(rule, "exact", memory=SlidingWindow(2))
    scores = dense_scores(bandit, joint(context, actions), 0.0)
    for time in (0.0, 50.0):
        function = bandit.acquisition(context=context, time=time)
        assert difference(function(actions.unsqueeze(-2)), scores) < 1e-8
        assert 0.0 <= float(bandit.ask(context=context, time=time, remember=False)) <= 1.0
        if time == 0.0:
            bandit.tell(actions[:1], 1.0, context=context, time=time)
            assert difference(bandit.acquisition(context=context, time=1.0)(actions.unsqueeze(-2)), scores) > 1e-3


def test_the_incumbent_is_that_of_what_counts_now():
    """Of two rewards the window forgets the higher one, whose action would be improved on."""
    context, actions = torch.full((1,), 0.3, dtype=DOUBLE), torch.tensor([[0.1], [0.8]], dtype=DOUBLE)
    bandit, alone = make("expected", "exact", memory=SlidingWindow(2.0)), make("expected", "exact")
    for time, reward_now in ((0.0, 3.0), (1.5, 1.0)):
        bandit.tell(actions[int(time > 0.0), None], reward_now, context=context, time=time)
    alone.tell(actions[1:], 1.0, context=context)
    function = bandit.acquisition(context=context, time=3.0)
    expected = alone.acquisition(context=context)(actions.unsqueeze(-2))
    assert difference(function(actions.unsqueeze(-2)), expected) < 1e-6
    ours = bandit.ask(context=context, time=3.0, remember=False)
    assert difference(ours, alone.ask(context=context, remember=False)) < 1e-3


def test_a_rule_on_its_own_says_what_it_is_to_improve_on():
    bandit, context = told(make("expected", "exact"))
    domain = bandit.candidates.in_round(context, None, 0.0)
    with pytest.raises(InputError, match="incumbent is missing"):
        bandit.rule.on_box(bandit.model, bandit.beta, None, domain, 0)
