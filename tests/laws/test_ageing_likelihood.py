"""Observations whose noise grows with their age, in the models of BoTorch and of this package, against formulas."""

import copy
import math
import pickle

import numpy as np
import oracles
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.settings import propagate_grads
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from problems import DOUBLE, data, difference, exactly, rbf

import torch_kbandits as kb
from torch_kbandits.memory import ages, negligible

LEVEL, NOW = 0.05, 20.0
FORMULAS = {
    kb.QuadraticGrowth: lambda age: LEVEL * ((0.02 * age**2) + 1.0),
    kb.LinearGrowth: lambda age: LEVEL + 0.03 * age,
    kb.ExponentialGrowth: lambda age: LEVEL * 0.8**-age,
}
GROWTHS = [kb.QuadraticGrowth(0.02), kb.LinearGrowth(0.03), kb.ExponentialGrowth(0.8)]
STILL = [kb.QuadraticGrowth(0.0), kb.LinearGrowth(0.0), kb.ExponentialGrowth(1.0)]
SPACE = oracles.rbf(0.4)


def dense_space(A, B):
    return SPACE(A[:, :2], B[:, :2])


def space():
    kernel = rbf(0.4)
    kernel.active_dims = torch.tensor([0, 1])
    return kernel


def spacetime(n=24):
    """Points (n, 3) whose last column is the time, some of them repeated, and rewards (n, 1)."""
    X, Y = data(n, 2)
    X[n // 2] = X[0]
    times = torch.linspace(0.0, NOW, n, dtype=DOUBLE)
    times[1] = times[2]
    return torch.cat([X, times.unsqueeze(-1)], dim=-1), Y


X, Y = spacetime()
T = torch.cat([data(5, 2, seed=9)[0], torch.full((5, 1), NOW, dtype=DOUBLE)], dim=-1)
Z = X[1::3]


def ageing(growth, **words):
    """The likelihood at NOW, of times in the last column."""
    words = {"regularization": LEVEL, "now": NOW, "time_column": -1, **words}
    return kb.UncertaintyInjectionLikelihood(growth, **words)


def single_task(X, Y, likelihood, kernel=None):
    words = {"mean_module": ZeroMean(), "outcome_transform": None}
    return SingleTaskGP(X, Y, likelihood=likelihood, covar_module=kernel or space(), **words)


def online(X, Y, likelihood):
    return kb.OnlineGP(X, Y, likelihood=likelihood, covar_module=space())


def nystrom(X, Y, likelihood):
    return kb.NystromGP(X, Y, inducing_points=X, likelihood=likelihood, covar_module=space())


def at_a_dictionary(X, Y, likelihood):
    return kb.NystromGP(X, Y, inducing_points=Z, likelihood=likelihood, covar_module=space())


MODELS = [single_task, online, at_a_dictionary]
over_models = pytest.mark.parametrize("make", MODELS)
over_growths = pytest.mark.parametrize("growth", GROWTHS)


def noise_of(growth, X, now=NOW):
    return FORMULAS[type(growth)](now - X[:, -1].numpy())


def assert_posterior(model, X, Y, noise, T=T, make=None):
    A, y, B = X.numpy(), Y.squeeze(-1).numpy(), T.numpy()
    if make is at_a_dictionary:
        expected = oracles.dtc(dense_space, A, y, noise, Z.numpy(), B)
    else:
        expected = oracles.exact(dense_space, A, y, noise, B)
    posterior, alone = model.posterior(T), model.posterior(T.unsqueeze(-2))
    assert difference(posterior.mean.squeeze(-1), expected.mean) < expected.rounding
    assert difference(posterior.mvn.covariance_matrix, expected.covariance) < expected.rounding
    assert difference(alone.variance.flatten(), expected.variance) < expected.rounding
    if make in (online, at_a_dictionary):
        read = oracles.evidence(dense_space, A, y, noise, Z.numpy() if make is at_a_dictionary else None)
        for name, value in read.items():
            assert float(getattr(model, name)()) == pytest.approx(value, rel=1e-8, abs=1e-8), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_noise_is_finite_monotone_and_fresh_at_age_zero_and_of_what_is_still_exactly_the_same(dtype):
    age, level = torch.tensor([0.0, 0.5, 1.0, 1e2, 1e4, 1e9], dtype=dtype), torch.tensor(0.013, dtype=dtype)
    for growth in GROWTHS:
        noise = growth.noise(age, 0.013)
        assert noise.dtype == dtype
        assert noise[0] == level
        assert bool(noise.isfinite().all())
        assert bool((noise[1:] >= noise[:-1]).all())
        assert copy.deepcopy(growth) == growth == pickle.loads(pickle.dumps(growth))
    for growth in STILL:
        assert torch.equal(growth.noise(age, level), level.expand(6))
    assert kb.QuadraticGrowth() == kb.QuadraticGrowth(1)
    assert kb.LinearGrowth(0.1) != kb.LinearGrowth(0.2)


@pytest.mark.one_in(6)
@over_models
@over_growths
def test_posteriors_are_the_dense_ones_as_time_passes(growth, make):
    model = make(X, Y, ageing(growth))
    first = model.posterior(T).mean
    for now in (NOW, 25.0, 100.0, 20.0):
        if make is single_task or now == 25.0:
            kb.at_time(model, now)
        else:
            model.likelihood.now = now
        assert float(model.likelihood.now) == now
        assert_posterior(model, X, Y, noise_of(growth, X, now), make=make)
    assert torch.equal(model.posterior(T).mean, first)
    if make is online:
        other = make(X, Y, ageing(growth))
        other.posterior(T)
        model.likelihood.now = 30.0
        other.load_state_dict(model.state_dict())
        assert_posterior(other, X, Y, noise_of(growth, X, 30.0))


@over_models
def test_predicted_observations_are_as_old_as_their_column_says(make):
    model = make(X, Y, ageing(kb.LinearGrowth(0.03), max_variance=0.2))
    added = model.posterior(T, observation_noise=True).variance - model.posterior(T).variance
    assert difference(added, np.full((5, 1), LEVEL)) < 1e-12
    old = torch.cat([T[:, :2], torch.zeros(5, 1, dtype=DOUBLE)], dim=-1)
    added = model.posterior(old, observation_noise=True).variance - model.posterior(old).variance
    assert difference(added, np.full((5, 1), LEVEL + 0.03 * NOW)) < 1e-12


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", [online, at_a_dictionary])
@over_growths
def test_a_model_told_and_made_to_forget_while_time_passes_is_the_rebuilt_one(growth, make):
    X, Y = spacetime(16)
    X[:, -1] = torch.arange(16.0, dtype=DOUBLE)
    noise = noise_of(growth, X[11:], 15.0)
    for words in ({}, {"max_variance": float(noise.max()) * 1.001}):
        model = make(X[:0], Y[:0], ageing(growth, now=0.0, **words))
        for t in range(16):
            model.likelihood.now = float(t)
            model.tell(X[t : t + 1], Y[t : t + 1])
            if t >= 5 and not words:
                model.remove([0])
        assert_posterior(model, X[11:], Y[11:], noise, make=make)


@pytest.mark.parametrize("make", [single_task, online, nystrom])
def test_conditioning_is_rebuilding_and_fantasies_join_at_age_zero(make):
    growth = kb.LinearGrowth(0.03)
    model = make(X, Y, ageing(growth))
    model.posterior(T)
    new = torch.tensor([[0.3], [-0.2]], dtype=DOUBLE)
    conditioned = model.condition_on_observations(T[:2], new)
    both, rewards = torch.cat([X, T[:2]]), torch.cat([Y, new])
    assert_posterior(conditioned, both, rewards, noise_of(growth, both))
    assert_posterior(model, X, Y, noise_of(growth, X))
    kb.at_time(conditioned, 26.0)
    assert_posterior(conditioned, both, rewards, noise_of(growth, both, 26.0))
    assert float(model.likelihood.now) == NOW
    fantasies = model.fantasize(T[:2], SobolQMCNormalSampler(torch.Size([3]), seed=0))
    known = both.numpy(), rewards[:, 0].numpy(), noise_of(growth, both)
    expected = oracles.exact(dense_space, *known, T.numpy())
    variance = fantasies.posterior(T[:, None, None, :]).variance.squeeze(-1).squeeze(-1)
    assert difference(variance, np.tile(expected.variance[:, None], 3)) < expected.rounding


@pytest.mark.one_in(6)
@over_models
@over_growths
def test_beyond_the_cut_off_observations_count_nothing(growth, make):
    noise = noise_of(growth, X)
    bound = float(np.median(noise)) * 1.001
    kept = torch.tensor(noise <= bound)
    assert 0 < int(kept.sum()) < len(X)
    model = make(X, Y, ageing(growth, max_variance=bound))
    assert_posterior(model, X[kept], Y[kept], noise[kept.numpy()], make=make)
    if make is online:
        assert difference(model.leverage_scores()[~kept], np.zeros(int((~kept).sum()))) < 1e-12


def test_a_fresh_observation_is_never_cut_off_and_learning_sees_all():
    likelihood = ageing(kb.LinearGrowth(0.03), max_variance=0.06)
    likelihood.noise = 0.5  # learned beyond the bound
    noise = online(X, Y, likelihood).likelihood.observation_noise(X)
    assert noise[-1].item() == pytest.approx(0.5, rel=1e-12)
    assert noise[0].item() == pytest.approx(float(negligible(exactly(0.5))), rel=1e-12)
    with_bound, without = (
        ExactMarginalLogLikelihood(part.likelihood, part)(part(X), part.train_targets, X).item()
        for part in (
            single_task(X, Y, ageing(kb.LinearGrowth(0.03), **words)).train() for words in ({"max_variance": 0.2}, {})
        )
    )
    assert with_bound == without


@over_growths
def test_the_marginal_likelihood_is_the_dense_one(growth):
    """At a dictionary its bound."""
    noise, y, A = noise_of(growth, X), Y.squeeze(-1).numpy(), X.numpy()
    exact = oracles.log_density(y, dense_space(A, A) + np.diag(noise))
    bound = oracles.collapsed_bound(dense_space, A, y, noise, Z.numpy())
    for make in (single_task, online, at_a_dictionary):
        model = make(X, Y, ageing(growth)).train()
        value = ExactMarginalLogLikelihood(model.likelihood, model)(model(X), model.train_targets, X) * len(y)
        assert value.item() == pytest.approx(bound if make is at_a_dictionary else exact, rel=1e-8)


@pytest.mark.one_in(3)
@over_models
@over_growths
def test_gradients_reach_the_growth(growth, make):
    model = make(X[:8], Y[:8], ageing(growth))
    parameter = getattr(model.likelihood.noise_covar, f"raw_{growth.parameter}")

    def mean(value):
        with torch.no_grad():
            parameter.copy_(value)
        model.train().eval()
        with propagate_grads(True):
            return model.posterior(T).mean.sum()

    start, step = parameter.detach().clone(), 1e-6
    (gradient,) = torch.autograd.grad(mean(start), parameter)
    numeric = (mean(start + step) - mean(start - step)).item() / (2.0 * step)
    assert gradient.item() == pytest.approx(numeric, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("make", MODELS[:2])
def test_single_precision_stays_finite_and_near(make):
    noise = noise_of(kb.LinearGrowth(0.03), X)
    for bound in (None, 0.4):
        kept = noise <= (bound or math.inf)
        expected = oracles.exact(dense_space, X.numpy()[kept], Y[:, 0].numpy()[kept], noise[kept], T.numpy())
        model = make(X.float(), Y.float(), ageing(kb.LinearGrowth(0.03), max_variance=bound))
        model.covar_module.float()
        assert model.posterior(T.float()).mean.dtype == torch.float32
        assert difference(model.posterior(T.float()).mean.squeeze(-1), expected.mean) < 1e-3


@over_growths
def test_states_and_copies_keep_numbers_exactly(growth):
    likelihood = ageing(growth, now=33.0)
    loaded = ageing(type(growth)(0.5), regularization=1.0)
    loaded.load_state_dict(likelihood.state_dict())
    for twin in (loaded, copy.deepcopy(likelihood)):
        assert torch.equal(twin.observation_noise(X), likelihood.observation_noise(X))
        assert float(twin.now) == 33.0
        assert twin.growth == growth
        assert twin.growth_parameter.item() == growth.value
        assert twin.noise.item() == pytest.approx(LEVEL, rel=1e-15)
    other = ageing(kb.ExponentialGrowth(0.5) if growth.parameter == "rate" else kb.LinearGrowth(0.5))
    with pytest.raises(RuntimeError, match="raw_"):
        other.load_state_dict(ageing(growth).state_dict())


@pytest.mark.parametrize("make", MODELS[:2])
def test_batches_of_data(make):
    batch_X, batch_Y = torch.stack([X, X.roll(3, 0)]), torch.stack([Y, Y + 0.5])
    batch_X[1, :, -1] = X[:, -1] / 2.0
    posterior = make(batch_X, batch_Y, ageing(kb.LinearGrowth(0.03))).posterior(T.expand(2, 5, 3))
    for i in range(2):
        known = batch_X[i].numpy(), batch_Y[i, :, 0].numpy(), noise_of(kb.LinearGrowth(0.03), batch_X[i])
        expected = oracles.exact(dense_space, *known, T.numpy())
        assert difference(posterior.mean[i].squeeze(-1), expected.mean) < expected.rounding
        assert difference(posterior.mvn.covariance_matrix[i], expected.covariance) < expected.rounding


BAD_WORDS = [
    ({"growth": kb.ExponentialGrowth(1e-20)}, "discount must be at least"),
    ({"max_variance": 0.05}, "max_variance must be above"),
]


def test_what_makes_no_sense_is_named():
    for words, message in BAD_WORDS:
        given = {"growth": kb.LinearGrowth(0.1), "regularization": LEVEL, "now": NOW, "time_column": -1, **words}
        with pytest.raises(kb.InputError, match=message):
            kb.UncertaintyInjectionLikelihood(given.pop("growth"), **given)
    likelihood, broken = ageing(kb.LinearGrowth(0.03)), ageing(kb.LinearGrowth(0.03))
    broken.noise_covar.raw_rate.data.fill_(-1.0)
    wrong = {
        "now is 4, and 19 of 24 times are later or NaN, such as": lambda: ages(X[:, -1], torch.tensor(4.0)),
        "No part of the model": lambda: kb.at_time(kb.OnlineGP(X, Y, regularization=0.1, covar_module=space()), 30.0),
        "time_column is 7": lambda: online(X, Y, ageing(kb.LinearGrowth(0.03), time_column=7)).posterior(T),
        "either a likelihood or a regularization": lambda: kb.OnlineGP(X, Y, likelihood=likelihood, regularization=0.1),
        "is a column of the inputs: give them": lambda: likelihood(single_task(X, Y, likelihood).train()(X)),
        "growth_constraint that maps to the inside": lambda: broken.observation_noise(X),
        "says itself|follows from its age": lambda: online(X, Y, likelihood).tell(T, Y[:5], Y[:5].abs()),
        "says itself|from its age": lambda: at_a_dictionary(X, Y, likelihood).tell(T, Y[:5], Y[:5].abs()),
    }
    for message, call in wrong.items():
        with pytest.raises(kb.InputError, match=message):
            call()


@over_models
def test_time_does_not_go_backwards_and_noise_is_said_by_the_age_alone(make):
    model = make(X, Y, ageing(kb.LinearGrowth(0.03)))
    before, future = model.posterior(T).mean, T.clone()
    future[0, -1] = NOW + 1.0
    model.posterior(future)
    wrong = [lambda: kb.at_time(model, 19.9), lambda: model.posterior(future, observation_noise=True)]
    if make is not single_task:
        wrong += [
            lambda: model.tell(future[:1], Y[:1]),
            lambda: model.condition_on_observations(future[:1], Y[:1]).posterior(T),
        ]
    for call in wrong:
        with pytest.raises(kb.InputError, match="Time must not go backwards"):
            call()
    with pytest.raises(kb.InputError, match="now must be a finite number"):
        kb.at_time(model, math.nan)
    with pytest.raises(kb.InputError, match="leave noise out"):
        model.condition_on_observations(T[:1], Y[:1], noise=Y[:1].abs())
    assert float(model.likelihood.now) == NOW
    assert torch.equal(model.posterior(T).mean, before)
