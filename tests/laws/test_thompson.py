"""Thompson draws have the posterior's law on every route, and are chosen from as the theory says.

Statistics have fixed seeds; ``standardised`` and the tests say how often chance alone would fail.
"""

import itertools
import math

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
from gpytorch.kernels import MaternKernel, RQKernel
from problems import DOUBLE, KERNELS, data, dense, difference, linear, matern, rbf, scaled

import torch_kbandits as kb
from torch_kbandits import Arms, Bandit, ConstantWidth, FixedDictionary, InputError, NystromGP, OnlineGP
from torch_kbandits.acquisition import BoxPosterior, Domain, ThompsonRule

LAMBDA = 0.05
ARMS, _ = data(10, 2)
X = torch.cat([ARMS[:4], ARMS[:2], ARMS[:2], data(3, 2, seed=9)[0]])  # repeats, and points that are no arms
Y = torch.sin(5.0 * X).sum(-1, keepdim=True)
Z = X[[0, 2, 9]]
NOISE = np.full(len(X), LAMBDA)
DENSE = KERNELS["matern"].dense
PRIOR = oracles.exact(DENSE, *dense(X[:0], Y[:0].squeeze(-1)), NOISE[:0], ARMS.numpy())
EXACT = oracles.exact(DENSE, *dense(X, Y.squeeze(-1)), NOISE, ARMS.numpy())
DTC = oracles.dtc(DENSE, *dense(X, Y.squeeze(-1)), NOISE, Z.numpy(), ARMS.numpy())
#: So many points besides the arms that draws of all of them are no longer joint: more than 2,000.
MORE = 3.0 + data(2_000, 2, seed=8)[0]
LARGE = torch.cat([ARMS, MORE])


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


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "points"), [*((name, ARMS) for name in MODELS), ("nystrom", LARGE), ("online", LARGE)]
)
@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_draws_are_the_posterior_scaled(name, beta, points):
    """Of many by random features: over draws the covariance is exact however many a draw has."""
    make, expected = MODELS[name]
    draws = kb.DiscretizedThompsonSampling(make(), points, beta=beta, seed=0).draws(1000 if points is ARMS else 120)
    assert standardised(draws[:, : len(ARMS)], expected.mean, beta**2 * expected.covariance) < 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nystrom", "online"])
def test_low_rank_draws_have_the_marginals_of_the_posterior(name):
    """Of a kernel without features."""
    model = MODELS[name][0](RQKernel().double())
    posterior = model.posterior(LARGE.unsqueeze(-2))
    mean, variance = (part.flatten() for part in dense(posterior.mean, posterior.variance))
    squares = (kb.DiscretizedThompsonSampling(model, LARGE, seed=0).draws(300).numpy() - mean) ** 2
    # Of 2,010 squares of normals the largest is off by more than 6 errors with probability 1e-5.
    assert np.abs((squares.mean(0) - variance) / (variance * math.sqrt(2.0 / 300))).max() < 6.0


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", ["nystrom", "online"])
@pytest.mark.parametrize("points", [ARMS, LARGE], ids=["joint", "large"])
def test_before_any_observation_draws_are_the_prior(name, points):
    model = MODELS[name][0](X=X[:0], Y=Y[:0], **({"Z": X[:0]} if name == "nystrom" else {}))
    draws = kb.DiscretizedThompsonSampling(model, points, seed=0).draws(1000 if points is ARMS else 120)
    assert standardised(draws[:, : len(ARMS)], PRIOR.mean, PRIOR.covariance) < 5.0


@pytest.mark.parametrize("points", [ARMS, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["joint", "large"])
def test_draws_know_transforms(points):
    """Normalize for a model of ours, Standardize for any: BoTorch's posterior is the oracle."""
    transform = Normalize(2, bounds=torch.tensor([[-1.0, -1.0], [2.0, 3.0]], dtype=DOUBLE))
    several = (nystrom(input_transform=transform), online(input_transform=transform))
    if points is ARMS:
        several = (online(outcome_transform=Standardize(1)), single(outcome_transform=Standardize(1)))
    for model in several:
        model.eval()
        posterior = model.posterior(ARMS)
        mean, covariance = dense(posterior.mean.squeeze(-1), posterior.distribution.covariance_matrix)
        acqf = kb.DiscretizedThompsonSampling(model, points, beta=1.5, seed=0)
        draws = acqf.draws(120 if points is LARGE else 2000)[:, : len(ARMS)]
        assert standardised(draws, mean, 1.5**2 * covariance) < 5.0


def is_chosen_as_often_as_it_is_best(chosen, expected, beta):
    """Say so of choices (n, 2) among three arms: chi-square with 2 degrees of freedom, above 30 with probability 3e-7.

    The shares are those of a million NumPy draws, which are off by 5e-4 at most: that adds less than 1.
    """
    normals = np.random.default_rng(0).normal(size=(1_000_000, 3))
    best = (expected.mean[:3] + beta * normals @ np.linalg.cholesky(expected.covariance[:3, :3]).T).argmax(-1)
    share = np.bincount(best, minlength=3) / len(best)
    assert share.min() > 0.01
    choices = (chosen[:, None] == ARMS).all(-1).nonzero()[:, 1].numpy()
    counts, n = np.bincount(choices, minlength=3), len(choices)
    return ((counts - n * share) ** 2 / (n * share)).sum() < 30.0


def test_the_function_chooses_an_arm_as_often_as_it_is_best():
    chosen = kb.DiscretizedThompsonSampling(online(), ARMS[:3], beta=3.0, seed=0).maximizers(1500)
    assert is_chosen_as_often_as_it_is_best(chosen, EXACT, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("dictionary", [None, FixedDictionary(Z)])
@pytest.mark.parametrize("how", ["arms", "stored arms"])
def test_a_bandit_chooses_an_arm_as_often_as_it_is_best(how, dictionary, tmp_path):
    """Whatever the arms are kept in and the posterior follows from; 300 seeds of a bandit each."""
    np.save(tmp_path / "arms.npy", ARMS[:3].numpy())
    words = {"candidates": Arms(ARMS[:3] if how == "arms" else np.load(tmp_path / "arms.npy", mmap_mode="r"))}
    words |= {"kernel": matern(), "regularization": LAMBDA, "dictionary": dictionary, "width": ConstantWidth(3.0)}
    choices = []
    for seed in range(300):
        bandit = Bandit(**words, acquisition=ThompsonRule(), seed=seed)
        bandit.tell(X, Y)
        choices.append(bandit.ask())
    assert is_chosen_as_often_as_it_is_best(torch.cat(choices), EXACT if dictionary is None else DTC, 3.0)


ROUTES = ["joint", "fourier", "low rank"]


def acquisition(route, points, seed=0, **kwargs):
    """On each of the routes."""
    points = points if route == "joint" else torch.cat([points, MORE])
    model = online(RQKernel().double() if route == "low rank" else None)
    return kb.DiscretizedThompsonSampling(model, points, seed=seed, **kwargs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("route", ROUTES)
def test_equal_points_have_equal_values_and_draws_are_addressed_by_seed_and_number(route):
    points = torch.cat([ARMS, ARMS[[3, 0]], X[-2:], ARMS[3:4]])
    acqf, state = acquisition(route, points), torch.random.get_rng_state()
    draws = acqf.draws(3)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(draws[:, [10, 11, 14]], draws[:, [3, 0, 3]])
    values = acqf(points.unsqueeze(-2))
    assert torch.equal(values, draws[0, : len(points)])
    assert torch.equal(acqf(points.unsqueeze(-2)), values)
    torch.rand(5)
    assert torch.equal(acquisition(route, points).draws(4)[:3], draws)
    assert not torch.equal(acquisition(route, points, seed=1).draws(1)[0], draws[0])
    assert not torch.equal(draws[0], draws[1])


def test_without_a_seed_the_global_generator_gives_one():
    torch.manual_seed(1)
    first = kb.DiscretizedThompsonSampling(online(), ARMS).draws(1)
    assert not torch.equal(kb.DiscretizedThompsonSampling(online(), ARMS).draws(1), first)
    torch.manual_seed(1)
    assert torch.equal(kb.DiscretizedThompsonSampling(online(), ARMS).draws(1), first)


@pytest.mark.parametrize("unique", [True, False])
def test_discrete_optimisation_picks_the_maximisers_of_successive_draws(unique):
    acqf = kb.DiscretizedThompsonSampling(online(), ARMS, beta=3.0, seed=0)
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
    words = {"beta": 3.0, "seed": 0}
    acqf = kb.DiscretizedThompsonSampling(online(), ARMS, X_pending=X[:2], **words)
    alone = kb.DiscretizedThompsonSampling(online(), ARMS, **words)
    draws = alone.draws(5)
    assert torch.equal(acqf.maximizers(3), alone.maximizers(5)[2:])
    for pending, first in ((X[:2], 2), (X[:3], 3), (None, 0), (X[:0], 0)):
        acqf.set_X_pending(pending)
        assert torch.equal(acqf(ARMS.unsqueeze(-2)), draws[first])
        assert torch.equal(acqf.draws(5), draws)


def test_a_batch_has_a_draw_for_each_point():
    acqf = kb.DiscretizedThompsonSampling(online(), ARMS, seed=0)
    draws = acqf.draws(3)
    batches = list(itertools.permutations(range(4), 3))
    values = acqf(ARMS[torch.tensor(batches)])
    expected = torch.stack([sum(draws[i, row] for i, row in enumerate(batch)) for batch in batches])
    assert difference(values, expected) < 1e-14
    assert acqf(ARMS[:6].reshape(2, 3, 1, 2)).shape == (2, 3)


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_other_points_have_the_value_of_their_nearest(offset):
    """Far from the origin too, where distances by matrix products would cancel."""
    arms, others = offset + ARMS, offset + data(30, 2, seed=4)[0]
    acqf = kb.DiscretizedThompsonSampling(online(X=offset + X), arms, seed=0)
    nearest = oracles.squared_distances(*dense(others, arms)).argmin(-1)
    assert torch.equal(acqf(others.unsqueeze(-2)), acqf.draws(1)[0, nearest])


def test_beta_may_be_a_width_or_a_tensor_and_the_function_is_made_by_botorch_too():
    expected = kb.DiscretizedThompsonSampling(online(), ARMS, beta=2.0, seed=0).draws(2)
    for beta in (ConstantWidth(2.0), torch.tensor(2.0), torch.tensor([2.0], dtype=DOUBLE)):
        words = {"model": online(), "discretization": ARMS, "beta": beta, "seed": 0}
        words = get_acqf_input_constructor(kb.DiscretizedThompsonSampling)(**words)
        assert torch.equal(kb.DiscretizedThompsonSampling(**words).draws(2), expected)
    mean = kb.DiscretizedThompsonSampling(online(), ARMS, beta=0.0, seed=0).draws(2)
    assert difference(mean, np.stack([EXACT.mean, EXACT.mean])) < 1e-9


def test_a_rule_draws_on_arms_and_on_a_sobol_set_of_the_box():
    rule, beta = ThompsonRule(discretization_size=64), torch.tensor(1.5, dtype=DOUBLE)
    on_arms = rule.function(online(), beta, None, Domain(arms=ARMS), 7)
    assert torch.equal(on_arms.discretization, ARMS)
    domain = Domain(bounds=torch.tensor([[-1.0, 2.0], [0.0, 5.0]], dtype=DOUBLE))
    state = torch.random.get_rng_state()
    model = online()
    posterior = BoxPosterior(lambda: model, None, model.covar_module, model.marginals)
    chosen = rule.on_box(posterior, beta, domain, 7)
    assert torch.equal(torch.random.get_rng_state(), state)
    box = rule.function(online(), beta, None, domain, 7)
    assert box.discretization.shape == (64, 2)
    assert box.discretization.dtype == DOUBLE
    assert bool(((box.discretization >= domain.bounds[0]) & (box.discretization <= domain.bounds[1])).all())
    # A Sobol set has a point in each quarter of the box, 16 of them.
    quarters = ((box.discretization - domain.bounds[0]) / (domain.bounds[1] - domain.bounds[0]) * 2).floor()
    assert torch.unique(quarters, dim=0, return_counts=True)[1].tolist() == [16, 16, 16, 16]
    assert torch.equal(chosen, box.maximizers(1))
    assert torch.equal(rule.on_box(posterior, beta, domain, 7), chosen)
    assert not torch.equal(rule.function(online(), beta, None, domain, 8).discretization, box.discretization)


#: Kernels on one column, and L = √(∂²k/∂p∂q) at p = q.
SLOPES = {
    "rbf": (lambda: rbf(0.2), 1.0 / 0.2),
    "matern": (lambda: matern(0.3, 1.7), math.sqrt(1.7 * 5.0 / 3.0) / 0.3),
    "matern 1.5": (lambda: scaled(MaternKernel(nu=1.5).double(), 0.5), math.sqrt(0.5 * 3.0) / math.log(2.0)),
    "product": (lambda: rbf(0.4) * matern(0.5, 1.0), math.sqrt(1.0 / 0.4**2 + 5.0 / 3.0 / 0.5**2)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kernel", SLOPES)
@pytest.mark.parametrize(("told", "pending"), [(3, 0), (20, 10)])
def test_the_grid_of_the_theorem_is_fine_enough_and_the_maximiser_of_a_draw_on_it_is_found(kernel, told, pending):
    """‖x − [x]_t‖ <= 1/(B L t²): up to 2,000 points all are evaluated, beyond that by single-precision waves."""
    (make, slope), bound, t = SLOPES[kernel], 2.0, told + pending + 1
    lower, upper = -1.0, 2.0
    size = math.ceil(bound * slope * (upper - lower) * t**2)
    grid = lower + (upper - lower) * torch.arange(size, dtype=DOUBLE).unsqueeze(-1) / (size - 1)
    places = (data(200, 1, seed=3)[0] - lower) / (upper - lower) * (size - 1)
    assert float((places - places.round()).abs().max()) * (upper - lower) / (size - 1) <= 1.0 / (bound * slope * t**2)
    points = data(told, 1, seed=5)[0]
    model, beta = online(make(), X=points, Y=torch.sin(5.0 * points)), torch.tensor(1.5, dtype=DOUBLE)
    domain = Domain(bounds=torch.tensor([[lower], [upper]], dtype=DOUBLE))
    for seed in range(2):
        rule = ThompsonRule("theory", norm_bound=bound)
        found = rule.function(model, beta, points[:pending], domain, seed)
        rows = ((found.discretization - lower) / (upper - lower) * (size - 1)).round().long().flatten()
        assert difference(found.discretization, grid[rows]) < 1e-12
        assert (size <= 2000) == (len(rows) == size)
        if size > 2000:
            draw = kb.DiscretizedThompsonSampling(model, grid, beta=1.5, seed=seed).draws(1)[0]
            assert float(draw.max() - draw[rows].max()) < 2e-5
            assert difference(found.draws(1)[0], draw[rows]) < 2e-5
        posterior = BoxPosterior(lambda: model, points[:pending], model.covar_module, model.marginals)
        assert torch.equal(rule.on_box(posterior, beta, domain, seed), found.maximizers(1))


@pytest.mark.filterwarnings("ignore::torch_kbandits.TheoryWarning")
@pytest.mark.parametrize(("where", "name"), [("box", "gp-ts"), ("contexts", "gp-ts"), ("box", "pe-gp-ts")])
def test_a_bandit_draws_on_the_grid_of_the_theorem(where, name, tmp_path):
    """That of its own round, 3 · 1 / 0.4 · t², along the action; a family on that of the hypothesis that plays."""
    words = {"kernel": rbf(0.4), "regularization": LAMBDA, "norm_bound": 3.0, "beta": 1.0, "seed": 0}
    words |= {"bounds": torch.tensor([[0.0], [1.0]], dtype=DOUBLE), "discretization_size": "theory"}
    context = {} if where == "box" else {"context": torch.tensor([0.3], dtype=DOUBLE)}
    words |= {"scales": (1.0,), "noise_scale": 0.2} if name == "pe-gp-ts" else {}
    bandit = kb.algorithms.build(name, **words, **({"context_dim": 1} if context else {}))
    for t in range(1, 5):
        x = bandit.ask(**context)
        places = float(x[0, 0]) * (math.ceil(3.0 / 0.4 * t**2) - 1)
        assert t == 1 or abs(places - round(places)) < 1e-9
        bandit.tell(x, torch.sin(5.0 * x), **context)
    bandit.save(tmp_path / "saved")
    batch = bandit.ask(q=2, **context)
    assert torch.equal(kb.Bandit.load(tmp_path / "saved").ask(q=2, **context), batch)
    for x, t in zip(batch, (5, 6), strict=True):
        places = float(x[0]) * (math.ceil(3.0 / 0.4 * t**2) - 1)
        assert abs(places - round(places)) < 1e-9


def test_a_grid_finer_than_double_precision_is_as_fine_as_that():
    words = {"kernel": rbf(0.4), "regularization": LAMBDA, "beta": 1.0, "seed": 0, "discretization_size": "theory"}
    bandit = kb.algorithms.GPTS(**words, bounds=torch.tensor([[0.0], [1.0]], dtype=DOUBLE), norm_bound=1e100)
    bandit.tell([[0.5]], [1.0])
    assert 0.0 <= float(bandit.ask()) <= 1.0


def test_a_scalarised_posterior_is_drawn_from_and_several_outputs_need_a_transform():
    """The outputs are independent: the sum has the mean μ₁ + w μ₂ and the covariance (1 + w²) cov."""
    model = nystrom(Y=torch.cat([Y, -2.0 * Y], -1))
    weights = ScalarizedPosteriorTransform(torch.tensor([1.0, 0.25], dtype=DOUBLE))
    draws = kb.DiscretizedThompsonSampling(model, ARMS, posterior_transform=weights, seed=0).draws(2000)
    assert standardised(draws, 0.5 * DTC.mean, (1.0 + 0.25**2) * DTC.covariance) < 5.0
    lists = ModelListGP(nystrom(), nystrom(Y=-2.0 * Y))
    again = kb.DiscretizedThompsonSampling(lists, ARMS, posterior_transform=weights, seed=0).draws(2)
    assert difference(again, draws[:2]) < 1e-6
    for both in (model, online(Y=torch.cat([Y, -2.0 * Y], -1))):
        with pytest.raises(UnsupportedError, match="2 outputs: give a posterior_transform"):
            kb.DiscretizedThompsonSampling(both, ARMS)
        with pytest.raises(UnsupportedError, match="PathwiseThompsonSampling"):
            kb.DiscretizedThompsonSampling(both, LARGE, posterior_transform=weights)


SINGULAR = {
    "all arms equal": (matern, ARMS[:1].expand(6, 2), 1e-6, 1),
    "tiny noise": (matern, X, 1e-9, 3),
    "kernel zero at the origin": (linear, torch.cat([torch.zeros(2, 2, dtype=DOUBLE), ARMS]), 0.01, 2),
    "everything known": (matern, X, 1e-4, 500),
}


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("more", [MORE[:0], MORE])
@pytest.mark.parametrize("dtype", [DOUBLE, torch.float32])
@pytest.mark.parametrize("kind", ["online", "nystrom"])
def test_singular_covariances_can_be_drawn_from(name, more, dtype, kind):
    """Draws are finite and no wider than the posterior: within 5 deviations, and what rounding and jitter may leave."""
    make_kernel, arms, noise, times = SINGULAR[name]
    arms, points = arms.to(dtype), torch.cat([arms, more]).to(dtype)
    told, rewards = arms.repeat(times, 1), arms.sum(-1).repeat(times)[:, None]
    given = {"covar_module": make_kernel().to(dtype)}
    given["regularization"] = noise if dtype == DOUBLE else max(noise, 1e-4)
    model = OnlineGP(told, rewards, **given)
    if kind == "nystrom":
        model = NystromGP(told, rewards, inducing_points=arms, **given)
    posterior = model.posterior(points.unsqueeze(-2))
    draws = kb.DiscretizedThompsonSampling(model, points, seed=0).draws(10)
    variance = posterior.distribution.covariance_matrix.flatten().clamp_min(0.0)
    allowed = 5.0 * variance.sqrt() + (1e-4 if dtype == DOUBLE else 0.03)
    assert draws.dtype == dtype
    assert bool(torch.isfinite(draws).all())
    assert bool(((draws - posterior.mean.flatten()).abs()[:, : len(arms)] <= allowed[: len(arms)]).all())


POINTS = kb.DiscretizedThompsonSampling(online(), ARMS, seed=0)
WRONG = [
    *(
        (lambda points=points: kb.DiscretizedThompsonSampling(online(), points), f"discretization.*{message}")
        for points, message in [
            (ARMS[:0], "n >= 1"),
            (ARMS.unsqueeze(0), "n >= 1"),
            (ARMS[0], "row for each point"),
            (ARMS[:, :1], "d = 2 columns"),
            (ARMS.float(), "dtype torch.float64"),
            (torch.full((3, 2), math.nan, dtype=DOUBLE), "finite"),
        ]
    ),
    (lambda: POINTS.maximizers(-1), "count"),
    (lambda: POINTS(torch.zeros(4, 1, 3, dtype=DOUBLE)), "X must have d = 2"),
    (lambda: POINTS(torch.full((4, 1, 2), math.nan, dtype=DOUBLE)), "X must be finite"),
    (lambda: ThompsonRule("theory"), "discretization_size"),
    (lambda: ThompsonRule("all", norm_bound=1.0), 'discretization_size must be "theory"'),
    (lambda: gridded(), "give norm_bound"),
    (lambda: gridded(norm_bound=1.0, bounds=torch.arange(4).double().reshape(2, 2)), "a box of one column"),
    (lambda: gridded(norm_bound=1.0, bounds=None, candidates=ARMS), "a box of one column"),
    (lambda: gridded(norm_bound=1.0, kernel=RQKernel().double()), "take RBFKernel"),
    (lambda: gridded(norm_bound=1.0, kernel=MaternKernel(nu=0.5).double()), "nu of 1.5 or 2.5"),
]


def gridded(**words):
    words = {"bounds": torch.tensor([[0.0], [1.0]], dtype=DOUBLE), "kernel": matern(), **words}
    return kb.algorithms.GPTS(**words, regularization=LAMBDA, beta=1.0, discretization_size="theory", seed=0)


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.needs("botorch>=0.18")
def test_posteriors_that_are_not_one_gaussian_and_kernels_without_features_are_refused():
    logarithmic, kernel = single(Y=Y.abs() + 0.1, outcome_transform=Log()), RQKernel().double()
    for model, points, message in (
        (logarithmic, ARMS, "affine"),
        (online(X=X.expand(2, -1, -1), Y=Y.expand(2, -1, -1)), ARMS, "batch dimensions"),
        (single(kernel), LARGE, "PathwiseThompsonSampling"),
        (nystrom(kernel, outcome_transform=Standardize(1)), LARGE, "PathwiseThompsonSampling"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            kb.DiscretizedThompsonSampling(model, points)
