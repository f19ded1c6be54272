"""Thompson draws have the posterior's law on every route, and are chosen from as the theory says.

Statistics have fixed seeds; ``standardised`` and the tests say how often chance alone would fail.
"""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Standardize
from botorch.optim import optimize_acqf_discrete
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from gpytorch.kernels import RQKernel
from problems import DOUBLE, KERNELS, data, dense, difference, linear, matern

from torch_kbandits import ArmBlocks, Arms, Bandit, ConstantWidth, FixedDictionary, InputError, NystromGP, OnlineGP
from torch_kbandits.acquisition import (
    DiscretizedThompsonSampling,
    Domain,
    ThompsonRule,
    theoretical_discretization_size,
    thompson,
)
from torch_kbandits.beliefs import CovarianceTable, FeatureTable
from torch_kbandits.beliefs.joint_lookahead import _StoredOffer
from torch_kbandits.dictionaries import Selection
from torch_kbandits.memory import BackToPrior
from torch_kbandits.numerics import prior_draws, waves

LAMBDA = 0.05
ARMS, _ = data(10, 2)
X = torch.cat([ARMS[:4], ARMS[:2], ARMS[:2], data(3, 2, seed=9)[0]])  # repeats, and points that are no arms
Y = torch.sin(5.0 * X).sum(-1, keepdim=True)
Z = X[[0, 2, 9]]
NOISE = np.full(len(X), LAMBDA)
DENSE = KERNELS["matern"].dense
EXACT = oracles.exact(DENSE, *dense(X, Y.squeeze(-1)), NOISE, ARMS.numpy())
DTC = oracles.dtc(DENSE, *dense(X, Y.squeeze(-1)), NOISE, Z.numpy(), ARMS.numpy())
PRIOR = oracles.exact(DENSE, *dense(X[:0], Y[:0].squeeze(-1)), NOISE[:0], ARMS.numpy())


@pytest.fixture
def large(monkeypatch):
    """Make sets of more than two points large, and draws of them cheap; over draws few features are exact too."""
    for module in (thompson, prior_draws):
        monkeypatch.setattr(module, "JOINT_LIMIT", 2)
    monkeypatch.setattr(waves, "_FEATURES", 64)
    few = partial(draw_kernel_feature_paths, num_features=64)
    monkeypatch.setattr(thompson, "draw_matheron_paths", partial(draw_matheron_paths, prior_sampler=few))


def standardised(draws, mean, covariance):
    """The largest deviation of the means and second moments of draws (n, N) from what they should be, in its errors.

    For N = 10 there are 65 of them, so by chance it exceeds 5 with probability 65 · 6e-7 = 4e-5.
    """
    centred = draws.detach().double().numpy() - mean
    products = centred[:, :, None] * centred[:, None, :]
    n = len(centred)
    off_mean = np.abs(centred.mean(0)) / (centred.std(0) / np.sqrt(n))
    off_covariance = np.abs(products.mean(0) - covariance) / (products.std(0) / np.sqrt(n))
    return max(off_mean.max(), off_covariance.max())


def nystrom(kernel=None, X=X, Y=Y, Z=Z, **kwargs):
    return NystromGP(X, Y, inducing_points=Z, covar_module=kernel or matern(), regularization=LAMBDA, **kwargs)


def online(kernel=None, X=X, Y=Y, **kwargs):
    return OnlineGP(X, Y, covar_module=kernel or matern(), regularization=LAMBDA, **kwargs)


def single(kernel=None, X=X, Y=Y, **kwargs):
    noise = torch.full_like(Y, LAMBDA)
    kwargs = {"outcome_transform": None, **kwargs}
    model = SingleTaskGP(X, Y, noise, covar_module=kernel or matern(), **kwargs)
    torch.nn.init.zeros_(model.mean_module.raw_constant)
    return model.eval()


MODELS = {"nystrom": (nystrom, DTC), "online": (online, EXACT), "single": (single, EXACT)}


def table(kind="covariances", arms=ARMS, kernel=None, regularization=LAMBDA):
    if kind == "covariances":
        return CovarianceTable(arms, kernel or matern(), regularization, 0)
    return FeatureTable(arms, kernel or matern(), regularization, 0, exact=kind == "exact features")


TABLES = ["covariances", "exact features", "features"]


def deviations(belief, count):
    return torch.stack([belief.deviation(seed) for seed in range(count)])


# ---------------------------------------------------------------- the law of the draws


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_joint_draws_are_the_posterior_scaled(name, beta):
    make, expected = MODELS[name]
    draws = DiscretizedThompsonSampling(make(), ARMS, beta=beta, seed=0).draws(1000)
    assert standardised(draws, expected.mean, beta**2 * expected.covariance) < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_large_draws_are_the_posterior_scaled(name, large):
    make, expected = MODELS[name]
    draws = DiscretizedThompsonSampling(make(), ARMS, beta=2.5, seed=0).draws(400 if name == "single" else 1000)
    assert standardised(draws, expected.mean, 2.5**2 * expected.covariance) < 5.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["nystrom", "online"])
def test_low_rank_draws_are_the_posterior(name, large, monkeypatch):
    """Of a kernel without features; at the full rank, and with exact marginals at a small one."""
    kernel = RQKernel().double()
    make, _ = MODELS[name]
    posterior = make(kernel).posterior(ARMS)
    mean, covariance = dense(posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix)
    draws = DiscretizedThompsonSampling(make(kernel), ARMS, seed=0).draws(1000)
    assert standardised(draws, mean, covariance) < 5.0
    monkeypatch.setattr(prior_draws, "_RANK", 1)
    draws = DiscretizedThompsonSampling(make(kernel), ARMS, seed=0).draws(1000).numpy()
    squares = (draws - mean) ** 2
    assert np.abs((squares.mean(0) - np.diag(covariance)) / (squares.std(0) / math.sqrt(1000))).max() < 5.0


def test_low_rank_draws_do_not_extrapolate_their_residuals(large, monkeypatch):
    """A dictionary of close points: independent residuals there would be slopes, a thousand deviations far off."""
    monkeypatch.setattr(prior_draws, "_RANK", 2)
    close = 0.5 + 0.1 * ARMS
    points = torch.cat([close, ARMS])
    model = nystrom(RQKernel().double(), close, close[:, :1], close)
    posterior = model.posterior(points)
    deviation = DiscretizedThompsonSampling(model, points, seed=0).draws(500) - posterior.mean.flatten()
    ratio = (deviation.std(0) / posterior.variance.flatten().sqrt()).detach()
    # Standard deviations of 500 draws err by 3 per cent; five times that is left.
    assert float((ratio - 1.0).abs().max()) < 0.16


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["nystrom", "online"])
@pytest.mark.parametrize("limit", [2, 2000])
def test_before_any_observation_draws_are_the_prior(name, limit, monkeypatch):
    for module in (thompson, prior_draws):
        monkeypatch.setattr(module, "JOINT_LIMIT", limit)
    monkeypatch.setattr(waves, "_FEATURES", 64)
    make, _ = MODELS[name]
    model = make(X=X[:0], Y=Y[:0], **({"Z": X[:0]} if name == "nystrom" else {}))
    draws = DiscretizedThompsonSampling(model, ARMS, seed=0).draws(1000)
    assert standardised(draws, PRIOR.mean, PRIOR.covariance) < 5.0


@pytest.mark.one_in(9)
@pytest.mark.parametrize("route", ["blocks", "fourier", "joint"])
@pytest.mark.parametrize("kind", TABLES)
def test_deviations_of_a_table_are_the_posterior_after_many_tells(kind, route, request):
    """Told one by one and in batches, with repeats and points that are no arms; then draws before and after agree."""
    if route != "joint":
        request.getfixturevalue("large")
    belief = table(kind, ARMS if route != "blocks" else ArmBlocks(lambda number: ARMS[6 * number : 6 * number + 6], 2))
    assert standardised(deviations(belief, 100), 0.0, PRIOR.covariance) < 5.0
    told = list(range(len(X)))
    for part in ([0], [1, 2], [3], [4, 5, 6], [7], *([row] for row in told[8:])):
        # A dictionary of played points only: the others join as they are played.
        known = [row for row in (0, 2, 9) if row <= part[-1]]
        selection = None if kind != "features" else Selection(X[known], torch.ones(len(known), dtype=DOUBLE), None)
        belief = belief.updated(X[part], Y[part].squeeze(-1), selection)
    expected = DTC if kind == "features" else EXACT
    assert difference(belief.mean, expected.mean) < expected.rounding
    assert standardised(deviations(belief, 1500 if route == "joint" else 250), 0.0, expected.covariance) < 5.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "dictionary", [None, FixedDictionary(torch.cat([torch.full((3, 1), 5.0, dtype=DOUBLE), Z], -1))]
)
def test_draws_at_stored_arms_are_the_posterior_under_a_prior_on_time(dictionary, large):
    """A draw is made of waves at the present time, and follows from these at the points of others."""
    arms = Arms(ArmBlocks(lambda number: ARMS[6 * number : 6 * number + 6], 2))
    bandit = Bandit(
        candidates=arms, kernel=matern(), regularization=LAMBDA, dictionary=dictionary, width=ConstantWidth(1.0),
        acquisition=ThompsonRule(), memory=BackToPrior(0.3), seed=0,
    )  # fmt: skip
    for row, time in enumerate([0.0, 0.0, 1.0, 1.0, 1.5, 4.0, 4.0, 5.0, 5.0, 5.5, 6.0]):
        bandit.tell(X[row, None], Y[row], time=time)
    belief = bandit._belief.at(7.0)
    offer = _StoredOffer(belief.lookahead(bandit.history.X[:0]), bandit.candidates.in_round(None, None, 7.0))
    kernel = oracles.in_time(DENSE, 0.3)
    told, rewards, now, inducing = dense(
        torch.cat([bandit.history.times.unsqueeze(-1), bandit.history.X[:, -2:]], -1),
        bandit.history.Y,
        torch.cat([torch.full((len(ARMS), 1), 7.0, dtype=DOUBLE), ARMS], -1),
        belief.inducing_points,
    )
    if dictionary is None:
        expected = oracles.exact(kernel, told, rewards, NOISE, now)
    else:
        expected = oracles.dtc(kernel, told, rewards, NOISE, inducing, now)
    assert difference(offer.mean, expected.mean) < expected.rounding
    draws = torch.stack([offer.deviation(seed) for seed in range(400)])
    assert standardised(draws, 0.0, expected.covariance) < 5.0
    assert difference(draws[0], offer.deviation(0)) == 0.0


@pytest.mark.slow
def test_large_draws_know_transforms(large):
    """Normalize for a model of ours, Standardize for any: BoTorch's posterior is the oracle."""
    transform = Normalize(2, bounds=torch.tensor([[-1.0, -1.0], [2.0, 3.0]], dtype=DOUBLE))
    for model in (
        nystrom(input_transform=transform),
        online(input_transform=transform),
        nystrom(outcome_transform=Standardize(1)),
        online(outcome_transform=Standardize(1)),
        single(outcome_transform=Standardize(1)),
    ):
        model.eval()
        posterior = model.posterior(ARMS)
        mean, covariance = dense(posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix)
        draws = DiscretizedThompsonSampling(model, ARMS, beta=1.5, seed=0).draws(150)
        assert standardised(draws, mean, 1.5**2 * covariance) < 5.0


def test_joint_draws_know_transforms():
    model = online(outcome_transform=Standardize(1))
    posterior = model.posterior(ARMS)
    mean, covariance = dense(posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix)
    draws = DiscretizedThompsonSampling(model, ARMS, seed=0).draws(2000)
    assert standardised(draws, mean, covariance) < 5.0


def test_an_arm_is_chosen_as_often_as_it_is_best():
    """Chi-square with 2 degrees of freedom against a million NumPy draws: above 30 with probability 3e-7.

    The expected share is itself off by 5e-4 at most, which adds less than 1 to the statistic.
    """
    arms, covariance = ARMS[:3], EXACT.covariance[:3, :3]
    normals = np.random.default_rng(0).normal(size=(1_000_000, 3))
    best = (EXACT.mean[:3] + 3.0 * normals @ np.linalg.cholesky(covariance).T).argmax(-1)
    share = np.bincount(best, minlength=3) / len(best)
    assert share.min() > 0.01
    belief = table(arms=arms)
    belief = belief.updated(X, Y.squeeze(-1), None)
    rule, beta = ThompsonRule(), torch.tensor(3.0, dtype=DOUBLE)
    of_rule = [int(rule.on_arms(belief, beta, seed).argmax()) for seed in range(1500)]
    chosen = DiscretizedThompsonSampling(online(), arms, beta=3.0, seed=0).maximizers(1500)
    of_function = (chosen[:, None] == arms).all(-1).nonzero()[:, 1].tolist()
    for choices in (of_rule, of_function):
        counts = np.bincount(choices, minlength=3)
        assert ((counts - 1500 * share) ** 2 / (1500 * share)).sum() < 30.0


# ---------------------------------------------------------------- addresses, duplicates


ROUTES = ["joint", "fourier", "low rank", "paths"]


def acquisition(route, points, monkeypatch, seed=0, **kwargs):
    """On each of the four routes."""
    if route != "joint":
        for module in (thompson, prior_draws):
            monkeypatch.setattr(module, "JOINT_LIMIT", 2)
    model = single() if route == "paths" else online(RQKernel().double() if route == "low rank" else None)
    return DiscretizedThompsonSampling(model, points, seed=seed, **kwargs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", ROUTES)
def test_equal_points_have_equal_values(route, monkeypatch):
    points = torch.cat([ARMS, ARMS[[3, 0]], X[-2:], ARMS[3:4]])
    acqf = acquisition(route, points, monkeypatch)
    draws = acqf.draws(3)
    assert torch.equal(draws[:, [10, 11, 14]], draws[:, [3, 0, 3]])
    values = acqf(points.unsqueeze(-2))
    assert torch.equal(values, draws[0])
    assert torch.equal(acqf(points.unsqueeze(-2)), values)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("limit", [2, 2000])
@pytest.mark.parametrize("kernel", [matern, linear, lambda: RQKernel().double()])
def test_equal_arms_have_equal_deviations(kind, limit, kernel, monkeypatch):
    monkeypatch.setattr(prior_draws, "JOINT_LIMIT", limit)
    belief = table(kind, torch.cat([ARMS, ARMS[[3, 0]]]), kernel())
    for part in (X[:3], X[3:9], X[9:]):
        selection = None if kind != "features" else Selection(part[:1], torch.ones(1, dtype=DOUBLE), None)
        belief = belief.updated(part, part.sum(-1), selection)
        state = torch.random.get_rng_state()
        deviation = belief.deviation(5)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert deviation.shape == (12,)
        assert torch.equal(deviation[[10, 11]], deviation[[3, 0]])
        assert torch.equal(belief.deviation(5), deviation)
        assert not torch.equal(belief.deviation(6), deviation)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", ROUTES)
def test_draws_are_addressed_by_seed_and_number(route, monkeypatch):
    acqf = acquisition(route, ARMS, monkeypatch)
    state = torch.random.get_rng_state()
    third = acqf.draws(3)[2]
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(acquisition(route, ARMS, monkeypatch)._draw(2), acqf._draw(2))
    assert torch.equal(acquisition(route, ARMS, monkeypatch).draws(5)[2], third)
    assert not torch.equal(acquisition(route, ARMS, monkeypatch, seed=1).draws(3)[2], third)
    assert not torch.equal(acqf.draws(2)[0], acqf.draws(2)[1])


def test_without_a_seed_the_global_generator_gives_one():
    torch.manual_seed(1)
    first = DiscretizedThompsonSampling(online(), ARMS).draws(1)
    assert not torch.equal(DiscretizedThompsonSampling(online(), ARMS).draws(1), first)
    torch.manual_seed(1)
    assert torch.equal(DiscretizedThompsonSampling(online(), ARMS).draws(1), first)


# ---------------------------------------------------------------- what is done with the draws


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("route", ["joint", "fourier"])
def test_discrete_optimisation_picks_the_maximisers_of_successive_draws(unique, route, monkeypatch):
    acqf = acquisition(route, ARMS, monkeypatch, beta=3.0)
    draws = acqf.draws(4)
    chosen, value = optimize_acqf_discrete(acqf, q=1, choices=ARMS, unique=unique)
    assert torch.equal(chosen, acqf.maximizers())
    assert torch.equal(value, draws[0].max())
    chosen, _ = optimize_acqf_discrete(acqf, q=4, choices=ARMS, unique=unique)
    expected, free = [], torch.ones(10, dtype=torch.bool)
    for draw in draws:
        best = int(torch.where(free, draw, -math.inf).argmax())
        expected.append(best)
        free[best] = not unique
    assert torch.equal(chosen, ARMS[expected])
    assert acqf.X_pending is None
    if not unique:
        assert torch.equal(chosen, acqf.maximizers(4))


def test_pending_points_pass_over_draws():
    acqf = DiscretizedThompsonSampling(online(), ARMS, beta=3.0, seed=0, X_pending=X[:2])
    alone = DiscretizedThompsonSampling(online(), ARMS, beta=3.0, seed=0)
    draws = alone.draws(5)
    assert torch.equal(acqf.maximizers(3), alone.maximizers(5)[2:])
    assert torch.equal(acqf.draws(5), draws)
    assert torch.equal(acqf(ARMS.unsqueeze(-2)), draws[2])
    acqf.set_X_pending(X[:3])
    assert torch.equal(acqf(ARMS.unsqueeze(-2)), draws[3])
    for nothing in (None, X[:0]):
        acqf.set_X_pending(nothing)
        assert torch.equal(acqf(ARMS.unsqueeze(-2)), draws[0])


def test_a_batch_has_a_draw_for_each_point():
    acqf = DiscretizedThompsonSampling(online(), ARMS, seed=0)
    draws = acqf.draws(3)
    batches = list(itertools.permutations(range(4), 3))
    values = acqf(ARMS[torch.tensor(batches)])
    expected = torch.stack([sum(draws[i, row] for i, row in enumerate(batch)) for batch in batches])
    assert difference(values, expected) < 1e-14
    assert acqf(ARMS[:6].reshape(2, 3, 1, 2)).shape == (2, 3)


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_other_points_have_the_value_of_their_nearest(offset, monkeypatch):
    """Far from the origin too, where distances by matrix products would cancel; and in several blocks."""
    monkeypatch.setattr(thompson, "_DISTANCES", 40)
    arms, others = offset + ARMS, offset + data(30, 2, seed=4)[0]
    acqf = DiscretizedThompsonSampling(online(X=offset + X), arms, seed=0)
    nearest = oracles.squared_distances(*dense(others, arms)).argmin(-1)
    assert torch.equal(acqf(others.unsqueeze(-2)), acqf.draws(1)[0, nearest])


def test_beta_may_be_a_width_or_a_tensor():
    expected = DiscretizedThompsonSampling(online(), ARMS, beta=2.0, seed=0).draws(2)
    for beta in (ConstantWidth(2.0), torch.tensor(2.0), torch.tensor([2.0], dtype=DOUBLE)):
        assert torch.equal(DiscretizedThompsonSampling(online(), ARMS, beta=beta, seed=0).draws(2), expected)
    mean = DiscretizedThompsonSampling(online(), ARMS, beta=0.0, seed=0).draws(2)
    assert difference(mean, np.stack([EXACT.mean, EXACT.mean])) < 1e-9


def test_generic_construction():
    arguments = get_acqf_input_constructor(DiscretizedThompsonSampling)(model=online(), discretization=ARMS, seed=3)
    expected = DiscretizedThompsonSampling(online(), ARMS, seed=3).draws(2)
    assert torch.equal(DiscretizedThompsonSampling(**arguments).draws(2), expected)


def test_a_rule_draws_on_arms_and_on_a_sobol_set_of_the_box():
    rule, beta = ThompsonRule(discretization_size=64), torch.tensor(1.5, dtype=DOUBLE)
    on_arms = rule.function(online(), beta, None, Domain(arms=ARMS), 7)
    assert torch.equal(on_arms.discretization, ARMS)
    domain = Domain(bounds=torch.tensor([[-1.0, 2.0], [0.0, 5.0]], dtype=DOUBLE))
    state = torch.random.get_rng_state()
    chosen = rule.on_box(online(), beta, None, domain, 7)
    assert torch.equal(torch.random.get_rng_state(), state)
    box = rule.function(online(), beta, None, domain, 7)
    assert box.discretization.shape == (64, 2)
    assert box.discretization.dtype == DOUBLE
    assert bool(((box.discretization >= domain.bounds[0]) & (box.discretization <= domain.bounds[1])).all())
    # A Sobol set has a point in each quarter of the box, 16 of them.
    quarters = ((box.discretization - domain.bounds[0]) / (domain.bounds[1] - domain.bounds[0]) * 2).floor()
    assert torch.unique(quarters, dim=0, return_counts=True)[1].tolist() == [16, 16, 16, 16]
    assert torch.equal(chosen, box.maximizers(1))
    assert torch.equal(rule.on_box(online(), beta, None, domain, 7), chosen)
    assert not torch.equal(rule.function(online(), beta, None, domain, 8).discretization, box.discretization)


def test_a_rule_scores_arms_by_mean_and_scaled_deviation():
    posterior = SimpleNamespace(mean=torch.tensor([1.0, 2.0]), deviation=lambda seed: torch.tensor([0.5, seed]))
    assert ThompsonRule().on_arms(posterior, torch.tensor(2.0), 3).tolist() == [2.0, 8.0]


# ---------------------------------------------------------------- several outputs


@pytest.mark.parametrize("make", [nystrom, online])
def test_several_outputs_need_a_transform(make, large):
    both = torch.cat([Y, -2.0 * Y], -1)
    model = make(Y=both)
    with pytest.raises(UnsupportedError, match="2: give a posterior_transform"):
        DiscretizedThompsonSampling(model, ARMS)
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, 0.5], dtype=DOUBLE))
    with pytest.raises(UnsupportedError, match="must have at most 2"):
        DiscretizedThompsonSampling(model, ARMS, posterior_transform=weights)


def test_a_scalarised_posterior_is_drawn_from():
    """The outputs are independent: the sum has the mean μ₁ + w μ₂ and the covariance (1 + w²) cov."""
    model = nystrom(Y=torch.cat([Y, -2.0 * Y], -1))
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, 0.25], dtype=DOUBLE))
    draws = DiscretizedThompsonSampling(model, ARMS, posterior_transform=weights, seed=0).draws(2000)
    assert standardised(draws, 0.5 * DTC.mean, (1.0 + 0.25**2) * DTC.covariance) < 5.0
    lists = ModelListGP(nystrom(), nystrom(Y=-2.0 * Y))
    again = DiscretizedThompsonSampling(lists, ARMS, posterior_transform=weights, seed=0).draws(2)
    assert difference(again, draws[:2]) < 1e-6


# ---------------------------------------------------------------- singular covariances


SINGULAR = {
    "all arms equal": (matern, ARMS[:1].expand(6, 2), 1e-6, 1),
    "tiny noise": (matern, X, 1e-9, 3),
    "kernel zero at the origin": (linear, torch.cat([torch.zeros(2, 2, dtype=DOUBLE), ARMS]), 0.01, 2),
    "everything known": (matern, X, 1e-4, 500),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("route", ["joint", "large"])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("kind", ["covariances", "exact features", "online", "nystrom"])
def test_singular_covariances_can_be_drawn_from(name, route, dtype, kind, monkeypatch):
    """Draws are finite and no wider than the posterior: within 5 deviations, and what rounding and jitter may leave."""
    if kind == "covariances" and dtype == torch.float32:
        pytest.skip("Arms keep features in single precision")
    if route == "large":
        for module in (thompson, prior_draws):
            monkeypatch.setattr(module, "JOINT_LIMIT", 0)
    make_kernel, arms, noise, times = SINGULAR[name]
    kernel = make_kernel().to(dtype)
    noise = noise if dtype == DOUBLE else max(noise, 1e-4)
    arms = arms.to(dtype)
    told, rewards = arms.repeat(times, 1), arms.sum(-1).repeat(times)
    exact = table("exact features", arms, kernel, noise)
    exact = exact.updated(told, rewards, None)
    if kind in TABLES:
        belief = table(kind, arms, kernel, noise)
        belief = belief.updated(told, rewards, None)
        draws = deviations(belief, 20)
    else:
        given = {"covar_module": kernel, "regularization": noise}
        if kind == "online":
            model = OnlineGP(told, rewards[:, None], **given)
        else:
            model = NystromGP(told, rewards[:, None], inducing_points=arms, **given)
        draws = DiscretizedThompsonSampling(model, arms, seed=0).draws(20) - exact.mean
    allowed = 5.0 * exact.variance.sqrt()
    assert draws.dtype == dtype
    assert bool(torch.isfinite(draws).all())
    assert bool((draws.abs() <= allowed + (1e-4 if dtype == DOUBLE else 0.03)).all())


def test_low_rank_deviations_of_a_table_do_not_extrapolate_their_residuals(large, monkeypatch):
    """As for the acquisition function above."""
    monkeypatch.setattr(prior_draws, "_RANK", 2)
    close = 0.5 + 0.1 * ARMS
    belief = table("features", torch.cat([close, ARMS]), RQKernel().double())
    belief = belief.updated(close, close[:, 0], Selection(close, torch.ones(10, dtype=DOUBLE), None))
    ratio = deviations(belief, 500).std(0) / belief.variance.sqrt()
    assert float((ratio - 1.0).abs().max()) < 0.16


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (ARMS[:0], "N >= 1"),
        (ARMS.unsqueeze(0), "N >= 1"),
        (ARMS[0], "row for each point"),
        (ARMS[:, :1], "d = 2 columns"),
        (ARMS.float(), "dtype torch.float64"),
        (torch.full((3, 2), math.nan, dtype=DOUBLE), "finite"),
        ("ARMS", "real numbers"),
    ],
)
def test_bad_discretizations_are_named(points, message):
    with pytest.raises(InputError, match=f"discretization.*{message}"):
        DiscretizedThompsonSampling(online(), points)


@pytest.mark.parametrize("beta", [-1.0, math.nan, torch.tensor([1.0, 2.0]), torch.tensor(-1.0)])
def test_bad_multipliers_are_named(beta):
    with pytest.raises(InputError, match="beta"):
        DiscretizedThompsonSampling(online(), ARMS, beta=beta)


def test_other_bad_input_is_named():
    acqf = DiscretizedThompsonSampling(online(), ARMS, seed=0)
    for call in (acqf.draws, acqf.maximizers):
        for count in (0, -1, 1.5, True):
            with pytest.raises(InputError, match="count"):
                call(count)
    with pytest.raises(InputError, match=r"X must have d = 2"):
        acqf(torch.zeros(4, 1, 3, dtype=DOUBLE))
    with pytest.raises(InputError, match=r"X must be finite"):
        acqf(torch.full((4, 1, 2), math.nan, dtype=DOUBLE))
    with pytest.raises(InputError, match=r"X_pending must have d = 2"):
        acqf.set_X_pending(torch.zeros(4, 3, dtype=DOUBLE))
    for size in (0, -5, 2.0, "theory"):
        with pytest.raises(InputError, match="discretization_size"):
            ThompsonRule(size)


def test_posteriors_that_are_not_one_gaussian_are_refused(large):
    logarithmic = single(Y=Y.abs() + 0.1, outcome_transform=Log())
    with pytest.raises(UnsupportedError, match="affine"):
        DiscretizedThompsonSampling(logarithmic, ARMS)
    with pytest.raises(UnsupportedError, match="batch dimensions"):
        DiscretizedThompsonSampling(online(X=X.expand(2, -1, -1), Y=Y.expand(2, -1, -1)), ARMS)


def test_a_kernel_without_features_is_refused_where_only_paths_would_do(large):
    kernel = RQKernel().double()
    for model in (single(kernel), nystrom(kernel, outcome_transform=Standardize(1))):
        with pytest.raises(UnsupportedError, match="random features"):
            DiscretizedThompsonSampling(model, ARMS)


# ---------------------------------------------------------------- the theory's discretization


def test_theoretical_size_by_hand():
    assert theoretical_discretization_size(2.0, 5.0, 1.0, 1, 3) == 90  # 2 · 5 · 1 · 1 · 9
    assert theoretical_discretization_size(2.0, 5.0, 1.0, 2, 3) == 32_400  # (2 · 5 · 1 · 2 · 9)²
    assert theoretical_discretization_size(1.0, 0.3, 0.5, 1, 3) == 2  # 1.35
    assert theoretical_discretization_size(1.0, 1.0, 1.0, 1, 100) == 10_000
    assert theoretical_discretization_size(1.0, 1.0, 1.0, 2, 100) == 400_000_000
    assert theoretical_discretization_size(1.0, 1.0, 1.0, 5, 100) == pytest.approx(3.125e23)


def test_theoretical_size_does_what_it_is_for():
    """On a grid of it no function of norm B in the RKHS is 1/t² off its nearest grid value. Gaussian kernel, d = 1."""
    rng, lengthscale, t = np.random.default_rng(0), 0.2, 5
    centres, fine = rng.random((12, 1)), np.linspace(0.0, 1.0, 5001)[:, None]
    K = oracles.rbf(lengthscale)(centres, centres)
    for _ in range(20):
        weights = rng.normal(size=12)
        norm = math.sqrt(weights @ K @ weights)
        size = theoretical_discretization_size(norm, 1.0 / lengthscale, 1.0, 1, t)
        grid = (np.arange(size)[:, None] + 0.5) / size
        values, on_grid = (oracles.rbf(lengthscale)(points, centres) @ weights for points in (fine, grid))
        nearest = np.minimum((fine[:, 0] * size).astype(int), size - 1)
        assert np.abs(values - on_grid[nearest]).max() <= 1.0 / t**2


@pytest.mark.parametrize("name", ["norm_bound", "lipschitz", "side", "dimension", "round"])
def test_bad_arguments_of_the_theoretical_size_are_named(name):
    good = {"norm_bound": 1.0, "lipschitz": 1.0, "side": 1.0, "dimension": 2, "round": 3}
    for bad in (0, -1.0, math.nan, "many"):
        with pytest.raises(InputError, match=name):
            theoretical_discretization_size(**{**good, name: bad})


@pytest.mark.parametrize("side", [1.0, 1e300])
def test_a_theoretical_size_beyond_floats_is_refused(side):
    with pytest.raises(InputError, match="more points than a float can count"):
        theoretical_discretization_size(1e10, 1e10, side, 100, 10**6)
