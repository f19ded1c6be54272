"""The search of a box: where it starts from, that it never ends below that, and that state decides it alone."""

from dataclasses import replace

import hypothesis.strategies as st
import oracles
import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from gpytorch.means import ConstantMean
from hypothesis import HealthCheck, given, settings
from problems import DOUBLE, as_told, data, dense, difference, exactly, matern, rbf

from torch_kbandits import Box, NystromGP, OnlineGP, algorithms
from torch_kbandits.acquisition import (
    ExpectedImprovementRule,
    ProbabilityOfImprovementRule,
    UpperConfidenceRule,
    rules,
)
from torch_kbandits.beliefs import Terms, belief_over
from torch_kbandits.dictionaries import Selection

LAMBDA = 0.05
BETA = exactly(1.5)
RULES = [UpperConfidenceRule(), ExpectedImprovementRule(), ProbabilityOfImprovementRule()]


def unit_box(d, **effort):
    return Box(torch.tensor([[0.0] * d, [1.0] * d], dtype=DOUBLE), **effort)


BOX = unit_box(2)


def told(box, X, Y, *, exact, lengthscale=0.4):
    """A belief that was told rewards Y (n,) at X (n, d); the Nyström one has every other point in its dictionary."""
    belief = belief_over(box, Terms(rbf(lengthscale), LAMBDA, seed=0, exact=exact))
    return belief.restored(as_told(X, Y), listed(X if exact else X[::2]))


def listed(points):
    return Selection(points, torch.ones_like(points[:, 0]), None)


def domain_of(belief):
    """The box with the points that the search starts from."""
    return belief.lookahead(belief.latest[:0]).domain


def rows(points):
    return {tuple(row) for row in points.tolist()}


# -------------------------------------------------------------------- starts


@pytest.mark.parametrize("exact", [False, True])
def test_the_search_starts_at_the_last_and_at_the_best_point_learned(exact):
    X, Y = data(21, 2)
    belief = told(BOX, X, Y[:, 0], exact=exact)
    Z = X if exact else X[::2]
    noise = torch.full((21,), LAMBDA, dtype=DOUBLE)
    posterior = oracles.dtc(oracles.rbf(0.4), *dense(X, Y[:, 0], noise, Z, X))
    best = X[int(posterior.mean.argmax())]
    assert not torch.equal(best, X[-1])
    assert rows(domain_of(belief).starts) == rows(torch.stack([X[-1], best]))
    more = torch.cat([X, best.unsqueeze(0)]), torch.cat([Y[:, 0], exactly(9.0).unsqueeze(0)])
    belief = belief_over(BOX, Terms(rbf(), LAMBDA, seed=0, exact=exact)).restored(as_told(*more), listed(Z))
    assert torch.equal(domain_of(belief).starts, best.unsqueeze(0))  # each start once
    empty = belief_over(BOX, Terms(rbf(), LAMBDA, seed=0, exact=exact))
    assert domain_of(empty).starts is None
    empty = empty.restored(as_told(X[:3], Y[:3, 0]), listed(X[:3]))
    assert rows(domain_of(empty).starts) <= rows(X[:3])


def test_points_told_outside_the_box_start_at_its_border():
    X = torch.tensor([[0.5, 3.0]], dtype=DOUBLE)
    belief = told(unit_box(2), X, torch.ones(1, dtype=DOUBLE), exact=True)
    assert rows(domain_of(belief).starts) == {(0.5, 1.0)}
    found = belief.lookahead(X[:0]).choose(UpperConfidenceRule(), BETA, seed=0)
    assert bool(((found >= 0.0) & (found <= 1.0)).all())


# -------------------------------------------------------------------- what is found


@pytest.mark.usefixtures("short_searches")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # it stays as it is from example to example
@given(
    rule=st.sampled_from(RULES), exact=st.booleans(), n=st.integers(2, 12), d=st.integers(1, 3), k=st.integers(0, 2),
    copies=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_what_is_found_is_never_below_a_warm_start(rule, exact, n, d, k, copies, seed):
    X, Y = data(n, d, seed)
    if copies:  # repeated and nearly repeated points
        X[n // 2 :] = X[0]
        X[-1] += 1e-9
    belief = told(unit_box(d, num_restarts=1, raw_samples=2), X, Y[:, 0], exact=exact)
    pending = data(k, d, seed + 100)[0]
    found = belief.lookahead(pending).choose(rule, BETA, seed)
    acquisition = rule.function(belief.joint.model, BETA, pending if k else None, domain_of(belief), seed)
    with torch.no_grad():
        reached = float(acquisition(found.unsqueeze(0)))
        at_starts = float(acquisition(domain_of(belief).starts.unsqueeze(-2)).max())
    assert reached >= at_starts - 1e-9 * max(1.0, abs(at_starts))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("exact", [False, True])
def test_warm_starts_find_a_needle_that_few_random_starts_miss(exact):
    X = torch.rand(40, 4, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    Y = torch.zeros(40, dtype=DOUBLE)
    Y[10] = 50.0
    box = unit_box(4, num_restarts=1, raw_samples=1)
    belief = told(box, X, Y, exact=exact, lengthscale=0.02)
    lookahead = belief.lookahead(X[:0])
    rule = UpperConfidenceRule()
    missed = [rule.on_box(belief.joint.model, BETA, None, box.domain, seed) for seed in range(3)]
    assert all(difference(found[0], X[10]) > 0.1 for found in missed)
    assert all(difference(lookahead.choose(rule, BETA, seed)[0], X[10]) < 0.02 for seed in range(3))


def test_starts_add_to_the_random_ones_and_replace_none(monkeypatch):
    searched, search = [], rules.optimize_acqf
    monkeypatch.setattr(rules, "optimize_acqf", lambda *a, **k: searched.append(k) or search(*a, **k))
    X, Y = data(9, 2)
    belief = told(unit_box(2, num_restarts=3), X, Y[:, 0], exact=True)
    domain = domain_of(belief)
    for starts in (domain.starts, None):
        UpperConfidenceRule().on_box(belief.joint.model, BETA, None, replace(domain, starts=starts), 0)
    assert [call["num_restarts"] for call in searched] == [3 + len(domain.starts), 3]


# -------------------------------------------------------------------- state

MAKERS = {
    "bkb": lambda box: algorithms.BKB(bounds=box, kernel=matern(), regularization=LAMBDA, beta=2.0, seed=3),
    "gp-ucb": lambda box: algorithms.GPUCB(bounds=box, kernel=matern(), regularization=LAMBDA, beta=2.0, seed=3),
    "gp-ei": lambda box: algorithms.GPEI(bounds=box, kernel=matern(), regularization=LAMBDA, seed=3),
}


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_bandit_loaded_with_points_pending_searches_from_the_same_starts(name):
    bounds = unit_box(2).bounds
    bandit, twin = MAKERS[name](bounds), MAKERS[name](bounds)
    for _ in range(2):
        X = bandit.ask(2)
        bandit.tell(X[:1], torch.sin(5.0 * X[:1]).sum(-1))  # the other one stays pending
    bandit.tell(torch.full((1, 2), 0.3, dtype=DOUBLE), 5.0)  # never asked for, and the best
    twin.load_state_dict(bandit.state_dict())
    for _ in range(2):
        X, other = bandit.ask(2), twin.ask(2)
        # The posterior is computed afresh on loading, so it agrees to rounding and the search to its tolerance.
        assert difference(X, other) < 1e-6
        for each, points in ((bandit, X), (twin, other)):
            each.tell(points, torch.sin(5.0 * points).sum(-1))


# -------------------------------------------------------------------- means without variances

MODELS = {
    "nystrom": lambda X, Y, **kwargs: NystromGP(X, Y, inducing_points=X[::2], **kwargs),
    "online": lambda X, Y, **kwargs: OnlineGP(X, Y, **kwargs),
}
KINDS = {
    "plain": lambda Y: {"regularization": LAMBDA},
    "own noise": lambda Y: {"train_Yvar": torch.linspace(0.01, 0.2, Y.numel(), dtype=DOUBLE).view_as(Y)},
    "prior mean": lambda Y: {"regularization": LAMBDA, "mean_module": ConstantMean().double().initialize(constant=3.0)},
    "scaled inputs": lambda Y: {"regularization": LAMBDA, "input_transform": Normalize(d=2)},
}


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(MODELS))
def test_observed_means_are_those_of_the_posterior(name, kind, outputs):
    X, Y = data(30, 2)
    X = torch.cat([X, X[:5]])
    Y = torch.cat([Y, -Y[:5]])
    Y = torch.cat([Y, Y.square()], dim=-1)[:, :outputs]
    model = MODELS[name](X, Y, covar_module=matern(), **KINDS[kind](Y))
    expected = model.posterior(X).mean.detach()
    assert difference(model.observed_means(), expected.squeeze(-1) if outputs == 1 else expected.mT) < 1e-8


def test_observed_means_are_in_transformed_units():
    X, Y = data(30, 2)
    transform = Standardize(m=1)
    model = OnlineGP(X, 7.0 + 5.0 * Y, covar_module=matern(), regularization=LAMBDA, outcome_transform=transform)
    means = transform.untransform(model.observed_means().unsqueeze(-1))[0].squeeze(-1)
    assert difference(means, model.posterior(X).mean.squeeze(-1)) < 1e-8
