"""NystromGP told and made to forget in place equals a fresh one, and the dense formula, at the same dictionary."""

import copy
import itertools
import pickle

import hypothesis.strategies as st
import oracles
import pytest
import torch
from botorch import settings as botorch_settings
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.utils.warnings import NumericalWarning
from hypothesis import given
from interrupts import Interrupt
from problems import DOUBLE, KERNELS, data, dense, difference, exactly, matern
from test_models import exact_oracle, marginals, nystrom
from test_online_gp import BAD_ROWS, BAD_TELLS, Breaking, Sizes, assert_same, nothing, online

from torch_kbandits import (
    InputError,
    KernelUCB,
    Linear,
    NystromGP,
    RidgeLeverageSampling,
    UncertaintyInjectionLikelihood,
    at_time,
)
from torch_kbandits.dictionaries import GreedyDictionary
from torch_kbandits.errors import EmptyHistoryError, NumericalError
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError
from torch_kbandits.posteriors.dtc import DTCFactors

LAMBDA = 0.01
T = data(8, 2, seed=1)[0]


def assert_dtc(model, X, Y, noise, kernel="matern"):
    """Mean, covariance, marginal variance and information gain are those of the dense formula at its dictionary."""
    Z = model.inducing_points
    expected = oracles.dtc(KERNELS[kernel].dense, *dense(X, Y[:, 0], noise, Z, T))
    posterior = model.posterior(T)
    assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    assert difference(posterior.distribution.covariance_matrix, expected.covariance) < expected.rounding
    mean, variance = marginals(model, T)
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance) < expected.rounding
    gain = oracles.dtc_information_gain(KERNELS[kernel].dense, *dense(X, noise, Z))
    assert float(model.information_gain()) == pytest.approx(gain, abs=len(X) * expected.rounding)


def gradients(model):
    """Gradients of the summed means and of the summed variances with respect to the points."""
    points = T.unsqueeze(-2).clone().requires_grad_()
    posterior = model.posterior(points)
    return [
        torch.autograd.grad(part.sum(), points, retain_graph=True)[0] for part in (posterior.mean, posterior.variance)
    ]


def assert_equals_fresh(model, fresh, tolerance=1e-8):
    """Relative to the largest of each."""
    for ours, theirs in zip(quantities(model), quantities(fresh), strict=True):
        assert difference(ours, theirs) <= tolerance * max(1.0, float(theirs.abs().max()))


def quantities(model):
    posterior, single = model.posterior(T), model.posterior(T.unsqueeze(-2))
    own = [model.information_gain(), model.effective_dimension(), model.mean_norm(), model.kernel_bound()]
    joint = [posterior.mean, posterior.distribution.covariance_matrix, single.variance]
    return [part.detach() for part in (*joint, *own, *gradients(model))]


class Fits:
    """Counts how often a posterior is computed from all observations."""

    def __init__(self, monkeypatch):
        self.count, original = 0, DTCFactors.fit_embedded

        def counted(*arguments):
            self.count += 1
            return original(*arguments)

        monkeypatch.setattr(DTCFactors, "fit_embedded", counted)


# -------------------------------------------------------------------- equal to a fresh model


@pytest.mark.one_in(6)
@pytest.mark.parametrize("kernel", ["rbf", "matern"])
@pytest.mark.parametrize("heteroscedastic", [False, True])
@pytest.mark.parametrize("k", [1, 3, 12])
def test_telling_and_removing_equal_a_fresh_model(kernel, heteroscedastic, k, monkeypatch):
    """One, few and many at a time; only the first posterior is computed from all observations."""
    X, Y = data(60, 2)
    noise = (
        torch.rand(60, 1, dtype=DOUBLE) * 0.2 + 0.01 if heteroscedastic else torch.full((60, 1), LAMBDA, dtype=DOUBLE)
    )
    Z, part = X[:24:2], {"train_Yvar": noise[:24]} if heteroscedastic else {}
    model = nystrom(X[:24], Y[:24], Z, kernel=kernel, **part)
    model.posterior(T)
    fits = Fits(monkeypatch)
    for rows in torch.arange(24, 60).split(k):
        model.tell(X[rows], Y[rows], noise[rows] if heteroscedastic else None)
    assert model.num_observations == 60
    for _ in range(24 // k):
        model.remove(list(range(1, 1 + k)))
    assert fits.count == 0
    kept = [0, *range(25, 60)]
    own = {"train_Yvar": noise[kept]} if heteroscedastic else {}
    assert torch.equal(model.inducing_points, Z)
    assert torch.equal(model.train_inputs[0], X[kept])
    assert torch.equal(model.train_targets, Y[kept, 0])
    assert_equals_fresh(model, nystrom(X[kept], Y[kept], Z, kernel=kernel, **own))
    assert_dtc(model, X[kept], Y[kept], noise[kept, 0], kernel)


STEPS = ["tell", "join", "remove", "extend", "choose"]


@given(
    seed=st.integers(0, 10_000), d=st.integers(1, 3), m=st.integers(1, 12), kernel=st.sampled_from(sorted(KERNELS)),
    heteroscedastic=st.booleans(), spread=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3, 0.1]),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=8),
)  # fmt: skip
def test_any_short_walk_equals_a_fresh_model(seed, d, m, kernel, heteroscedastic, spread, steps):
    """Points repeat, and dictionaries are nearly dependent: jitter costs up to about 1e-9 of a variance over λ."""
    generator = torch.Generator().manual_seed(seed)
    pool = data(8, d, seed)[0]
    pool = torch.cat([pool, pool + spread * torch.randn(8, d, generator=generator, dtype=DOUBLE)])
    kwargs = {"train_Yvar": nothing()[1], "regularization": LAMBDA} if heteroscedastic else {}
    model = nystrom(*nothing(d), pool[torch.randperm(16, generator=generator)[:m]], kernel=kernel, **kwargs)
    X, Y, noise = nothing(d)[0], nothing()[1], nothing()[1]
    for step, k in steps:
        new = pool[torch.randint(16, (k,), generator=generator)]
        if step in ("tell", "join"):
            rewards = torch.sin(5.0 * new).sum(-1, keepdim=True)
            variances = torch.rand(k, 1, generator=generator, dtype=DOUBLE) + 0.01 if heteroscedastic else None
            model.tell(new, rewards, variances, add_to_dictionary=step == "join")
            variances = torch.full((k, 1), LAMBDA, dtype=DOUBLE) if variances is None else variances
            X, Y, noise = torch.cat([X, new]), torch.cat([Y, rewards]), torch.cat([noise, variances])
        elif step == "remove":
            rows = torch.randperm(len(X), generator=generator)[:k]
            model.remove(rows)
            kept = torch.ones(len(X), dtype=torch.bool).index_fill(0, rows, False)
            X, Y, noise = X[kept], Y[kept], noise[kept]
        elif step == "extend":
            model.set_dictionary(torch.cat([model.inducing_points, new]))
        elif len(X):
            model.set_dictionary(RidgeLeverageSampling(), generator)
    fresh = nystrom(
        X, Y, model.inducing_points, kernel=kernel, **(kwargs | ({"train_Yvar": noise} if heteroscedastic else {}))
    )
    test = data(5, d, seed + 1)[0]
    assert_same(model, fresh, test, 1e-6)
    assert float(model.information_gain()) == pytest.approx(float(fresh.information_gain()), abs=1e-6, rel=1e-6)
    assert difference(model.train_inputs[0], X) == 0.0


def window(model, X, Y, w, noise=None):
    """Tell one and remove the oldest until the last row."""
    for row in range(w, len(X)):
        model.tell(X[row, None], Y[row, None], None if noise is None else noise[row, None])
        model.remove([0])


@pytest.mark.parametrize("heteroscedastic", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("refresh", [100, pytest.param(10**9, marks=pytest.mark.slow)])
def test_a_window_after_many_rounds_equals_a_rebuild(heteroscedastic, refresh, monkeypatch):
    """10,000 rounds of w = 60; without a refresh the drift stays as small. The quick case stops after 120."""
    monkeypatch.setattr(NystromGP, "REFRESH", refresh)
    rounds, w = 120 if refresh == 100 and not heteroscedastic else 10_000, 60
    _many_rounds(rounds, w, heteroscedastic)


@pytest.mark.slow
def test_a_window_after_10000_rounds_equals_a_rebuild():
    _many_rounds(10_000, 100, False)


def _many_rounds(rounds, w, heteroscedastic):
    X, Y = data(w + rounds, 2)
    noise = torch.rand(w + rounds, 1, dtype=DOUBLE) * 0.2 + 0.001 if heteroscedastic else None
    kwargs = [{"train_Yvar": noise[rows]} if heteroscedastic else {} for rows in (slice(w), slice(-w, None))]
    model = nystrom(X[:w], Y[:w], X[:20], kernel="matern", **kwargs[0])
    window(model, X, Y, w, noise)
    assert_equals_fresh(model, nystrom(X[-w:], Y[-w:], X[:20], kernel="matern", **kwargs[1]), 1e-6)


def test_a_refresh_comes_every_so_many_changes(monkeypatch):
    monkeypatch.setattr(NystromGP, "REFRESH", 10)
    X, Y = data(55, 2)
    model = nystrom(X[:5], Y[:5], X[:5])
    model.posterior(T)
    fits = Fits(monkeypatch)
    window(model, X, Y, 5)
    assert fits.count == 100 // 10 - 1


def test_one_observation_never_forms_anything_of_n_times_m():
    X, Y = data(1_000, 2)
    model = nystrom(X, Y, X[:20], kernel="matern")
    model.posterior(T)
    sizes = []
    with Sizes(sizes):
        model.tell(X[:1], Y[:1])
        model.remove([7])
        model.posterior(T[:1])
    assert max(sizes) <= 2 * 1_001


# -------------------------------------------------------------------- what rounding would be left of


def test_a_downdate_that_would_leave_rounding_is_a_rebuild(monkeypatch):
    """λ = 1e-9: an observation explains all but a part in 1e9 of its point's variance."""
    X, Y = data(4, 2)
    model = nystrom(X, Y, kernel="matern", regularization=1e-9)
    model.posterior(T)
    fits = Fits(monkeypatch)
    model.remove([0])
    assert fits.count == 1
    assert_equals_fresh(model, nystrom(X[1:], Y[1:], X, kernel="matern", regularization=1e-9))


def test_precise_observations_leave_no_error_behind():
    """150 that count 3e5 times as much go one by one: what stays has not their rounding, 2e-8 of the mean."""
    X, Y = data(40, 2)
    many = X[:5].repeat(30, 1)
    noise = torch.cat([torch.ones(40, 1), torch.full((150, 1), 3e-6)]).double()
    everything = torch.cat([X, many]), torch.cat([Y, Y[:5].repeat(30, 1)])
    model = nystrom(*everything, X[:10], kernel="matern", train_Yvar=noise)
    for _ in range(150):
        model.remove([40])
    assert_dtc(model, X, Y, noise[:40, 0])


def test_removing_everything_leaves_the_prior():
    X, Y = data(30, 2)
    model = nystrom(X, Y, X[:7], kernel="matern")
    for k in (1, 4, 20, 5):
        model.remove(list(range(k)))
    assert difference(model.posterior(T).mean, torch.zeros(8, 1)) == 0.0
    assert difference(model.posterior(T).distribution.covariance_matrix, KERNELS["matern"].dense(*dense(T, T))) < 1e-12
    assert float(model.information_gain()) == float(model.effective_dimension()) == 0.0
    assert len(model.inducing_points) == 7
    model.tell(X, Y)
    assert_dtc(model, X, Y, torch.full((30,), LAMBDA, dtype=DOUBLE))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("w", [5, 40])
def test_single_precision_stays_close(w):
    """After 150 rounds of a window: 5e-3 of the rewards' unit in the mean, 1e-3 of 1.7 in the variance."""
    X, Y = data(150 + w, 2)
    model = nystrom(X[:w].float(), Y[:w].float(), X[:12].float(), kernel="matern")
    window(model, X.float(), Y.float(), w)
    double, single = nystrom(X[-w:], Y[-w:], X[:12], kernel="matern").posterior(T), model.posterior(T.float())
    assert single.mean.dtype == single.variance.dtype == torch.float32
    assert difference(single.mean, double.mean) < 5e-3
    assert difference(single.variance, double.variance) < 1e-3


# -------------------------------------------------------------------- the dictionary


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_all_points_joining_give_the_exact_posterior(kernel):
    X, Y = data(25, 2)
    model = nystrom(*nothing(), kernel=kernel)
    for rows in torch.arange(25).split(3):
        model.tell(X[rows], Y[rows], add_to_dictionary=True)
    model.tell(X[:4], Y[:4], add_to_dictionary=True)
    rows = [*range(25), *range(4)]
    expected = exact_oracle(kernel, X[rows], Y[rows], torch.full((29,), LAMBDA, dtype=DOUBLE), T)
    assert difference(marginals(model, T)[0], expected.mean) < expected.rounding
    assert difference(marginals(model, T)[1], expected.variance) < expected.rounding


def test_points_that_are_spanned_do_not_join():
    X, Y = data(20, 2)
    model = nystrom(*nothing(), kernel="linear")
    model.tell(X[[0, 0, 1, 2]], Y[:4], add_to_dictionary=True)
    for row in range(20):
        model.tell(X[row, None], Y[row, None], add_to_dictionary=True)
    assert torch.equal(model.inducing_points, X[:2])  # two features
    expected = exact_oracle(
        "linear", X[[0, 0, 1, 2, *range(20)]], Y[[*range(4), *range(20)]], torch.full((24,), LAMBDA, dtype=DOUBLE), T
    )
    assert difference(marginals(model, T)[1], expected.variance) < expected.rounding


def test_joining_shrinks_the_variance_that_telling_at_a_fixed_dictionary_leaves():
    X, Y = data(10, 2)
    far, zero = torch.full((1, 2), 3.0, dtype=DOUBLE), torch.zeros(1, 1, dtype=DOUBLE)
    model = nystrom(X, Y, X)
    model.tell(far, zero)
    assert float(marginals(model, far)[1]) > 0.99
    model.remove([10])
    model.tell(far, zero, add_to_dictionary=True)
    assert float(marginals(model, far)[1]) == pytest.approx(LAMBDA / (1.0 + LAMBDA), rel=1e-6)


@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_points_join_without_a_pass_over_the_coordinates(heteroscedastic, monkeypatch):
    X, Y = data(80, 2)
    noise = (
        torch.rand(80, 1, dtype=DOUBLE) * 0.2 + 0.01 if heteroscedastic else torch.full((80, 1), LAMBDA, dtype=DOUBLE)
    )
    Z = torch.cartesian_prod(*2 * [torch.linspace(0.0, 1.0, 4, dtype=DOUBLE)])
    model = nystrom(X, Y, Z[:9], kernel="matern", **({"train_Yvar": noise} if heteroscedastic else {}))
    model.posterior(T)
    fits = Fits(monkeypatch)
    for rows in ([9], [10], [11, 12, 13, 14, 15]):
        model.set_dictionary(Z[: rows[-1] + 1])
        assert_dtc(model, X, Y, noise[:, 0])
    assert fits.count == 0
    model.set_dictionary(Z[5:])
    assert fits.count == 1
    assert_dtc(model, X, Y, noise[:, 0])


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3, 1e-4, 1e-6])
def test_points_that_are_nearly_spanned_join_as_exactly_as_in_a_fresh_model(gap):
    X, Y = data(200, 2)
    model = nystrom(X, Y, X[:15], kernel="matern")
    model.posterior(T)
    Z = torch.cat([X[:15], X[:3] + gap])
    model.set_dictionary(Z)
    assert_same(model, nystrom(X, Y, Z, kernel="matern"), T, 1e-8)


def test_a_rule_chooses_by_the_present_posterior():
    X, Y = data(40, 2)
    X[30:] = X[:10]
    model = nystrom(X[:20], Y[:20], X[:5], kernel="matern")
    model.tell(X[20:], Y[20:])
    model.remove([3, 33])  # the point is gone for good
    seen = []

    class Rule(GreedyDictionary):
        def select(self, played, generator=None):
            seen.append(played)
            return super().select(played, generator)

    points = torch.cat([X[:3], X[4:30]])
    scores = marginals(model, points)[1] / LAMBDA
    model.set_dictionary(Rule(11))
    (played,) = seen
    assert torch.equal(played.points, points)
    assert played.counts.tolist() == [2.0 if row < 9 else 1.0 for row in range(29)]
    assert difference(played.leverage_scores, scores) < 1e-9
    assert played.in_dictionary.tolist() == [row < 4 for row in range(29)]
    assert len(model.inducing_points) == 11
    everything = [0, 1, 2, *range(4, 33), *range(34, 40)]
    assert_dtc(model, X[everything], Y[everything], torch.full((38,), LAMBDA, dtype=DOUBLE))
    model.set_dictionary(RidgeLeverageSampling(), torch.Generator().manual_seed(3))
    other = nystrom(X[everything], Y[everything], model.inducing_points, kernel="matern")
    assert_same(model, other, T)


def test_repeats_of_different_noise_have_one_score():
    X, Y = data(6, 2)
    X[3:] = X[:3]
    noise = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], dtype=DOUBLE).unsqueeze(-1)
    seen = []

    class Rule(GreedyDictionary):
        def select(self, played, generator=None):
            seen.append(played)
            return super().select(played, generator)

    model = nystrom(X, torch.cat([Y, -Y], -1), X[:2], kernel="matern", train_Yvar=torch.cat([noise, 2.0 * noise], -1))
    model.set_dictionary(Rule(2))
    harmonic = 2.0 / (1.0 / noise[:3, 0] + 1.0 / noise[3:, 0])
    assert difference(seen[0].noise, torch.stack([harmonic, 2.0 * harmonic])) < 1e-12
    first = nystrom(X, Y, X[:2], kernel="matern", train_Yvar=noise)
    second = nystrom(X, Y, X[:2], kernel="matern", train_Yvar=2.0 * noise)
    own = [marginals(each, X[:3])[1] / scale / harmonic for each, scale in ((first, 1.0), (second, 2.0))]
    assert difference(seen[0].leverage_scores, torch.maximum(*own)) < 1e-9


def test_sliding_window_bkb_in_ones_own_loop():
    X, Y = data(15, 2)
    model, generator = nystrom(X, Y, X[::2], kernel="matern"), torch.Generator().manual_seed(0)
    told_X, told_Y = X, Y
    for t in range(6):
        acquisition = KernelUCB(model, beta=2.0)
        x, value = optimize_acqf(
            acquisition, torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), q=1, num_restarts=2, raw_samples=16
        )
        assert bool(torch.isfinite(value))
        y = torch.sin(5.0 * x).sum(-1, keepdim=True)
        model.tell(x, y, add_to_dictionary=True)
        told_X, told_Y = torch.cat([told_X, x])[-15:], torch.cat([told_Y, y])[-15:]
        if model.num_observations > 15:
            model.remove([0])
        if t % 3 == 2:
            model.set_dictionary(RidgeLeverageSampling(), generator)
    assert_same(model, nystrom(told_X, told_Y, model.inducing_points, kernel="matern"), T, 1e-8)


# -------------------------------------------------------------------- outputs, transforms, prior mean, ageing


@pytest.mark.one_in(4)
@pytest.mark.parametrize("heteroscedastic", [False, True])
@pytest.mark.parametrize("default_kernel", [False, True])
@pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized")
def test_outputs_equal_models_of_their_own(heteroscedastic, default_kernel):
    X, Y = data(30, 2)
    Y = torch.cat([Y, Y.square(), -Y], dim=-1)
    noise = torch.rand_like(Y) * 0.1 + 0.01

    def told(columns, k):
        parts = [noise[rows][:, columns] if heteroscedastic else None for rows in (slice(9), slice(9, None))]
        kwargs = {"regularization": LAMBDA} if parts[0] is None else {"train_Yvar": parts[0]}
        kernel = {} if default_kernel else {"covar_module": matern()}
        model = NystromGP(X[:9], Y[:9, columns], inducing_points=X[:6], **kwargs, **kernel)
        for rows in torch.arange(21).split(k):
            added = None if parts[1] is None else parts[1][rows]
            model.tell(X[9 + rows], Y[9 + rows][:, columns], added, add_to_dictionary=bool((rows == 3).any()))
        model.remove([1, 11])
        model.remove(list(range(8)))
        return model

    for k in (1, 7):
        joint, alone = told([0, 1, 2], k), [told([o], k) for o in range(3)]
        assert all(torch.equal(joint.inducing_points, each.inducing_points) for each in alone)
        for q, o in ((1, 0), (3, 1), (3, 2)):
            test = torch.rand(4, q, 2, dtype=DOUBLE)
            assert difference(joint.posterior(test).mean[..., o, None], alone[o].posterior(test).mean) < 1e-9
            assert difference(joint.posterior(test).variance[..., o, None], alone[o].posterior(test).variance) < 1e-9
            for name in ("leverage_scores", "information_gain", "mean_norm", "effective_dimension"):
                assert difference(getattr(joint, name)()[o], getattr(alone[o], name)()) < 1e-9


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_transforms_are_kept_when_told(mode, heteroscedastic):
    """Built by hand in transformed units, with the bounds and scales of the first observations."""
    X, Y = data(20, 2)
    X, Y = 10.0 * X - 3.0, 5.0 * Y + 100.0
    noise = torch.rand_like(Y) + 0.1
    low, span = X[:10].amin(0), X[:10].amax(0) - X[:10].amin(0)
    centre, scale = Y[:10].mean(), Y[:10].std()
    own = {"train_Yvar": noise[:10]} if heteroscedastic else {}
    transforms = {"input_transform": Normalize(d=2), "outcome_transform": Standardize(m=1)}
    model = nystrom(X[:10], Y[:10], X[:4], kernel="matern", **transforms, **own)
    model.train(mode == "train")
    model.tell(X[10:], Y[10:], noise[10:] if heteroscedastic else None)
    model.tell(X[:2], Y[:2], noise[:2] if heteroscedastic else None, add_to_dictionary=True)
    model.remove([0, 12])
    model.set_dictionary(torch.cat([model.inducing_points, X[15:17]]))
    rows = torch.tensor([*range(1, 12), *range(13, 20), 0, 1])
    own = {"train_Yvar": noise[rows] / scale**2} if heteroscedastic else {}
    Z = X[[0, 1, 2, 3, 15, 16]]
    assert torch.equal(model.inducing_points, Z)
    by_hand = nystrom((X[rows] - low) / span, (Y[rows] - centre) / scale, (Z - low) / span, kernel="matern", **own)
    test = 10.0 * T - 3.0
    expected = by_hand.posterior((test - low) / span)
    assert difference(model.posterior(test).mean, expected.mean * scale + centre) < 1e-8
    assert difference(model.posterior(test).variance, expected.variance * scale**2) < 1e-8
    assert difference(model._original_train_inputs, X[rows]) == 0.0
    model.set_dictionary(RidgeLeverageSampling())
    assert bool((model.inducing_points[:, None] == X).all(-1).any(-1).all())  # as told, not as transformed


def test_a_prior_mean_is_honoured():
    X, Y = data(15, 2)
    mean = ConstantMean().double()
    mean.constant = exactly(7.0)
    with_mean, without = nystrom(X[:9], Y[:9] + 7.0, X[:4], mean_module=mean), nystrom(X[:9], Y[:9], X[:4])
    with_mean.tell(X[5:], Y[5:] + 7.0)
    without.tell(X[5:], Y[5:])
    for model in (with_mean, without):
        model.set_dictionary(X[:5])
        model.remove([3, 6, 10])
    assert difference(with_mean.posterior(T).mean - 7.0, without.posterior(T).mean) < 1e-10


def ageing(X, Y, Z, now, **kwargs):
    noise = UncertaintyInjectionLikelihood(Linear(0.02), regularization=LAMBDA, now=now, time_column=2, **kwargs)
    return NystromGP(X, Y, inducing_points=Z, likelihood=noise, covar_module=RBFKernel(active_dims=(0, 1)).double())


def test_ageing_observations_are_told_and_removed():
    X, Y = data(30, 2)
    X = torch.cat([X, torch.arange(30.0, dtype=DOUBLE).unsqueeze(-1)], -1)
    model, test = ageing(X[:10], Y[:10], X[:6], 15.0), torch.cat([T, torch.full((8, 1), 29.0).double()], -1)
    model.tell(X[10:15], Y[10:15])
    with pytest.raises(InputError, match="Time must not go backwards"):
        model.tell(X[20:], Y[20:])
    model.posterior(test)
    at_time(model, 29.0)
    model.tell(X[15:], Y[15:])
    model.remove(list(range(5)))
    assert_same(model, ageing(X[5:], Y[5:], X[:6], 29.0), test)
    assert difference(ageing(X[5:], Y[5:], X[:6], 31.0).posterior(test).mean, model.posterior(test).mean) > 1e-4


def test_observations_that_age_beyond_the_cut_off_are_removed():
    X, Y = data(20, 2)
    X = torch.cat([X, torch.arange(20.0, dtype=DOUBLE).unsqueeze(-1)], -1)
    model, fresh = (ageing(X[rows], Y[rows], X[:6], 19.0, max_variance=0.2) for rows in (slice(20), slice(5, 20)))
    model.remove(list(range(5)))
    assert_same(model, fresh, torch.cat([T, torch.full((8, 1), 19.0).double()], -1))


def test_times_beside_the_inputs_are_refused():
    X, Y = data(6, 2)
    noise = UncertaintyInjectionLikelihood(
        Linear(0.1), regularization=LAMBDA, now=6.0, times=torch.arange(6.0).double()
    )
    model = NystromGP(X, Y, inducing_points=X[:3], likelihood=noise, covar_module=matern())
    for change in (lambda: model.tell(X, Y), lambda: model.remove([0])):
        with pytest.raises(InputError, match="time_column instead of times"):
            change()
    model.set_dictionary(X[:5])
    other = NystromGP(X, Y, inducing_points=X[:5], likelihood=noise, covar_module=matern())
    assert_same(model, other, T)


# -------------------------------------------------------------------- noise


def test_observations_with_and_without_variances():
    X, Y = data(12, 2)
    noise = torch.rand(12, dtype=DOUBLE) * 0.2 + 0.01
    for own in (None, 0.3):
        kwargs = {} if own is None else {"regularization": own}
        model = nystrom(X[:6], Y[:6], X[:4], kernel="matern", train_Yvar=noise[:6, None], **kwargs)
        later = noise.clone()
        later[6:9] = noise[:6].mean() if own is None else own
        model.tell(X[6:9], Y[6:9])
        model.tell(X[9:], Y[9:], noise[9:, None])
        assert difference(model.likelihood.noise, later) < 1e-15
        assert_dtc(model, X, Y, later)
        model.remove([11, 0, 8])
        kept = torch.tensor([1, 2, 3, 4, 5, 6, 7, 9, 10])
        assert_dtc(model, X[kept], Y[kept], later[kept])


def test_tiny_variances_are_rounded_up_as_in_the_constructor():
    X, Y = data(4, 2)
    model = nystrom(X[:2], Y[:2], X[:3], kernel="matern", train_Yvar=torch.full_like(Y[:2], 0.1))
    with pytest.warns(NumericalWarning, match="Rounding small noise"):
        model.tell(X[2:], Y[2:], torch.full_like(Y[2:], 1e-9))
    assert_dtc(model, X, Y, torch.tensor([0.1, 0.1, 1e-6, 1e-6], dtype=DOUBLE))


# -------------------------------------------------------------------- BoTorch's ways with a model that was told


def told(**kwargs):
    """30 observations, of which 12 and the dictionary's last two points came by ``tell`` and two went."""
    X, Y = data(32, 2)
    kwargs = {"kernel": "matern"} | kwargs
    model = nystrom(X[:20], Y[:20], X[:8], **kwargs)
    model.tell(X[20:22], Y[20:22], add_to_dictionary=True)
    model.tell(X[22:], Y[22:])
    model.remove([0, 5])
    kept = [1, 2, 3, 4, *range(6, 32)]
    return model, lambda **other: nystrom(X[kept], Y[kept], X[[*range(8), 20, 21]], **{**kwargs, **other})


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_are_equal_and_independent(duplicate):
    model, _ = told()
    other, before = duplicate(model), model.posterior(T).mean
    assert_same(other, model, T)
    for each in (other, model):
        each.tell(T, T[:, :1], add_to_dictionary=True)
        each.remove([2])
        if each is other:
            assert difference(model.posterior(T).mean, before) == 0.0
    assert_same(other, model, T)


def test_state_dict_round_trip():
    model, _ = told(kernel=ScaleKernel(MaternKernel()).double(), regularization=None)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    other, _ = told(kernel=ScaleKernel(MaternKernel()).double(), regularization=None)
    other.set_dictionary(T)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.inducing_points, model.inducing_points)
    assert_same(other, model, T)
    for each in (other, model):
        each.tell(T, T[:, :1])
    assert_same(other, model, T)


def test_fitting_after_a_tell_equals_fitting_a_fresh_model():
    own = {"kernel": ScaleKernel(MaternKernel()).double(), "regularization": None}
    model, fresh = told(**own)
    models = [model, fresh(kernel=ScaleKernel(MaternKernel()).double())]
    for each in models:
        fit_gpytorch_mll(ExactMarginalLogLikelihood(each.likelihood, each))
    for one, other in zip(*(each.parameters() for each in models), strict=True):
        assert difference(one, other) < 1e-5
    for each in models:
        each.tell(T, T[:, :1])
    assert_same(*models, T, 1e-5)


def test_conditioning_after_a_tell():
    model, fresh = told()
    before = model.posterior(T).mean
    new = torch.rand(2, 2, dtype=DOUBLE)
    ours, theirs = (each.condition_on_observations(new, new[:, :1]) for each in (model, fresh()))
    assert_same(ours, theirs, T)
    ours.tell(T, T[:, :1], add_to_dictionary=True)
    ours.remove([3])
    assert difference(model.posterior(T).mean, before) == 0.0
    assert len(ours.inducing_points) == 10 + 2 + 8
    fantasies = model.condition_on_observations(new.expand(3, 2, 2), torch.rand(3, 2, 1, dtype=DOUBLE))
    for change in (lambda: fantasies.tell(new, new), lambda: fantasies.set_dictionary(new)):
        with pytest.raises(InputError, match=r"without batch dimensions.*Use condition_on_observations"):
            change()
    batch = nystrom(X, Y, X[:6].expand(2, 6, 2), kernel="matern")
    with pytest.raises(InputError, match="without batch dimensions"):
        batch.tell(X, Y)


def test_points_that_a_model_list_added_stay_until_another_dictionary_is_set():
    model, fresh = told()
    new = torch.rand(2, 2, dtype=DOUBLE)
    models = [each.get_fantasy_model(new, new[:, 0]) for each in (model, fresh())]  # as ModelListGP conditions
    models[0].tell(T, T[:, :1], add_to_dictionary=True)
    models[0].remove([4])
    (train_X,) = models[0].train_inputs
    dictionary = torch.cat([fresh().inducing_points, T, new])
    other = nystrom(train_X, models[0].train_targets.unsqueeze(-1), dictionary, kernel="matern")
    assert_same(models[0], other, T)
    models[0].set_dictionary(T)
    other.set_dictionary(T)
    assert_same(models[0], other, T)


@pytest.mark.parametrize("used", [False, True])
def test_hyperparameter_gradients_flow_when_asked(used):
    """Also where factors with a graph were kept when the model was told."""
    found = []
    model, fresh = told(kernel=matern())
    new = torch.rand(1, 2, dtype=DOUBLE)
    for each in (model, fresh(kernel=matern())):
        with botorch_settings.propagate_grads(True):
            if used:
                each.posterior(T)
            each.tell(new, new[:, :1])
            for _ in range(2):
                each.covar_module.zero_grad()
                each.train()
                posterior = each.posterior(T)
                (posterior.mean.sum() + posterior.variance.sum()).backward()
        found.append(each.covar_module.base_kernel.raw_lengthscale.grad)
    assert float(found[0].abs().min()) > 1e-3
    assert difference(*found) < 1e-8


@pytest.mark.parametrize("make", [nystrom, online], ids=["nystrom", "online"])
def test_factors_that_were_told_hold_no_graph(make):
    X, Y = data(12, 2)
    model = make(X, Y, kernel=matern())
    with botorch_settings.propagate_grads(True):
        model.posterior(T)
        assert model.factors.embed(torch.ones(12, 1, dtype=DOUBLE)).requires_grad
        model.tell(X[:0], Y[:0])
        assert not model.prediction_strategy.factors.embed(torch.ones(12, 1, dtype=DOUBLE)).requires_grad


def test_changed_hyperparameters_count_from_the_next_training_mode_on():
    X, Y = data(12, 2)
    model = nystrom(X[:9], Y[:9], X[:5], kernel=matern(0.5))
    model.tell(X[9:], Y[9:])
    model.covar_module.base_kernel.lengthscale = exactly(0.9)
    model.train()
    model.tell(X[:2], Y[:2])
    rows = [*range(12), 0, 1]
    assert_same(model, nystrom(X[rows], Y[rows], X[:5], kernel=matern(0.9)), T)


# -------------------------------------------------------------------- bad input: everything or nothing

X, Y = data(8, 2)


def state_of(model):
    noise, posterior = model.likelihood.noise.clone(), model.posterior(X + 0.03)
    data_now = [model.train_inputs[0].clone(), model.train_targets.clone(), noise, model.inducing_points.clone()]
    return [*data_now, posterior.mean.detach(), posterior.variance.detach()]


def assert_unchanged(model, before):
    for ours, theirs in zip(state_of(model), before, strict=True):
        assert torch.equal(ours, theirs)
    model.tell(X[:2], Y[:2])
    assert bool(torch.isfinite(model.posterior(X).mean).all())


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("name", sorted(BAD_TELLS))
def test_a_bad_tell_is_named_and_changes_nothing(name, joins):
    arguments, kwargs, message = BAD_TELLS[name]
    model = nystrom(X, Y, X[:5], kernel="matern", **kwargs)
    before = state_of(model)
    with pytest.raises(InputError, match=message):
        model.tell(*arguments, add_to_dictionary=joins)
    assert_unchanged(model, before)


@pytest.mark.parametrize("name", sorted(BAD_ROWS))
def test_bad_rows_are_named_and_change_nothing(name):
    rows, message = BAD_ROWS[name]
    model = nystrom(X, Y, X[:5], kernel="matern")
    before = state_of(model)
    with pytest.raises(InputError, match=message):
        model.remove(rows)
    assert_unchanged(model, before)


BAD_DICTIONARIES = {
    "a class": (RidgeLeverageSampling, "dictionary must be real numbers"),
    "NaN": (X * float("nan"), "dictionary must be finite"),
    "other columns": (X[:, :1], "dictionary must have d = 2 columns"),
    "other dtype": (X.float(), "dictionary must have dtype torch.float64"),
    "one point": (X[0], "dictionary must have a row for each point"),
    "none": (X[:0], r"dictionary must be points \(m, d\), at least one"),
    "a batch": (X.expand(2, 8, 2), r"dictionary must be points \(m, d\)"),
}


@pytest.mark.parametrize("name", sorted(BAD_DICTIONARIES))
def test_a_bad_dictionary_is_named_and_changes_nothing(name):
    dictionary, message = BAD_DICTIONARIES[name]
    model = nystrom(X, Y, X[:5], kernel="matern")
    before = state_of(model)
    with pytest.raises(InputError, match=message):
        model.set_dictionary(dictionary)
    assert_unchanged(model, before)


def test_a_dictionary_of_nothing():
    model = nystrom(*nothing(), kernel="matern")
    with pytest.raises(InputError, match=r"dictionary is empty.*add_to_dictionary=True"):
        model.tell(X, Y)
    assert model.num_observations == 0
    with pytest.raises(EmptyHistoryError, match="tell first"):
        model.set_dictionary(RidgeLeverageSampling())
    model.tell(X[:0], Y[:0])
    model.set_dictionary(X[:0])
    model.set_dictionary(X[:3])
    model.tell(X, Y)
    assert_dtc(model, X, Y, torch.full((8,), LAMBDA, dtype=DOUBLE))


def test_telling_nothing_and_removing_nothing_change_nothing():
    model = nystrom(X, Y, X[:5], kernel="matern")
    before = state_of(model)
    model.tell(X[:0], Y[:0])
    model.tell(X[:0], Y[:0], add_to_dictionary=True)
    model.remove([])
    model.set_dictionary(X[:5])
    for ours, theirs in zip(state_of(model), before, strict=True):
        assert difference(ours, theirs) < 1e-14


def test_an_overflow_is_named_and_changes_nothing():
    model = nystrom(X, Y, X[:5], kernel="matern")
    before = state_of(model)
    with pytest.raises(NumericalError, match="more than the dtype holds"):
        model.tell(X[:2], torch.full((2, 1), 1.0e308, dtype=DOUBLE), add_to_dictionary=True)
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    ("change", "broken"),
    [  # cross-covariances alone do not show that they are no covariances
        *itertools.product(["tell", "join", "set_dictionary", "choose"], ["raises", "NaN"]),
        *itertools.product(["join", "set_dictionary", "choose"], ["indefinite"]),
    ],
)
def test_a_broken_kernel_changes_nothing(broken, change):
    kernel = Breaking().double()
    model = nystrom(X, Y, X[:5], kernel=kernel)
    before = state_of(model)
    kernel.broken = broken
    changes = {
        "tell": lambda: model.tell(X[:1], Y[:1]),
        "join": lambda: model.tell(X + 0.5, Y, add_to_dictionary=True),
        "set_dictionary": lambda: model.set_dictionary(X[3:]),
        "choose": lambda: model.set_dictionary(GreedyDictionary(6)),
    }
    with pytest.raises((RuntimeError, NotPositiveDefiniteError, NumericalError)):
        changes[change]()
    kernel.broken = None
    assert_unchanged(model, before)


INTERRUPTED = {
    "tell": lambda m: m.tell(X[:1], Y[:1]),
    "join": lambda m: m.tell(X[:2] + 0.5, Y[:2], add_to_dictionary=True),
    "remove": lambda m: m.remove([0, 3]),
    "set_dictionary": lambda m: m.set_dictionary(X[3:]),
    "choose": lambda m: m.set_dictionary(GreedyDictionary(4)),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("call", sorted(INTERRUPTED))
def test_an_interrupt_changes_nothing(call, step):
    """Before a call's last line, which comes after everything is done; with noise variances and a transform."""

    def made():
        own = {"train_Yvar": Y.abs() + 0.1, "input_transform": Normalize(d=2)}
        model = nystrom(X, Y, X[:5], kernel="matern", **own)
        model.posterior(T)
        return model

    before, line, done = state_of(made()), 1, made()
    INTERRUPTED[call](done)
    after = state_of(done)
    while True:
        model = made()
        with Interrupt(line) as interrupt:
            INTERRUPTED[call](model)
        if interrupt.at is None:
            break
        last = interrupt.at.endswith((" in _tell", " in _remove", " in tell", " in remove", " in set_dictionary"))
        now = state_of(model)
        if not (last and equal(now, after)):
            assert equal(now, before), interrupt.at
            INTERRUPTED[call](model)
            assert equal(state_of(model), after, 1e-12), interrupt.at
        line += step
    assert line > 5 * step


def equal(ours, theirs, tolerance=0.0):
    return all(
        one.shape == other.shape and difference(one, other) <= tolerance
        for one, other in zip(ours, theirs, strict=True)
    )
