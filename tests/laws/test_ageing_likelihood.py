"""Observations whose noise grows with their age, in the models of BoTorch and of this package, against formulas."""

import copy
import math

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.settings import propagate_grads
from gpytorch.constraints import Interval, Positive
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from hypothesis import given
from problems import DOUBLE, data, difference, exactly, rbf, scaled

from torch_kbandits import (
    Exponential,
    InputError,
    KernelUCB,
    Linear,
    NystromGP,
    OnlineGP,
    Quadratic,
    UncertaintyInjectionLikelihood,
    at_time,
)
from torch_kbandits.memory import negligible

LEVEL, NOW = 0.05, 20.0
NUMBER = {Quadratic: 0.02, Linear: 0.03, Exponential: 0.8}
FORMULAS = {
    Quadratic: lambda age: LEVEL * ((0.02 * age**2) + 1.0),
    Linear: lambda age: LEVEL + 0.03 * age,
    Exponential: lambda age: LEVEL * 0.8**-age,
}
GROWTHS = [kind(number) for kind, number in NUMBER.items()]
STILL = [Quadratic(0.0), Linear(0.0), Exponential(1.0)]
SPACE = oracles.rbf(0.4)


def dense_space(A, B):
    """The kernel on space alone, of points whose last column is the time."""
    return SPACE(A[:, :2], B[:, :2])


def space():
    kernel = rbf(0.4)
    kernel.active_dims = torch.tensor([0, 1])
    return kernel


def spacetime(n=24, seed=0):
    """Points (n, 3) whose last column is the time, some of them repeated, and rewards (n, 1)."""
    X, Y = data(n, 2, seed)
    X[n // 2] = X[0]
    times = torch.linspace(0.0, NOW, n, dtype=DOUBLE)
    times[1] = times[2]
    return torch.cat([X, times.unsqueeze(-1)], dim=-1), Y


def queries():
    X, _ = data(5, 2, seed=9)
    return torch.cat([X, torch.full((5, 1), NOW, dtype=DOUBLE)], dim=-1)


def ageing(growth, X=None, **kwargs):
    """The likelihood at NOW, of times in the last column, or of those of X if there is one."""
    where = {"time_column": -1} if X is None else {"times": X[:, -1]}
    return UncertaintyInjectionLikelihood(growth, **{"regularization": LEVEL, "now": NOW, **where, **kwargs})


def single_task(X, Y, likelihood, kernel=None):
    kernel = space() if kernel is None else kernel
    return SingleTaskGP(
        X, Y, likelihood=likelihood, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None
    )


def online(X, Y, likelihood):
    return OnlineGP(X, Y, likelihood=likelihood, covar_module=space())


def nystrom(X, Y, likelihood):
    return NystromGP(X, Y, inducing_points=X, likelihood=likelihood, covar_module=space())


MODELS = [single_task, online, nystrom]


def truth(X, Y, noise, T, Z=None):
    A, y, B = X.numpy(), Y.squeeze(-1).numpy(), T.numpy()
    if Z is None:
        return oracles.exact(dense_space, A, y, noise, B)
    return oracles.dtc(dense_space, A, y, noise, Z.numpy(), B)


def expected_noise(growth, X, now=NOW):
    return FORMULAS[type(growth)](now - X[:, -1].numpy())


def assert_posterior(model, T, expected):
    posterior = model.posterior(T)
    assert difference(posterior.mean.squeeze(-1), expected.mean) < expected.rounding
    assert difference(posterior.mvn.covariance_matrix, expected.covariance) < expected.rounding
    single = model.posterior(T.unsqueeze(-2))
    assert difference(single.variance.squeeze(-1).squeeze(-1), expected.variance) < expected.rounding


# -------------------------------------------------------------------- the dense formulas


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("growth", GROWTHS)
def test_exact_posteriors_are_the_dense_ones(growth, make, of_times):
    X, Y = spacetime()
    model = make(X, Y, ageing(growth, X if of_times else None))
    assert_posterior(model, queries(), truth(X, Y, expected_noise(growth, X), queries()))


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("growth", GROWTHS)
def test_nystrom_posteriors_are_the_dense_ones(growth, of_times):
    X, Y = spacetime()
    Z = X[1::3]
    likelihood = ageing(growth, X if of_times else None)
    model = NystromGP(X, Y, inducing_points=Z, likelihood=likelihood, covar_module=space())
    noise = expected_noise(growth, X)
    assert_posterior(model, queries(), truth(X, Y, noise, queries(), Z))
    gain = oracles.dtc_information_gain(dense_space, X.numpy(), noise, Z.numpy())
    assert model.information_gain().item() == pytest.approx(gain, rel=1e-8)


@given(
    seed=st.integers(0, 1000),
    n=st.integers(1, 12),
    ages=st.lists(st.sampled_from([0.0, 1e-9, 0.5, 3.0, 19.0]), min_size=12, max_size=12),
    growth=st.sampled_from(GROWTHS),
)
def test_any_data_and_any_ages(seed, n, ages, growth):
    X, Y = data(n, 2, seed)
    X = torch.cat([X[torch.arange(n) // 2], NOW - torch.tensor(ages[:n], dtype=DOUBLE).unsqueeze(-1)], dim=-1)
    expected = truth(X, Y, expected_noise(growth, X), queries())
    for make in (single_task, online):
        assert_posterior(make(X, Y, ageing(growth)), queries(), expected)


@pytest.mark.parametrize("growth", GROWTHS)
def test_what_models_know_of_themselves(growth):
    X, Y = spacetime()
    noise = expected_noise(growth, X)
    model = online(X, Y, ageing(growth))
    gram = dense_space(X.numpy(), X.numpy())
    variance = np.diag(gram - gram @ np.linalg.solve(gram + np.diag(noise), gram))
    assert difference(model.leverage_scores(), variance / noise) < 1e-8
    assert model.effective_dimension().item() == pytest.approx((variance / noise).sum(), rel=1e-8)
    gain = 0.5 * np.linalg.slogdet(np.eye(len(X)) + gram / np.sqrt(np.outer(noise, noise)))[1]
    assert model.information_gain().item() == pytest.approx(gain, rel=1e-8)
    assert model.regularization.item() == pytest.approx(LEVEL, rel=1e-15)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("growth", STILL)
def test_what_forgets_nothing_is_the_static_model_exactly(growth, make):
    X, Y = spacetime()
    kernel, T = space(), queries()
    likelihood = ageing(growth)
    level = likelihood.noise.detach()
    if make is single_task:
        static = SingleTaskGP(
            X, Y, level.expand(Y.shape), covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None
        )
    elif make is online:
        static = OnlineGP(X, Y, level.expand(Y.shape), covar_module=kernel)
    else:
        static = NystromGP(X, Y, level.expand(Y.shape), inducing_points=X, covar_module=kernel)
    ours, theirs = make(X, Y, likelihood).posterior(T), static.posterior(T)
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.variance, theirs.variance)


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
def test_predicted_observations_are_fresh(make, of_times):
    X, Y = spacetime()
    model = make(X, Y, ageing(Linear(0.03), X if of_times else None))
    T = queries()
    noisy, latent = model.posterior(T, observation_noise=True), model.posterior(T)
    assert difference(noisy.variance - latent.variance, np.full((5, 1), LEVEL)) < 1e-12


def test_with_a_column_of_time_old_predictions_have_the_noise_of_old_observations_and_are_not_dropped():
    X, Y = spacetime()
    likelihood = ageing(Linear(0.03), max_variance=0.2)
    T = queries()
    T[:, -1] = 0.0
    for make in MODELS:
        model = make(X, Y, copy.deepcopy(likelihood))
        added = model.posterior(T, observation_noise=True).variance - model.posterior(T).variance
        assert difference(added, np.full((5, 1), LEVEL + 0.03 * NOW)) < 1e-12


# -------------------------------------------------------------------- time passes


@pytest.mark.one_in(2)
@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
def test_as_time_passes_posteriors_follow(make, of_times):
    X, Y = spacetime()
    growth = Quadratic(0.02)
    model = make(X, Y, ageing(growth, X if of_times else None))
    T = queries()
    first = model.posterior(T).mean
    for now in (25.0, 100.0, 20.0):
        at_time(model, now)
        assert float(model.likelihood.now) == now
        assert_posterior(model, T, truth(X, Y, expected_noise(growth, X, now), T))
    assert torch.equal(model.posterior(T).mean, first)


@pytest.mark.parametrize("make", [online, nystrom])
def test_models_of_this_package_notice_by_themselves(make):
    X, Y = spacetime()
    growth = Quadratic(0.02)
    model = make(X, Y, ageing(growth))
    model.posterior(queries())
    model.likelihood.now = 30.0
    assert_posterior(model, queries(), truth(X, Y, expected_noise(growth, X, 30.0), queries()))
    state = model.state_dict()
    other = make(X, Y, ageing(growth))
    other.posterior(queries())
    other.load_state_dict(state)
    assert_posterior(other, queries(), truth(X, Y, expected_noise(growth, X, 30.0), queries()))
    with torch.no_grad():
        model.likelihood.now.fill_(40.0)
    assert_posterior(model, queries(), truth(X, Y, expected_noise(growth, X, 40.0), queries()))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("growth", GROWTHS)
def test_a_model_told_and_made_to_forget_while_time_passes_is_the_rebuilt_one(growth):
    X, Y = spacetime(16)
    X[:, -1] = torch.arange(16.0, dtype=DOUBLE)
    model = online(X[:5], Y[:5], ageing(growth, now=4.0))
    for t in range(5, 16):
        model.likelihood.now = float(t)
        model.tell(X[t : t + 1], Y[t : t + 1])
        model.remove([0])
    kept = slice(11, 16)
    T = queries()
    assert_posterior(model, T, truth(X[kept], Y[kept], expected_noise(growth, X[kept], 15.0), T))


@pytest.mark.parametrize(
    ("make", "of_times"), [(single_task, False), (online, False), (online, True), (nystrom, False), (nystrom, True)]
)
def test_conditioning_is_rebuilding(make, of_times):
    X, Y = spacetime()
    model = make(X, Y, ageing(Linear(0.03), X if of_times else None))
    model.posterior(queries())
    new_X, new_Y = queries()[:2], torch.tensor([[0.3], [-0.2]], dtype=DOUBLE)
    conditioned = model.condition_on_observations(new_X, new_Y)
    both, rewards = torch.cat([X, new_X]), torch.cat([Y, new_Y])
    noise = expected_noise(Linear(0.03), both)
    assert_posterior(conditioned, queries(), truth(both, rewards, noise, queries()))
    assert_posterior(model, queries(), truth(X, Y, noise[: len(X)], queries()))
    at_time(conditioned, 26.0)
    later = expected_noise(Linear(0.03), both, 26.0)
    assert_posterior(conditioned, queries(), truth(both, rewards, later, queries()))
    assert float(model.likelihood.now) == NOW


@pytest.mark.parametrize("make", MODELS)
def test_fantasies_join_at_age_zero(make):
    X, Y = spacetime()
    model = make(X, Y, ageing(Quadratic(0.02)))
    fantasies = model.fantasize(queries()[:2], SobolQMCNormalSampler(torch.Size([3]), seed=0))
    both = torch.cat([X, queries()[:2]])
    noise = np.concatenate([expected_noise(Quadratic(0.02), X), [LEVEL, LEVEL]])
    expected = truth(both, torch.zeros(len(both), 1), noise, queries())
    variance = fantasies.posterior(queries()[:, None, None, :]).variance.squeeze(-1).squeeze(-1)
    assert difference(variance, np.tile(expected.variance[:, None], 3)) < expected.rounding


def test_a_list_of_models_ages_together():
    X, Y = spacetime()
    models = ModelListGP(single_task(X, Y, ageing(Linear(0.03))), online(X, -Y, ageing(Quadratic(0.02))))
    models.posterior(queries())
    at_time(models, 27.0)
    for part, growth, sign in zip(models.models, (Linear(0.03), Quadratic(0.02)), (1, -1), strict=True):
        assert_posterior(part, queries(), truth(X, sign * Y, expected_noise(growth, X, 27.0), queries()))
    with pytest.raises(InputError, match="Time must not go backwards"):
        at_time(models, 19.0)
    assert [float(part.likelihood.now) for part in models.models] == [27.0, 27.0]


# -------------------------------------------------------------------- the cut-off


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("growth", GROWTHS)
def test_beyond_the_cut_off_observations_count_nothing(growth, make, of_times):
    X, Y = spacetime()
    noise = expected_noise(growth, X)
    bound = float(np.median(noise)) * 1.001
    kept = torch.tensor(noise <= bound)
    assert 0 < int(kept.sum()) < len(X)
    model = make(X, Y, ageing(growth, X if of_times else None, max_variance=bound))
    expected = truth(X[kept], Y[kept], noise[kept.numpy()], queries())
    assert_posterior(model, queries(), expected)
    if make is online:
        assert difference(model.leverage_scores()[~kept], np.zeros(int((~kept).sum()))) < 1e-12


def test_nystrom_with_a_cut_off_keeps_its_dictionary():
    X, Y = spacetime()
    growth, Z = Linear(0.03), X[1::3]
    noise = expected_noise(growth, X)
    kept = torch.tensor(noise <= 0.4)
    model = NystromGP(
        X, Y, inducing_points=Z, likelihood=ageing(growth, max_variance=0.4), covar_module=space()
    )  # fmt: skip
    assert_posterior(model, queries(), truth(X[kept], Y[kept], noise[kept.numpy()], queries(), Z))


def test_an_online_model_can_be_told_when_much_is_cut_off():
    X, Y = spacetime(30)
    X[:, -1] = torch.arange(30.0, dtype=DOUBLE)
    model = online(X[:1], Y[:1], ageing(Exponential(0.8), now=0.0, max_variance=LEVEL * 0.8**-5.5))
    for t in range(1, 30):
        model.likelihood.now = float(t)
        model.tell(X[t : t + 1], Y[t : t + 1])
    expected = truth(X[24:], Y[24:], expected_noise(Exponential(0.8), X[24:], 29.0), queries())
    assert_posterior(model, queries(), expected)


def test_a_fresh_observation_is_never_cut_off_and_learning_sees_all():
    X, Y = spacetime()
    likelihood = ageing(Linear(0.03), max_variance=0.06)
    likelihood.noise = 0.5  # learned beyond the bound
    model = online(X, Y, likelihood)
    noise = model.likelihood.observation_noise(X)
    assert noise[-1].item() == pytest.approx(0.5, rel=1e-12)
    assert noise[0].item() == pytest.approx(float(negligible(exactly(0.5))), rel=1e-12)
    with_bound, without = (
        ExactMarginalLogLikelihood(part.likelihood, part)(part(X), part.train_targets, X).item()
        for part in (
            single_task(X, Y, ageing(Linear(0.03), max_variance=0.2)).train(),
            single_task(X, Y, ageing(Linear(0.03))).train(),
        )
    )
    assert with_bound == without


# -------------------------------------------------------------------- learning


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("growth", GROWTHS)
def test_the_marginal_likelihood_is_the_dense_one(growth, of_times):
    X, Y = spacetime()
    noise, y = expected_noise(growth, X), Y.squeeze(-1).numpy()
    K = dense_space(X.numpy(), X.numpy()) + np.diag(noise)
    dense = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + len(y) * math.log(2.0 * math.pi))
    for make in (single_task, online):
        model = make(X, Y, ageing(growth, X if of_times else None)).train()
        value = ExactMarginalLogLikelihood(model.likelihood, model)(model(X), model.train_targets, X) * len(y)
        assert value.item() == pytest.approx(dense, rel=1e-8)
    Z = X[1::3]
    model = NystromGP(X, Y, inducing_points=Z, likelihood=ageing(growth), covar_module=space()).train()
    bound = ExactMarginalLogLikelihood(model.likelihood, model)(model(X), model.train_targets, X) * len(y)
    assert bound.item() == pytest.approx(heteroscedastic_bound(X.numpy(), y, noise, Z.numpy()), rel=1e-8)


def heteroscedastic_bound(X, y, noise, Z):
    """log N(y | 0, Q + Σ) − ½ Σ_s (k − q)_ss / λ_s."""
    K_ZX = dense_space(Z, X)
    Q = K_ZX.T @ np.linalg.solve(dense_space(Z, Z), K_ZX)
    C = Q + np.diag(noise)
    density = -0.5 * (y @ np.linalg.solve(C, y) + np.linalg.slogdet(C)[1] + len(y) * math.log(2.0 * math.pi))
    return density - 0.5 * float(((1.0 - np.diag(Q)) / noise).sum())


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("true", "start", "constraint", "tolerance"),
    [
        (Quadratic(0.02), Quadratic(0.5), None, 0.55),
        (Quadratic(0.02), Quadratic(0.5), Positive(), 0.55),
        (Linear(0.03), Linear(0.0), None, 0.35),
        (Exponential(0.8), Exponential(1.0), None, 0.03),
        (Exponential(0.8), Exponential(0.99), Interval(0.0, 1.0), 0.03),
    ],
    ids=lambda value: str(value),
)
def test_growth_is_learned_by_marginal_likelihood(true, start, constraint, tolerance):
    """300 observations with the noise of the true growth, at a fixed seed.

    Tolerances are relative: three deviations of the estimates over 12 other seeds, 0.18, 0.12 and 0.01, so that another
    seed would fail by chance with probability 0.003.
    """
    n, generator = 300, np.random.default_rng(1)
    X = np.column_stack([generator.uniform(size=(n, 2)), generator.uniform(0.0, NOW, size=n)])
    noise = FORMULAS[type(true)](NOW - X[:, 2])
    y = np.linalg.cholesky(dense_space(X, X) + np.diag(noise)) @ generator.normal(size=n)
    kernel = space().requires_grad_(False)
    model = single_task(
        torch.tensor(X), torch.tensor(y).unsqueeze(-1), ageing(start, growth_constraint=constraint), kernel
    )
    model.likelihood.noise_covar.raw_noise.requires_grad_(False)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert model.likelihood.growth.value == pytest.approx(true.value, rel=tolerance)
    assert model.likelihood.growth_parameter.item() == model.likelihood.growth.value


def test_both_numbers_are_learned_together_and_may_be_fixed():
    n, generator = 200, np.random.default_rng(2)
    X = np.column_stack([generator.uniform(size=(n, 2)), generator.uniform(0.0, NOW, size=n)])
    y = np.linalg.cholesky(dense_space(X, X) + np.diag(FORMULAS[Linear](NOW - X[:, 2]))) @ generator.normal(size=n)
    X, Y = torch.tensor(X), torch.tensor(y).unsqueeze(-1)
    for make in (single_task, online):
        model = make(X, Y, ageing(Linear(0.3), regularization=0.5))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        assert model.likelihood.growth.value == pytest.approx(0.03, rel=0.4)
        assert model.likelihood.noise.item() == pytest.approx(LEVEL, rel=0.8)
    fixed = ageing(Linear(0.3))
    fixed.noise_covar.requires_grad_(False)
    model = single_task(X[:30], Y[:30], fixed)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert fixed.growth == Linear(0.3)
    assert fixed.noise.item() == pytest.approx(LEVEL, rel=1e-15)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("growth", GROWTHS)
def test_gradients_reach_the_growth(growth, make):
    X, Y = spacetime(8)
    model = make(X, Y, ageing(growth))
    parameter = getattr(model.likelihood.noise_covar, f"raw_{growth.parameter}")

    def mean(value):
        with torch.no_grad():
            parameter.copy_(value)
        model.train().eval()
        with propagate_grads(True):
            return model.posterior(queries()).mean.sum()

    start = parameter.detach().clone()
    (gradient,) = torch.autograd.grad(mean(start), parameter)
    step = 1e-6
    numeric = (mean(start + step) - mean(start - step)).item() / (2.0 * step)
    assert gradient.item() == pytest.approx(numeric, rel=1e-5, abs=1e-9)


# -------------------------------------------------------------------- dtypes, copies, batches


def test_single_precision():
    X, Y = spacetime()
    expected = truth(X, Y, expected_noise(Linear(0.03), X), queries())
    for make in MODELS:
        model = make(X.float(), Y.float(), ageing(Linear(0.03)))
        model.covar_module.float()
        posterior = model.posterior(queries().float())
        assert posterior.mean.dtype == torch.float32
        assert difference(posterior.mean.squeeze(-1), expected.mean) < 1e-3
    model = online(X, Y, ageing(Linear(0.03), X)).float()
    model.train_inputs, model.train_targets = (X.float(),), Y.squeeze(-1).float()
    assert difference(model.posterior(queries().float()).mean.squeeze(-1), expected.mean) < 1e-3


def test_single_precision_with_a_cut_off_stays_finite():
    X, Y = spacetime()
    noise = expected_noise(Linear(0.03), X)
    kept = torch.tensor(noise <= 0.4)
    expected = truth(X[kept], Y[kept], noise[kept.numpy()], queries())
    for make in (single_task, online):
        model = make(X.float(), Y.float(), ageing(Linear(0.03), max_variance=0.4))
        model.covar_module.float()
        assert difference(model.posterior(queries().float()).mean.squeeze(-1), expected.mean) < 1e-3


@pytest.mark.parametrize("growth", GROWTHS)
def test_states_and_copies(growth):
    X, Y = spacetime()
    for times in (None, X):
        likelihood = ageing(growth, times, now=33.0)
        loaded = ageing(type(growth)(0.5), times, regularization=1.0)
        loaded.load_state_dict(likelihood.state_dict())
        for twin in (loaded, copy.deepcopy(likelihood)):
            assert torch.equal(twin.observation_noise(X), likelihood.observation_noise(X))
            assert float(twin.now) == 33.0
            assert twin.growth == growth
    other = ageing(Exponential(0.5) if growth.parameter == "rate" else Linear(0.5))
    with pytest.raises(RuntimeError, match="raw_"):
        other.load_state_dict(ageing(growth).state_dict())
    model = copy.deepcopy(online(X, Y, ageing(growth)))
    assert_posterior(model, queries(), truth(X, Y, expected_noise(growth, X), queries()))


def test_numbers_are_kept_exactly():
    likelihood = ageing(Exponential(0.7), regularization=0.1)
    assert likelihood.growth == Exponential(0.7)
    assert likelihood.growth_parameter.item() == 0.7
    assert likelihood.noise.item() == pytest.approx(0.1, rel=1e-15)
    likelihood.noise = exactly(0.3)
    assert likelihood.noise.item() == pytest.approx(0.3, rel=1e-15)


@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
def test_batches_of_data(make, of_times):
    X, Y = spacetime()
    batch_X, batch_Y = torch.stack([X, X.roll(3, 0)]), torch.stack([Y, Y + 0.5])
    batch_X[1, :, -1] = X[:, -1] / 2.0
    where = {"times": batch_X[..., -1], "time_column": None} if of_times else {}
    model = make(batch_X, batch_Y, ageing(Linear(0.03), **where))
    for i in range(2):
        expected = truth(batch_X[i], batch_Y[i], expected_noise(Linear(0.03), batch_X[i]), queries())
        posterior = model.posterior(queries().expand(2, 5, 3))
        assert difference(posterior.mean[i].squeeze(-1), expected.mean) < expected.rounding
        assert difference(posterior.mvn.covariance_matrix[i], expected.covariance) < expected.rounding


@pytest.mark.parametrize("make", MODELS)
def test_outputs_with_growths_of_their_own(make):
    X, Y = spacetime()
    likelihood = ageing(Linear(0.03), batch_shape=(2,))
    likelihood.noise_covar.set_growth_parameter(torch.tensor([[0.03], [0.0]], dtype=DOUBLE))
    model = make(X, torch.cat([Y, Y], dim=-1), likelihood)
    mean = model.posterior(queries()).mean
    for o, noise in enumerate([expected_noise(Linear(0.03), X), np.full(len(X), LEVEL)]):
        expected = truth(X, Y, noise, queries())
        assert difference(mean[:, o], expected.mean) < expected.rounding
    with pytest.raises(InputError, match="growth_parameter"):
        _ = model.likelihood.growth


def test_no_observations_yet():
    X, Y = spacetime()
    for make in (online, nystrom):
        model = make(X[:0], Y[:0], ageing(Linear(0.03)))
        assert difference(model.posterior(queries()).variance, np.ones((5, 1))) < 1e-12
    model = online(X[:0], Y[:0], ageing(Linear(0.03)))
    model.tell(X, Y)
    assert_posterior(model, queries(), truth(X, Y, expected_noise(Linear(0.03), X), queries()))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("make", MODELS)
def test_botorchs_own_loop_with_the_time_fixed(make):
    X, Y = spacetime()
    model = make(X, Y, ageing(Linear(0.03)))
    bounds = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, NOW]], dtype=DOUBLE)
    acqf = KernelUCB(model, beta=2.0)
    x, value = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=16, fixed_features={2: NOW})
    assert float(x[0, 2]) == NOW
    with torch.no_grad():
        assert float(value) >= float(acqf(queries().unsqueeze(-2)).max()) - 1e-6


def test_a_transform_of_space_and_none_of_time():
    X, Y = spacetime()
    kernel = scaled(space(), 1.0)
    stretched = X * torch.tensor([3.0, 3.0, 1.0], dtype=DOUBLE)
    bounds = torch.tensor([[0.0, 0.0], [3.0, 3.0]], dtype=DOUBLE)
    transform = Normalize(3, indices=[0, 1], bounds=bounds)
    T = queries()
    model = OnlineGP(
        stretched, Y, likelihood=ageing(Linear(0.03)), covar_module=kernel, input_transform=transform
    )  # fmt: skip
    expected = truth(X, Y, expected_noise(Linear(0.03), X), T)
    assert_posterior(model, T * torch.tensor([3.0, 3.0, 1.0], dtype=DOUBLE), expected)
    with pytest.raises(InputError, match="The input transform changes column -1"):
        OnlineGP(X, Y, likelihood=ageing(Linear(0.03)), covar_module=space(), input_transform=Normalize(3))


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"growth": 0.1}, "growth must be"),
        ({"growth": Exponential(1e-20)}, "discount must be at least"),
        ({"regularization": 0.0}, "regularization must be"),
        ({"regularization": math.nan}, "regularization must be"),
        ({"now": math.inf}, "now must be a finite number"),
        ({"now": "noon"}, "now must be a number"),
        ({"time_column": None}, "Give either time_column"),
        ({"times": torch.zeros(3)}, "Give either time_column"),
        ({"time_column": 1.0}, "time_column must be a whole number"),
        ({"time_column": True}, "time_column must be a whole number"),
        ({"time_column": None, "times": ["noon"]}, "times must be"),
        ({"time_column": None, "times": torch.tensor([1, 2])}, "times must have a floating dtype"),
        ({"time_column": None, "times": torch.tensor([math.nan])}, "times"),
        ({"time_column": None, "times": torch.tensor(1.0)}, "a time for each training point"),
        ({"time_column": None, "times": torch.tensor([1.0, 21.0])}, "Time must not go backwards: now is 20, and 1 of"),
        ({"max_variance": 0.05}, "max_variance must be above"),
        ({"max_variance": -1.0}, "max_variance must be"),
    ],
)
def test_what_is_refused(kwargs, message):
    given = {"growth": Linear(0.1), "regularization": LEVEL, "now": NOW, "time_column": -1, **kwargs}
    with pytest.raises(InputError, match=message):
        UncertaintyInjectionLikelihood(given.pop("growth"), **given)


@pytest.mark.parametrize("make", MODELS)
def test_time_does_not_go_backwards(make):
    X, Y = spacetime()
    model = make(X, Y, ageing(Linear(0.03)))
    before = model.posterior(queries()).mean
    for now, message in [(19.9, "now is 19.9, and 1 of 24 times"), (math.nan, "now must be a finite number")]:
        with pytest.raises(InputError, match=message):
            at_time(model, now)
    assert float(model.likelihood.now) == NOW
    assert torch.equal(model.posterior(queries()).mean, before)
    with_times = make(X, Y, ageing(Linear(0.03), X))
    with pytest.raises(InputError, match="Time must not go backwards"):
        with_times.likelihood.now = 3.0
    assert float(with_times.likelihood.now) == NOW
    future = queries()
    future[0, -1] = NOW + 1.0
    model.posterior(future)  # of the function: nothing is observed there
    with pytest.raises(InputError, match="Time must not go backwards"):
        model.posterior(future, observation_noise=True)


def test_a_model_told_of_the_future_is_as_it_was():
    X, Y = spacetime()
    model = online(X, Y, ageing(Linear(0.03)))
    before = model.posterior(queries()).mean
    future = queries()[:1]
    future[0, -1] = NOW + 1.0
    with pytest.raises(InputError, match="Time must not go backwards"):
        model.tell(future, Y[:1])
    with pytest.raises(InputError, match="Time must not go backwards"):
        model.condition_on_observations(future, Y[:1])
    assert model.num_observations == len(X)
    assert torch.equal(model.posterior(queries()).mean, before)


def test_uses_that_make_no_sense_are_named():
    X, Y = spacetime()
    with pytest.raises(InputError, match="No part of the model"):
        at_time(OnlineGP(X, Y, regularization=0.1, covar_module=space()), 30.0)
    with_times = online(X, Y, ageing(Linear(0.03), X))
    with pytest.raises(InputError, match="time_column instead of times"):
        with_times.tell(X[:1], Y[:1])
    with pytest.raises(InputError, match="time_column instead of times"):
        with_times.remove([0])
    with pytest.raises(InputError, match="times has 24 observations and the model has 23"):
        online(X[1:], Y[1:], ageing(Linear(0.03), X)).posterior(queries())
    with pytest.raises(InputError, match="time_column is 7"):
        online(X, Y, ageing(Linear(0.03), time_column=7)).posterior(queries())
    plain = single_task(X, Y, ageing(Linear(0.03), X))
    plain.posterior(queries())
    with pytest.raises(InputError, match="make the time a column of the inputs"):
        plain.condition_on_observations(X[:1], Y[:1])
    for make in MODELS:
        model = make(X, Y, ageing(Linear(0.03)))
        model.posterior(queries())
        with pytest.raises(InputError, match="leave noise out"):
            model.condition_on_observations(queries()[:1], Y[:1], noise=Y[:1].abs())
    with pytest.raises(InputError, match="either a likelihood or a regularization"):
        OnlineGP(X, Y, likelihood=ageing(Linear(0.03)), regularization=0.1)
    model = single_task(X, Y, ageing(Linear(0.03)))
    with pytest.raises(InputError, match="the inputs must be given"):
        model.likelihood(model.train()(X))
    likelihood = ageing(Linear(0.03))
    for noise in (0.0, math.nan, -1.0):
        with pytest.raises(InputError, match="noise must be finite and above 0"):
            likelihood.noise = noise
    likelihood.noise_covar.raw_rate.data.fill_(-1.0)
    with pytest.raises(InputError, match="growth_constraint that maps to the inside"):
        likelihood.observation_noise(X)


# -------------------------------------------------------------------- paths


@pytest.mark.one_in(6)
@pytest.mark.parametrize("of_times", [False, True], ids=["column", "times"])
@pytest.mark.parametrize("make", MODELS)
def test_paths_are_of_the_ageing_posterior(make, of_times):
    """2000 draws within 5 standard errors, and 5% of deviations for random features; false alarms below 1e-4."""
    X, Y = spacetime()
    growth = Exponential(0.8)
    model = make(X, Y, ageing(growth, X if of_times else None, max_variance=0.5))
    noise = expected_noise(growth, X)
    kept = noise <= 0.5
    expected = truth(X[torch.tensor(kept)], Y[torch.tensor(kept)], noise[kept], queries())
    paths = draw_matheron_paths(model, torch.Size([2000]))
    draws = paths(queries()).detach().reshape(2000, 5).numpy()
    deviation = np.sqrt(expected.variance)
    assert np.all(np.abs(draws.mean(0) - expected.mean) < 5.0 * deviation / math.sqrt(2000))
    assert np.all(np.abs(draws.std(0) / deviation - 1.0) < 5.0 / math.sqrt(2 * 2000) + 0.05)
