"""The laws of DESIGN for posteriors: OnlineGP against dense formulas, SingleTaskGP and itself, whatever it was told."""

import copy
import itertools
import pickle

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from botorch import settings as botorch_settings
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.utils.warnings import NumericalWarning
from hypothesis import given
from problems import DOUBLE, KERNELS, data, dense, difference, exactly, matern
from test_models import exact_oracle, marginals

from torch_kbandits import InputError, OnlineGP
from torch_kbandits.errors import NumericalError
from torch_kbandits.models import PosteriorDraws
from torch_kbandits.numerics import bordered
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError

LAMBDA = 0.01


def online(X, Y, *, kernel="matern", **kwargs):
    if "train_Yvar" not in kwargs and "likelihood" not in kwargs:
        kwargs.setdefault("regularization", LAMBDA)
    covar = KERNELS[kernel].make() if isinstance(kernel, str) else kernel
    return OnlineGP(X, Y, covar_module=covar, **kwargs)


def single(X, Y, noise=LAMBDA, *, kernel="matern", **kwargs):
    """BoTorch's exact model of the same prior and noise."""
    variances = noise if isinstance(noise, torch.Tensor) else torch.full_like(Y, noise).detach()
    kwargs = {"covar_module": KERNELS[kernel].make(), "mean_module": ZeroMean(), "outcome_transform": None} | kwargs
    return SingleTaskGP(X, Y, variances, **kwargs)


def nothing(d=2, outputs=1):
    return torch.empty(0, d, dtype=DOUBLE), torch.empty(0, outputs, dtype=DOUBLE)


def assert_exact(model, X, Y, noise, T, kernel="matern"):
    """The model's mean, covariance and marginal variance are those of the dense formula."""
    expected = exact_oracle(kernel, X, Y, noise, T)
    posterior = model.posterior(T)
    assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    assert difference(posterior.distribution.covariance_matrix, expected.covariance) < expected.rounding
    mean, variance = marginals(model, T)
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance) < expected.rounding


def assert_same(one, other, T, tolerance=1e-9):
    one, other = one.posterior(T), other.posterior(T)
    assert difference(one.mean, other.mean) < tolerance
    assert difference(one.variance, other.variance) < tolerance
    if T.shape[-2] > 1:
        assert difference(one.distribution.covariance_matrix, other.distribution.covariance_matrix) < tolerance


class Walk:
    """Random additions and removals of points of a pool with repeats and near-duplicates, and what is left of them."""

    def __init__(self, model, pool, seed, heteroscedastic):
        self.model, self.pool, self.heteroscedastic = model, pool, heteroscedastic
        self.rng = np.random.default_rng(seed)
        self.X, self.Y = (part.clone() for part in nothing(pool.shape[-1]))
        self.noise = torch.empty(0, dtype=DOUBLE)
        self.changes = 0

    def add(self, k):
        X = self.pool[self.rng.integers(len(self.pool), size=k)]
        Y = torch.sin(5.0 * X).sum(-1, keepdim=True) + torch.tensor(self.rng.normal(size=(k, 1)))
        noise = torch.full((k,), LAMBDA, dtype=DOUBLE)
        if self.heteroscedastic:
            noise = torch.tensor(self.rng.uniform(0.01, 0.5, size=k))
        self.model.tell(X, Y, noise.unsqueeze(-1) if self.heteroscedastic else None)
        self.X, self.Y, self.noise = torch.cat([self.X, X]), torch.cat([self.Y, Y]), torch.cat([self.noise, noise])
        self.changes += k

    def remove(self, k):
        rows = self.rng.permutation(len(self.X))[:k]
        self.model.remove(rows.tolist())
        kept = np.delete(np.arange(len(self.X)), rows)
        self.X, self.Y, self.noise = self.X[kept], self.Y[kept], self.noise[kept]
        self.changes += len(rows)

    def step(self):
        (self.remove if len(self.X) > self.rng.integers(150) else self.add)(int(self.rng.integers(1, 4)))


def pool_of(d, size=30):
    points = data(size, d, seed=7)[0]
    return torch.cat([points, points[:5] + 1e-9, points[5:10] + 1e-5, -points[:1] * 0.0])


# -------------------------------------------------------------------- 2,000 changes

#: In the quick suite a tenth of them.
CHANGES = [200, pytest.param(2000, marks=pytest.mark.slow)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize(
    ("kernel", "heteroscedastic"), [("rbf", False), ("matern", True), ("linear", False), ("linear", True)]
)
def test_mixed_additions_and_removals(kernel, heteroscedastic, changes, monkeypatch):
    """Emptied twice, and with a fresh factor three times on the way."""
    monkeypatch.setattr(OnlineGP, "REFRESH", changes // 4)
    kwargs = {"train_Yvar": nothing()[1], "regularization": LAMBDA} if heteroscedastic else {}
    walk = Walk(online(*nothing(), kernel=kernel, **kwargs), pool_of(2), 0, heteroscedastic)
    T, drains = torch.cat([data(8, 2, seed=1)[0], walk.pool[:2]]), 0
    while walk.changes < changes:
        walk.step()
        if walk.changes // (0.35 * changes) > drains:
            drains += 1
            assert_exact(walk.model, walk.X, walk.Y, walk.noise, T, kernel)
            while len(walk.X):
                walk.remove(9)
            assert walk.model.num_observations == walk.model.num_distinct == 0
            assert difference(walk.model.posterior(T).mean, torch.zeros(10, 1)) == 0.0
            assert (
                difference(marginals(walk.model, T)[1], torch.tensor(KERNELS[kernel].dense(*dense(T, T))).diag())
                < 1e-12
            )
    while len(walk.X) < 100:
        walk.add(3)
    assert drains == 2
    assert_exact(walk.model, walk.X, walk.Y, walk.noise, T, kernel)
    theirs = single(walk.X, walk.Y, walk.noise.unsqueeze(-1), kernel=kernel)
    assert_same(walk.model, theirs, T, 1e-8)
    assert walk.model.num_distinct == len(torch.unique(walk.X + 0.0, dim=0)) < len(walk.X)
    assert torch.equal(walk.model.train_inputs[0], walk.X)
    assert torch.equal(walk.model.train_targets, walk.Y[:, 0])


@pytest.mark.parametrize("changes", CHANGES)
def test_changes_without_a_fresh_factor_drift_little(changes, monkeypatch):
    """Seen: 3e-13 after 200 changes, 3e-12 at most in 2,000."""
    monkeypatch.setattr(OnlineGP, "REFRESH", 10**9)
    walk = Walk(online(*nothing(), kernel="scaled rbf"), pool_of(2), 1, False)
    while walk.changes < changes:
        walk.step()
    assert walk.model._changes == walk.changes
    T = data(8, 2, seed=1)[0]
    assert_exact(walk.model, walk.X, walk.Y, walk.noise, T, "scaled rbf")
    expected = exact_oracle("scaled rbf", walk.X, walk.Y, walk.noise, T)
    assert max(map(difference, marginals(walk.model, T), (expected.mean, expected.variance))) < 1e-13 * changes


@given(
    seed=st.integers(0, 10_000), heteroscedastic=st.booleans(), kernel=st.sampled_from(sorted(KERNELS)),
    d=st.integers(1, 3), steps=st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=8),
)  # fmt: skip
def test_any_short_walk(seed, heteroscedastic, kernel, d, steps):
    kwargs = {"train_Yvar": nothing()[1], "regularization": LAMBDA} if heteroscedastic else {}
    walk = Walk(online(*nothing(d), kernel=kernel, **kwargs), pool_of(d, 10), seed, heteroscedastic)
    for add, k in steps:
        (walk.add if add else walk.remove)(k)
    assert_exact(walk.model, walk.X, walk.Y, walk.noise, data(5, d, seed=seed + 1)[0], kernel)


def dense_dimension(kernel, X, noise):
    """Tr K(K + Σ)⁻¹ of all observations, none merged."""
    K = KERNELS[kernel].dense(*dense(X, X))
    return np.trace(np.linalg.solve(K + np.diag(noise.numpy()), K))


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "heteroscedastic"), [("matern", False), ("linear", True)])
def test_3000_changes_carry_what_widths_ask_for(kernel, heteroscedastic, monkeypatch):
    """The effective dimension and the largest prior variance after every change, with many rows held apart."""
    monkeypatch.setattr(bordered, "_HEAD", 20)
    monkeypatch.setattr(bordered, "_TAIL", 9)
    kwargs = {"train_Yvar": nothing()[1], "regularization": LAMBDA} if heteroscedastic else {}
    walk = Walk(online(*nothing(), kernel=kernel, **kwargs), pool_of(2, 60), 3, heteroscedastic)
    T, asked, checks, apart = torch.cat([data(8, 2, seed=1)[0], walk.pool[:2]]), [], 0, 0
    while walk.changes < 3000:
        walk.step()
        apart += walk.model._factors()[0].factor.corner.numel() > 0
        asked.append((float(walk.model.effective_dimension()), float(walk.model.kernel_bound())))
        if walk.changes // 250 > checks and len(walk.X):
            checks += 1
            assert asked[-1][0] == pytest.approx(dense_dimension(kernel, walk.X, walk.noise), rel=1e-9)
            assert asked[-1][1] == pytest.approx(np.diag(KERNELS[kernel].dense(*dense(walk.X, walk.X))).max())
    assert checks == 12
    assert len(set(asked)) > 1000
    assert apart > 100
    while len(walk.X) < 100:
        walk.add(3)
    assert_exact(walk.model, walk.X, walk.Y, walk.noise, T, kernel)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("refresh", [100, 10**9])
def test_many_distinct_points_one_by_one(refresh, monkeypatch):
    """So many that rows are held apart, with a repeat, a removal, a failure and a conditioned copy among them."""
    monkeypatch.setattr(OnlineGP, "REFRESH", refresh)
    monkeypatch.setattr(bordered, "_HEAD", 60)
    monkeypatch.setattr(bordered, "_TAIL", 25)
    (X, Y), T, tails = data(150, 4), data(6, 4, seed=1)[0], set()
    model = online(X[:1], Y[:1])
    model.effective_dimension()
    for row in range(1, 150):
        model.tell(X[row, None], Y[row, None])
        tails.add(model._factors()[0].factor.corner.shape[-1])
        if row % 13 == 0:
            with pytest.raises(NumericalError, match="more than the dtype holds"):
                model.tell(T, torch.full((6, 1), 1.0e308, dtype=DOUBLE))
            assert model.condition_on_observations(T, T[:, :1]).num_observations == model.num_observations + 6
            model.tell(X[row - 1, None], Y[row - 1, None])
            model.remove([model.num_observations - 1])
    assert len(tails) > 20
    assert_exact(model, X, Y, torch.full((150,), LAMBDA, dtype=DOUBLE), T)
    dimension = dense_dimension("matern", X, torch.full((150,), LAMBDA, dtype=DOUBLE))
    assert float(model.effective_dimension()) == pytest.approx(dimension, rel=1e-9)


def test_who_never_asks_pays_nothing_and_who_asks_pays_once(monkeypatch):
    X, Y = data(40, 2)
    whole = []
    inverse = torch.cholesky_inverse
    monkeypatch.setattr(torch, "cholesky_inverse", lambda *args: whole.append(args) or inverse(*args))
    model = online(X[:10], Y[:10])
    model.tell(X[10:12], Y[10:12])
    assert model._factors()[0].noise_share is None
    for row in range(12, 40):
        model.effective_dimension()
        model.kernel_bound()
        model.tell(X[row, None], Y[row, None])
    model.remove([3])
    model.effective_dimension()
    assert len(whole) == 1


@pytest.mark.one_in(4)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("fixed", [False, True])
def test_effective_dimensions_are_the_sums_of_the_scores(outputs, fixed):
    """In shape too: of outputs, batches, conditioned copies, fantasies and in single precision."""
    X, Y = data(24, 2)
    Y = torch.cat([Y, Y.square()], -1)[:, :outputs]
    kwargs = {"train_Yvar": 0.1 + Y.abs()} if fixed else {"regularization": 0.1}
    model = online(X, Y, **kwargs)
    model.effective_dimension()
    model.tell(X[:3] + 0.1, Y[:3])
    model.tell(X[:2], Y[:2])
    model.remove([1, 20])
    new = torch.rand(3, 2, 2, dtype=DOUBLE)
    batch_kwargs = {name: v if name == "regularization" else v.expand(3, -1, -1) for name, v in kwargs.items()}
    models = [
        model,
        copy.deepcopy(model),
        online(X.expand(3, 24, 2), Y.expand(3, 24, outputs), **batch_kwargs),
        model.condition_on_observations(new[0], Y[:2]),
        model.condition_on_observations(new, Y[:2].expand(3, 2, outputs)),
        model.fantasize(new, SobolQMCNormalSampler(torch.Size([4]), seed=0)),
    ]
    for each in models:
        scores = each.leverage_scores().sum(-1)
        assert difference(each.effective_dimension(), scores.expand(each.effective_dimension().shape)) < 1e-9
        assert each.effective_dimension().shape == scores.shape
        assert not each.effective_dimension().requires_grad
    single = copy.deepcopy(model).float()
    assert difference(single.effective_dimension(), model.effective_dimension()) < 1e-3


def test_the_largest_prior_variance_falls_when_its_point_is_removed():
    X = torch.tensor([[0.1], [3.0], [0.5], [3.0]], dtype=DOUBLE)
    model = online(X, X, kernel="linear")
    model.posterior(X)
    largest = [float(model.kernel_bound())]
    for row in (1, 2):  # the same point twice
        model.remove([row])
        largest.append(float(model.kernel_bound()))
    model.tell(2.0 * X[1:2], X[1:2])
    largest.append(float(model.kernel_bound()))
    expected = [float(KERNELS["linear"].dense(*dense(X[i, None], X[i, None]))[0, 0]) for i in (1, 2)]
    assert largest[:3] == pytest.approx([expected[0], expected[0], expected[1]])
    assert largest[3] > largest[0]
    model.kernel_bound().zero_()
    assert float(model.kernel_bound()) == largest[3]


def test_single_precision_after_many_repeats():
    X, Y = data(200, 2)
    X = X[torch.randint(20, (200,))]
    model = online(X[:1].float(), Y[:1].float())
    for row in range(1, 200):
        model.tell(X[row, None].float(), Y[row, None].float())
    model.remove(list(range(0, 150, 3)))
    kept = torch.ones(200, dtype=torch.bool)
    kept[0:150:3] = False
    T = data(20, 2, seed=1)[0]
    double, single = online(X[kept], Y[kept]).posterior(T), model.posterior(T.float())
    assert single.mean.dtype == single.variance.dtype == model.train_targets.dtype == torch.float32
    assert difference(single.mean, double.mean) < 5e-3
    assert difference(single.variance, double.variance) < 1e-3


@pytest.mark.slow
def test_10000_plays_of_50_arms_cost_like_50():
    arms, Y = data(50, 2)
    model = online(*nothing())
    rows = torch.randint(50, (10_000,))
    shapes = set()
    for part in rows.split(4):  # so few that each is an update
        model.tell(arms[part], Y[part])
        factors, _ = model._factors()
        shapes.add(tuple(factors.factor.dense().shape))
        assert factors.whitened.shape == (model.num_distinct,)
    assert max(shapes) == (50, 50)
    assert model.num_distinct == 50
    assert model.num_observations == 10_000
    counts = torch.bincount(rows, minlength=50)
    T = data(6, 2, seed=1)[0]
    assert_exact(model, arms, Y, LAMBDA / counts, T)
    model.prediction_strategy = None  # the same from scratch
    assert model._factors()[0].factor.dense().shape == (50, 50)


def test_a_repeat_never_forms_more_than_the_factor_and_the_observations():
    arms, Y = data(20, 2)
    model = online(arms[torch.randint(20, (5_000,))], Y[torch.randint(20, (5_000,))])
    model.posterior(arms)
    sizes = []
    with Sizes(sizes):
        model.tell(arms[:2], Y[:2])
        model.remove([7])
        model.posterior(arms[:1])
    assert max(sizes) <= 2 * 5_002


class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.sizes += [part.numel() for part in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(part)]
        return result


# -------------------------------------------------------------------- building, telling, conditioning, order


@given(n=st.integers(0, 12), k=st.integers(0, 5), copies=st.integers(0, 4), seed=st.integers(0, 10_000))
def test_telling_and_conditioning_equal_rebuilding_in_any_order(n, k, copies, seed):
    X, Y = data(n + k, 2, seed)
    generator = torch.Generator().manual_seed(seed)
    if n + k:
        again = torch.randint(n + k, (copies,), generator=generator)
        X, Y = torch.cat([X, X[again]]), torch.cat([Y, Y[again] + 1.0])
    T = data(4, 2, seed + 1)[0]
    order = torch.randperm(len(X), generator=generator)
    told = online(X[:n], Y[:n])
    told.tell(X[n:], Y[n:])
    conditioned = online(X[:n], Y[:n]).condition_on_observations(X[n:], Y[n:])
    for model in (told, conditioned, online(X[order], Y[order])):
        assert_same(model, online(X, Y), T)
        assert_exact(model, X, Y, torch.full((len(X),), LAMBDA, dtype=DOUBLE), T)
        assert model.num_distinct == len(torch.unique(X, dim=0))
    conditioned.tell(X[:1], Y[:1])
    told.tell(X[:1], Y[:1])
    assert_same(conditioned, told, T)


def test_conditioning_leaves_the_model_as_it_was():
    X, Y = data(10, 2)
    model = online(X[:6], Y[:6])
    before = model.posterior(X).mean
    conditioned = model.condition_on_observations(X[6:], Y[6:])
    conditioned.tell(X, Y)
    conditioned.remove([0, 3])
    assert difference(model.posterior(X).mean, before) == 0.0
    assert model.num_observations == 6


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_no_data_equals_the_prior(kernel):
    model = online(*nothing(), kernel=kernel)
    T = data(6, 2)[0]
    assert difference(model.posterior(T).mean, torch.zeros(6, 1)) == 0.0
    assert difference(model.posterior(T).distribution.covariance_matrix, KERNELS[kernel].dense(*dense(T, T))) < 1e-12
    for value in (model.information_gain(), model.effective_dimension(), model.mean_norm(), model.kernel_bound()):
        assert float(value) == 0.0


@given(n=st.integers(1, 25), q=st.integers(2, 8), kernel=st.sampled_from(sorted(KERNELS)), seed=st.integers(0, 10_000))
def test_the_covariance_is_positive_semi_definite(n, q, kernel, seed):
    X, Y = data(n, 2, seed)
    T = data(q, 2, seed + 1)[0]
    T[-1] = T[0]
    model = online(*nothing(), kernel=kernel)
    for row in range(n):
        model.tell(X[row // 2, None], Y[row, None])
    covariance = model.posterior(torch.cat([T, X[:2]])).distribution.covariance_matrix.detach()
    assert difference(covariance, covariance.mT) < 1e-12
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-9
    assert difference(covariance[0], covariance[q - 1]) < 1e-12


def test_minus_zero_is_zero():
    zero, Y = torch.zeros(1, 2, dtype=DOUBLE), torch.ones(1, 1, dtype=DOUBLE)
    model = online(zero, Y)
    model.tell(-zero, Y)
    assert model.num_distinct == 1
    assert online(torch.cat([zero, -zero]), torch.cat([Y, Y])).num_distinct == 1


def test_telling_nothing_and_removing_nothing_change_nothing():
    X, Y = data(5, 2)
    model = online(X, Y)
    before = model.posterior(X).mean
    model.tell(X[:0], Y[:0])
    model.remove([])
    assert difference(model.posterior(X).mean, before) == 0.0


# -------------------------------------------------------------------- noise


def test_observations_with_and_without_variances():
    X, Y = data(12, 2)
    X[8:] = X[:4]
    noise = torch.rand(12, dtype=DOUBLE) * 0.2 + 0.01
    T = data(5, 2, seed=1)[0]
    for own in (None, 0.3):
        kwargs = {} if own is None else {"regularization": own}
        model = online(X[:6], Y[:6], train_Yvar=noise[:6, None], **kwargs)
        later = noise.clone()
        later[6:9] = noise[:6].mean() if own is None else own
        model.tell(X[6:9], Y[6:9])
        model.tell(X[9:], Y[9:], noise[9:, None])
        assert difference(model.likelihood.noise, later) < 1e-15
        assert_exact(model, X, Y, later, T)
        model.remove([11, 0, 8])
        kept = torch.tensor([1, 2, 3, 4, 5, 6, 7, 9, 10])
        assert_exact(model, X[kept], Y[kept], later[kept], T)
        noisy = model.posterior(T, observation_noise=True).variance - model.posterior(T).variance
        assert difference(noisy, later[kept].mean().expand(5, 1)) < 1e-12


def test_tiny_variances_are_rounded_up_as_in_the_constructor():
    X, Y = data(4, 2)
    tiny = torch.full_like(Y, 1e-9)
    T = data(5, 2, seed=1)[0]
    told = online(X[:2], Y[:2], train_Yvar=torch.full_like(Y[:2], 0.1))
    conditioned = copy.deepcopy(told)
    with pytest.warns(NumericalWarning, match="Rounding small noise"):
        told.tell(X[2:], Y[2:], tiny[2:])
    with pytest.warns(NumericalWarning, match="Rounding small noise"):
        conditioned = conditioned.condition_on_observations(X[2:], Y[2:], noise=tiny[2:])
    for model in (told, conditioned):
        assert_exact(model, X, Y, torch.tensor([0.1, 0.1, 1e-6, 1e-6], dtype=DOUBLE), T)


@pytest.mark.parametrize("additional", [False, True])
def test_a_likelihood_with_fixed_noise_and_more(additional):
    X, Y = data(9, 2)
    noise = torch.rand(9, dtype=DOUBLE) * 0.2 + 0.01
    likelihood = FixedNoiseGaussianLikelihood(noise[:5], learn_additional_noise=additional).double()
    more = 0.0
    if additional:
        more = 0.07
        likelihood.second_noise = exactly(more)
    model = online(X[:5], Y[:5], likelihood=likelihood)
    conditioned = model.condition_on_observations(X[5:], Y[5:], noise=noise[5:, None])
    model.tell(X[5:8], Y[5:8], noise[5:8, None])
    model.tell(X[8:], Y[8:])
    later = noise.clone()
    later[8] = noise[:8].mean()
    T = data(5, 2, seed=1)[0]
    assert_exact(conditioned, X, Y, noise + more, T)
    assert_exact(model, X, Y, later + more, T)
    model.remove([2, 4])
    assert_exact(model, *(part[[0, 1, 3, 5, 6, 7, 8]] for part in (X, Y, later + more)), T)
    model.prediction_strategy = None
    assert_exact(model, *(part[[0, 1, 3, 5, 6, 7, 8]] for part in (X, Y, later + more)), T)


# -------------------------------------------------------------------- shapes


@pytest.mark.parametrize("t_shape", [(3,), (2, 3)])
def test_t_batches_equal_one_at_a_time(t_shape):
    X, Y = data(30, 2)
    model = online(X[:20], Y[:20])
    model.tell(X[15:], Y[15:])
    for q in (1, 4):
        T = torch.rand(*t_shape, q, 2, dtype=DOUBLE)
        posterior = model.posterior(T)
        assert posterior.mean.shape == (*t_shape, q, 1)
        for index in itertools.product(*map(range, t_shape)):
            alone = model.posterior(T[index])
            assert difference(posterior.mean[index], alone.mean) < 1e-12
            joint = posterior.distribution.covariance_matrix[index]
            assert difference(joint, alone.distribution.covariance_matrix) < 1e-12


@pytest.mark.one_in(4)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_batch_of_models_equals_its_members(q, outputs):
    X, Y = (torch.stack(parts) for parts in zip(*(data(12, 2, seed) for seed in range(3)), strict=True))
    X[:, 1] = X[:, 0]  # in batches repeats are not merged, and do no harm
    Y = torch.cat([Y, Y.square()], -1)[..., :outputs]
    batch = online(X, Y)
    shared = torch.rand(7, 1, q, 2, dtype=DOUBLE)
    new = torch.rand(3, 2, 2, dtype=DOUBLE)
    values = torch.rand(3, 2, outputs, dtype=DOUBLE)
    conditioned = batch.condition_on_observations(new, values)
    assert batch.num_distinct == 12
    for b in range(3):
        alone = online(X[b], Y[b])
        assert difference(batch.posterior(shared).mean[:, b], alone.posterior(shared[:, 0]).mean) < 1e-10
        assert difference(batch.posterior(shared).variance[:, b], alone.posterior(shared[:, 0]).variance) < 1e-10
        alone.tell(new[b], values[b])
        assert difference(conditioned.posterior(shared).mean[:, b], alone.posterior(shared[:, 0]).mean) < 1e-10
        assert difference(batch.information_gain()[b], online(X[b], Y[b]).information_gain()) < 1e-10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_outputs_equal_models_of_their_own(heteroscedastic):
    X, Y = data(15, 2)
    X[10:] = X[:5]
    Y = torch.cat([Y, Y.square(), -Y], dim=-1)
    noise = torch.rand_like(Y) * 0.1 + 0.01 if heteroscedastic else None

    def told(columns):
        variances = [noise[:9, columns], noise[9:, columns]] if heteroscedastic else [None, None]
        model = online(X[:9], Y[:9, columns], **({"train_Yvar": variances[0]} if heteroscedastic else {}))
        model.tell(X[9:], Y[9:, columns], variances[1])
        model.remove([1, 11, 10, 3])  # the second point goes, with its repeat
        return model

    joint = told([0, 1, 2])
    assert joint.num_distinct == 9
    for q, o in itertools.product((1, 3), range(3)):
        T = torch.rand(4, q, 2, dtype=DOUBLE)
        alone = told([o])
        assert difference(joint.posterior(T).mean[..., o, None], alone.posterior(T).mean) < 1e-10
        assert difference(joint.posterior(T).variance[..., o, None], alone.posterior(T).variance) < 1e-10
        for name in ("leverage_scores", "information_gain", "mean_norm", "effective_dimension"):
            assert difference(getattr(joint, name)()[o], getattr(alone, name)()) < 1e-10
        new = torch.rand(2, 3, dtype=DOUBLE)
        conditioned = joint.condition_on_observations(X[:2], new).posterior(T)
        expected = alone.condition_on_observations(X[:2], new[:, o, None]).posterior(T)
        assert difference(conditioned.mean[..., o, None], expected.mean) < 1e-10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("outputs", [[1], [0, 2]])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_subsets_of_outputs_go_on(outputs, heteroscedastic):
    X, Y = data(15, 2)
    Y = torch.cat([Y, Y.square(), -Y], dim=-1)
    noise = torch.rand_like(Y) * 0.1 + 0.01 if heteroscedastic else None
    model = OnlineGP(
        X, Y, noise, regularization=LAMBDA, input_transform=Normalize(d=2), outcome_transform=Standardize(m=3)
    )
    T = torch.rand(4, 2, 2, dtype=DOUBLE)
    model.posterior(T)
    subset = model.subset_output(outputs)
    more = None if noise is None else noise[:5]
    for _ in range(2):
        assert difference(subset.posterior(T).mean, model.posterior(T).mean[..., outputs]) < 1e-9
        assert difference(subset.posterior(T).variance, model.posterior(T).variance[..., outputs]) < 1e-9
        subset.tell(X[:5], Y[:5, outputs], None if more is None else more[:, outputs])
        model.tell(X[:5], Y[:5], more)
    subset.remove([0, 15])
    model.remove([0, 15])
    assert difference(subset.posterior(T).mean, model.posterior(T).mean[..., outputs]) < 1e-9


# -------------------------------------------------------------------- gradients, transforms, prior mean


@pytest.mark.parametrize("q", [1, 3])
def test_autograd_through_mean_and_variance(q):
    X, Y = data(12, 2)
    model = online(X, Y)
    model.tell(X[:4], Y[:4])
    T = torch.rand(2, q, 2, dtype=DOUBLE, requires_grad=True)

    def outputs(points):
        posterior = model.posterior(points)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(outputs, (T,))


def test_autograd_through_played_points_and_rewards_equals_botorchs():
    """Repeats too: each has a gradient of its own, so they are not merged while one is asked for."""
    X, Y = data(12, 2)
    X[8:] = X[:4]
    gradients = []
    for make in (online, single):
        points, rewards = X.clone().requires_grad_(), Y.clone().requires_grad_()
        model = make(points, rewards)
        with botorch_settings.propagate_grads(True):
            posterior = model.posterior(X[:3] + 0.1)
            (posterior.mean.sum() + posterior.variance.square().sum()).backward()
        gradients.append((points.grad, rewards.grad))
        if make is online:
            model.tell(X, Y)
            assert model.num_distinct == 8
    for ours, theirs in zip(*gradients, strict=True):
        assert float(ours.abs().min()) > 1e-6
        assert difference(ours, theirs) < 1e-8


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_transforms_are_kept_when_told(mode, heteroscedastic):
    """Built by hand in transformed units, with the bounds and scales of the first observations."""
    X, Y = data(20, 2)
    X, Y = 10.0 * X - 3.0, 5.0 * Y + 100.0
    noise = torch.rand_like(Y) + 0.1
    T = 10.0 * data(6, 2, seed=1)[0] - 3.0
    low, span = X[:10].amin(0), X[:10].amax(0) - X[:10].amin(0)
    centre, scale = Y[:10].mean(), Y[:10].std()
    own = {"train_Yvar": noise[:10]} if heteroscedastic else {}
    model = online(X[:10], Y[:10], input_transform=Normalize(d=2), outcome_transform=Standardize(m=1), **own)
    model.train(mode == "train")
    model.tell(X[10:], Y[10:], noise[10:] if heteroscedastic else None)
    model.tell(X[:2], Y[:2], noise[:2] if heteroscedastic else None)
    model.remove([0, 12])
    rows = torch.tensor([*range(1, 12), *range(13, 20), 0, 1])
    own = {"train_Yvar": noise[rows] / scale**2} if heteroscedastic else {}
    by_hand = online((X[rows] - low) / span, (Y[rows] - centre) / scale, **own)
    expected = by_hand.posterior((T - low) / span)
    assert difference(model.posterior(T).mean, expected.mean * scale + centre) < 1e-8
    assert difference(model.posterior(T).variance, expected.variance * scale**2) < 1e-8
    assert model.num_distinct == by_hand.num_distinct
    assert difference(model._original_train_inputs, X[rows]) == 0.0
    new = torch.rand(2, 2, dtype=DOUBLE), torch.full((2, 1), 101.0, dtype=DOUBLE)
    conditioned = model.condition_on_observations(*new).posterior(T)
    expected = by_hand.condition_on_observations((new[0] - low) / span, (new[1] - centre) / scale)
    expected = expected.posterior((T - low) / span)
    assert difference(conditioned.mean, expected.mean * scale + centre) < 1e-8


def test_a_prior_mean_is_honoured():
    X, Y = data(15, 2)
    mean = ConstantMean().double()
    mean.constant = exactly(7.0)
    with_mean, without = online(X[:9], Y[:9] + 7.0, mean_module=mean), online(X[:9], Y[:9])
    with_mean.tell(X[5:], Y[5:] + 7.0)
    without.tell(X[5:], Y[5:])
    for model in (with_mean, without):
        model.remove([3, 6, 10])
    T = data(5, 2, seed=1)[0]
    assert difference(with_mean.posterior(T).mean - 7.0, without.posterior(T).mean) < 1e-10
    assert float(with_mean.mean_norm()) == pytest.approx(float(without.mean_norm()), rel=1e-10)


# -------------------------------------------------------------------- what it knows of itself


def test_scores_gains_and_norms_with_repeats_equal_their_dense_formulas():
    X, Y = data(30, 2)
    X[20:] = X[:10]
    noise = torch.rand(30, dtype=DOUBLE) * 0.2 + 0.01
    model = online(X[:12], Y[:12], train_Yvar=noise[:12, None])
    model.tell(X[12:], Y[12:], noise[12:, None])
    K, S, y = KERNELS["matern"].dense(*dense(X, X)), np.diag(noise.numpy()), Y[:, 0].numpy()
    smoother = np.linalg.solve(K + S, K)
    scores = np.diag(K - K @ np.linalg.solve(K + S, K)) / noise.numpy()
    assert difference(model.leverage_scores(), scores) < 1e-8
    assert float(model.effective_dimension()) == pytest.approx(np.trace(smoother), abs=1e-7)
    root = np.diag(noise.numpy() ** -0.5)
    gain = 0.5 * np.linalg.slogdet(np.eye(30) + root @ K @ root)[1]
    assert float(model.information_gain()) == pytest.approx(gain, abs=1e-8)
    weights = np.linalg.solve(K + S, y)
    assert float(model.mean_norm()) == pytest.approx(np.sqrt(weights @ K @ weights), abs=1e-8)
    assert float(model.kernel_bound()) == pytest.approx(1.7)
    assert model.num_observations == 30
    assert model.num_distinct == 20
    assert float(model.regularization) == pytest.approx(float(noise.mean()), abs=1e-15)


def test_draws_of_all_points_have_the_moments_of_the_posterior():
    """1,500 draws at 5 points: 4.5 standard errors of each mean and variance; 10 comparisons, so a false alarm in
    about 7e-5 of the seeds.
    """
    X, Y = data(12, 2)
    model = online(X[:6], Y[:6], regularization=0.3)
    model.tell(X[3:], Y[3:])
    T = torch.cat([data(4, 2, seed=1)[0], X[:1]])
    draws, generator = PosteriorDraws(model, T), torch.Generator().manual_seed(0)
    drawn = torch.stack([draws.draw(generator) for _ in range(1_500)])
    variance = marginals(model, T)[1]
    assert bool((drawn.mean(0).abs() < 4.5 * (variance / 1_500).sqrt()).all())
    assert bool(((drawn.var(0) - variance).abs() < 4.5 * variance * (2 / 1_500) ** 0.5).all())


# -------------------------------------------------------------------- copies, casts, hyperparameters


def fitted_and_told():
    X, Y = data(12, 2)
    model = online(
        X[:8], Y[:8], train_Yvar=torch.full_like(Y[:8], 0.1), input_transform=Normalize(d=2),
        outcome_transform=Standardize(m=1),
    )  # fmt: skip
    model.tell(X[6:], Y[6:], torch.full_like(Y[6:], 0.2))
    model.posterior(X)
    return model, X, Y


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_independent(duplicate):
    model, X, Y = fitted_and_told()
    other = duplicate(model)
    T, before = X + 0.01, model.posterior(X + 0.01).mean
    assert_same(other, model, T, 1e-12)
    other.tell(X, Y + 3.0)
    other.remove([2])
    assert difference(model.posterior(T).mean, before) == 0.0
    model.tell(X, Y + 3.0)
    model.remove([2])
    assert_same(other, model, T, 1e-10)


def test_casts_go_on():
    model, X, Y = fitted_and_told()
    T, single = X + 0.01, copy.deepcopy(model).to(torch.float32)
    for _ in range(2):
        assert single.posterior(T.float()).mean.dtype == torch.float32
        assert difference(single.posterior(T.float()).mean, model.posterior(T).mean) < 1e-3
        single.tell(X.float(), Y.float())
        model.tell(X, Y)
    assert single.train().train_inputs[0].dtype == torch.float32


@pytest.mark.parametrize("told", [False, True])
def test_changed_hyperparameters_count_from_the_next_training_mode_on(told):
    """As for ``SingleTaskGP``, whose caches live as long."""
    X, Y = data(12, 2)
    model, T = online(X, Y, kernel=matern(0.5)), X + 0.05
    if told:
        model.tell(X[:3], Y[:3])
        X, Y = torch.cat([X, X[:3]]), torch.cat([Y, Y[:3]])
    model.posterior(T)
    model.covar_module.base_kernel.lengthscale = exactly(0.9)
    model.train()
    assert_same(model, online(X, Y, kernel=matern(0.9)), T)
    model.covar_module.base_kernel.lengthscale = exactly(0.2)
    model.train()
    model.tell(X[:2], Y[:2])
    assert_same(model, online(torch.cat([X, X[:2]]), torch.cat([Y, Y[:2]]), kernel=matern(0.2)), T)


def test_looking_at_a_model_in_training_leaves_no_stale_factors():
    X, Y = data(12, 2)
    model = online(X, Y, kernel=matern(0.5)).train()
    assert model.num_distinct == model.num_observations == 12
    model.covar_module.base_kernel.lengthscale = exactly(0.9)
    model.eval()
    assert_same(model, online(X, Y, kernel=matern(0.9)), X + 0.05)


def test_a_loaded_state_leaves_no_stale_factors():
    X, Y = data(12, 2)
    model, other = online(X, Y, kernel=matern(0.5)), online(X, Y, kernel=matern(0.9))
    model.posterior(X)
    model.load_state_dict(other.state_dict())
    assert_same(model, other, X + 0.05, 1e-12)
    model.tell(X[:1], Y[:1])
    other.tell(X[:1], Y[:1])
    assert_same(model, other, X + 0.05)


def test_new_data_by_gpytorchs_own_way():
    X, Y = data(12, 2)
    model = online(X, Y)
    model.tell(X, Y)
    model.set_train_data(X[:5], Y[:5, 0], strict=False)
    model.tell(X[3:7], Y[3:7])
    rows = [0, 1, 2, 3, 4, 3, 4, 5, 6]
    assert_same(model, online(X[rows], Y[rows]), X)


# -------------------------------------------------------------------- bad input: everything or nothing

X, Y = data(8, 2)
NAN, INF = float("nan"), float("inf")
BAD_TELLS = {
    "NaN in X": ((X * NAN, Y), {}, "X must be finite"),
    "infinite Y": ((X, Y * INF), {}, "Y must be finite"),
    "a text": (("X", Y), {}, "X must be real numbers"),
    "1-D X": ((X[0], Y[:1]), {}, "X must have a row for each point"),
    "1-D Y": ((X, Y[:, 0]), {}, "Y must have a row for each point"),
    "other columns": ((torch.cat([X, X], -1), Y), {}, "X must have d = 2 columns"),
    "other dtype of X": ((X.float(), Y), {}, "X must have dtype torch.float64"),
    "other dtype of Y": ((X, Y.float()), {}, "Y must have dtype torch.float64"),
    "too few rewards": ((X, Y[:3]), {}, r"X must be \(k, d\) and Y \(k, 1\)"),
    "too many outputs": ((X, torch.cat([Y, Y], -1)), {}, r"X must be \(k, d\) and Y \(k, 1\)"),
    "a batch": ((X.expand(2, 8, 2), Y.expand(2, 8, 1)), {}, r"X must be \(k, d\)"),
    "negative variances": ((X, Y, -Y.abs()), {"train_Yvar": Y.abs()}, "Yvar must not be negative, its least"),
    "NaN variances": ((X, Y, Y * NAN), {"train_Yvar": Y.abs()}, "Yvar must be finite"),
    "variances of another shape": ((X, Y, Y[:2].abs()), {"train_Yvar": Y.abs()}, r"the shape of Y, \(8, 1\)"),
}
BAD_ROWS = {
    "too large": ([0, 8], "distinct rows of the 8 observations"),
    "negative": ([-1], "distinct rows of the 8 observations"),
    "twice": ([1, 1], "distinct rows of the 8 observations"),
    "a mask": (torch.tensor([True, False]), "rows must be one or more whole numbers"),
    "fractions": ([0.5], "rows must be one or more whole numbers"),
    "text": ("first", "rows must be one or more whole numbers"),
}


def state_of(model):
    noise = model.likelihood.noise.clone()
    return [model.train_inputs[0].clone(), model.train_targets.clone(), noise, model.posterior(X + 0.03).mean.detach()]


def assert_unchanged(model, before):
    for ours, theirs in zip(state_of(model), before, strict=True):
        assert torch.equal(ours, theirs)
    model.tell(X[:2], Y[:2])
    assert bool(torch.isfinite(model.posterior(X).mean).all())


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("many", [False, True])
def test_many_changes_at_once_equal_few_at_a_time(many, outputs):
    """Many are made by a fresh factor; 20 of 60 points get another weight, 20 go."""
    X, Y = data(60, 2)
    Y = torch.cat([Y, Y.square()], -1)[:, :outputs]
    model = online(X, Y)
    size = 20 if many else 2
    for part in torch.arange(20).split(size):
        model.tell(X[part], Y[part] + 1.0)
    for _ in range(20 // size):
        model.remove(list(range(20, 20 + size)))
    assert model.num_distinct == 40
    rows = [*range(20), *range(40, 60), *range(20)]
    added = torch.zeros(60, 1, dtype=DOUBLE)
    added[40:] = 1.0
    assert_same(model, online(X[rows], Y[rows] + added), X + 0.05)


@pytest.mark.parametrize("name", sorted(BAD_TELLS))
def test_a_bad_tell_is_named_and_changes_nothing(name):
    arguments, kwargs, message = BAD_TELLS[name]
    model = online(X, Y, **kwargs)
    before = state_of(model)
    with pytest.raises(InputError, match=message):
        model.tell(*arguments)
    assert_unchanged(model, before)


@pytest.mark.parametrize("name", sorted(BAD_ROWS))
def test_bad_rows_are_named_and_change_nothing(name):
    rows, message = BAD_ROWS[name]
    model = online(X, Y)
    before = state_of(model)
    with pytest.raises(InputError, match=message):
        model.remove(rows)
    assert_unchanged(model, before)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_overflow_is_named_and_changes_nothing(fresh):
    model = online(X, Y)
    before = state_of(model)
    points = torch.cat([X[:2], X[:2] + 0.5]) if fresh else X[:2]
    huge = torch.full((len(points), 1), 1.0e308, dtype=DOUBLE)
    with pytest.raises(NumericalError, match="more than the dtype holds"):
        model.tell(points, huge)
    assert_unchanged(model, before)


class Breaking(RBFKernel):
    """Raises, or returns no covariance, when told to."""

    broken = None

    def forward(self, x1, x2, diag=False, **params):
        if self.broken == "raises":
            raise RuntimeError("the kernel is broken")
        values = super().forward(x1, x2, diag=diag, **params)
        return values * {"indefinite": -1.0, "NaN": NAN}.get(self.broken, 1.0)


@pytest.mark.parametrize("broken", ["raises", "indefinite", "NaN"])
def test_a_broken_kernel_changes_nothing(broken):
    kernel = Breaking().double()
    model = online(X, Y, kernel=kernel)
    before = state_of(model)
    kernel.broken = broken
    with pytest.raises((RuntimeError, NotPositiveDefiniteError)):
        model.tell(torch.cat([X[:1], X + 0.5]), torch.cat([Y[:1], Y]))
    kernel.broken = None
    assert_unchanged(model, before)


def test_changes_of_batches_are_refused():
    batch = online(X.expand(3, 8, 2), Y.expand(3, 8, 1))
    fantasies = online(X, Y).condition_on_observations(X[:1].expand(4, 1, 2), torch.rand(4, 1, 1, dtype=DOUBLE))
    for model in (batch, fantasies):
        with pytest.raises(InputError, match=r"without batch dimensions.*Use condition_on_observations"):
            model.tell(X, Y)
        with pytest.raises(InputError, match="without batch dimensions"):
            model.remove([0])


@pytest.mark.parametrize("start", [0, 2])
def test_noise_that_nothing_tells_is_asked_for(start):
    """The default is the mean of the variances there are, and here there are none."""
    model = online(X[:start], Y[:start], train_Yvar=Y[:start].abs())
    model.remove(list(range(start)))
    for change in (model.tell, model.condition_on_observations):
        with pytest.raises(InputError, match="give theirs, or make the model with a regularization"):
            change(X, Y)
    model.tell(X, Y, torch.full_like(Y, 0.1))
    assert_exact(model, X, Y, torch.full((8,), 0.1, dtype=DOUBLE), X + 0.05)


def test_the_oracle_sees_what_the_model_must_not_miss():
    """The tolerance of these laws is far below the effect of one observation."""
    full = oracles.exact(KERNELS["matern"].dense, *dense(X, Y[:, 0], torch.full((8,), LAMBDA, dtype=DOUBLE), X + 0.05))
    less = oracles.exact(
        KERNELS["matern"].dense, *dense(X[1:], Y[1:, 0], torch.full((7,), LAMBDA, dtype=DOUBLE), X + 0.05)
    )
    assert float(np.abs(full.mean - less.mean).max()) > 1e-3
