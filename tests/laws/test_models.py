"""The laws of DESIGN for posteriors: NystromGP against dense formulas and against itself."""

import itertools

import hypothesis.strategies as st
import numpy as np
import oracles
import pytest
import torch
from botorch.cross_validation import loo_cv
from botorch.exceptions.errors import UnsupportedError
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import IIDNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.settings import prior_mode
from hypothesis import given
from problems import DOUBLE, KERNELS, data, dense, difference, exactly, rbf

from torch_kbandits import NystromGP, OnlineGP

LAMBDA = 0.01


def nystrom(X, Y, Z=None, *, kernel="rbf", **kwargs):
    if "train_Yvar" not in kwargs:
        kwargs.setdefault("regularization", LAMBDA)
    covar = KERNELS[kernel].make() if isinstance(kernel, str) else kernel
    return NystromGP(X, Y, inducing_points=X if Z is None else Z, covar_module=covar, **kwargs)


def marginals(model, T):
    posterior = model.posterior(T.unsqueeze(-2))
    return posterior.mean.detach().flatten(), posterior.variance.detach().flatten()


def exact_oracle(kernel, X, Y, noise, T):
    return oracles.exact(KERNELS[kernel].dense, *dense(X, Y[:, 0], noise, T))


@pytest.mark.parametrize("kernel", ["rbf", "scaled rbf", "matern"])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_all_points_as_dictionary_give_the_exact_posterior(kernel, heteroscedastic):
    X, Y = data(40, 3)
    T, _ = data(25, 3, seed=1)
    noise = torch.rand(40, dtype=DOUBLE) * 0.1 + 0.01 if heteroscedastic else torch.full((40,), LAMBDA, dtype=DOUBLE)
    model = nystrom(X, Y, kernel=kernel, **({"train_Yvar": noise.unsqueeze(-1)} if heteroscedastic else {}))
    expected = exact_oracle(kernel, X, Y, noise, T)
    posterior = model.posterior(T)
    assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    assert difference(posterior.distribution.covariance_matrix, expected.covariance) < expected.rounding
    mean, variance = marginals(model, T)
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance) < expected.rounding


def test_all_points_as_dictionary_equal_single_task_gp():
    X, Y = data(60, 4)
    T, _ = data(30, 4, seed=1)
    theirs = SingleTaskGP(
        X, Y, torch.full_like(Y, LAMBDA), covar_module=rbf(0.6), mean_module=ZeroMean(), outcome_transform=None
    )
    ours, theirs = nystrom(X, Y, kernel=rbf(0.6)).posterior(T), theirs.posterior(T)
    assert difference(ours.mean, theirs.mean) < 1e-8
    assert difference(ours.variance, theirs.variance) < 1e-8
    assert difference(ours.distribution.covariance_matrix, theirs.distribution.covariance_matrix) < 1e-8


@pytest.mark.parametrize("kernel", ["rbf", "scaled rbf", "matern"])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_a_smaller_dictionary_gives_the_dtc_posterior(kernel, heteroscedastic):
    X, Y = data(50, 2)
    T, _ = data(20, 2, seed=1)
    noise = torch.rand(50, dtype=DOUBLE) * 0.1 + 0.01 if heteroscedastic else torch.full((50,), LAMBDA, dtype=DOUBLE)
    Z = X[::7]
    model = nystrom(X, Y, Z, kernel=kernel, **({"train_Yvar": noise.unsqueeze(-1)} if heteroscedastic else {}))
    expected = oracles.dtc(KERNELS[kernel].dense, *dense(X, Y[:, 0], noise, Z, T))
    posterior = model.posterior(T)
    assert difference(posterior.mean.flatten(), expected.mean) < expected.rounding
    assert difference(posterior.distribution.covariance_matrix, expected.covariance) < expected.rounding


def test_the_variance_does_not_starve_away_from_the_dictionary():
    X = torch.linspace(0.0, 0.3, 50, dtype=DOUBLE).unsqueeze(-1)
    far = torch.tensor([[5.0]], dtype=DOUBLE)
    _, variance = marginals(nystrom(X, torch.sin(X), X[:5], kernel=rbf(0.1)), far)
    assert float(variance) == pytest.approx(1.0, abs=1e-12)


@given(
    n=st.integers(1, 12),
    d=st.integers(1, 4),
    copies=st.integers(0, 6),
    spread=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3]),
    kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 10_000),
)
def test_duplicates_and_nearly_collinear_points_stay_exact(n, d, copies, spread, kernel, seed):
    """Singular dictionaries: the jitter costs at most about 1e-9 of the prior variance over λ."""
    X, _ = data(n, d, seed)
    generator = torch.Generator().manual_seed(seed)
    again = X[torch.randint(n, (copies,), generator=generator)]
    X = torch.cat([X, again + spread * torch.randn(copies, d, generator=generator, dtype=DOUBLE)])
    Y = torch.sin(3.0 * X.sum(-1, keepdim=True))
    T, _ = data(5, d, seed + 1)
    expected = exact_oracle(kernel, X, Y, torch.full((len(X),), LAMBDA, dtype=DOUBLE), T)
    mean, variance = marginals(nystrom(X, Y, kernel=kernel), T)
    jitter = 1e-9 * max(1.0, float(KERNELS[kernel].dense(*dense(X, X)).max()))
    assert difference(mean, expected.mean) < jitter / LAMBDA
    assert difference(variance, np.maximum(expected.variance, 1e-10)) < jitter / LAMBDA


@given(n=st.integers(1, 15), k=st.integers(1, 4), d=st.integers(1, 3), seed=st.integers(0, 10_000))
def test_conditioning_equals_rebuilding(n, k, d, seed):
    X, Y = data(n + k, d, seed)
    T, _ = data(4, d, seed + 1)
    Z = X[:n:2]
    rebuilt = nystrom(X, Y, torch.cat([Z, X[n:]]), kernel="matern").posterior(T)
    conditioned = nystrom(X[:n], Y[:n], Z, kernel="matern").condition_on_observations(X[n:], Y[n:])
    assert conditioned.inducing_points.shape == (len(Z) + k, d)
    assert difference(conditioned.posterior(T).mean, rebuilt.mean) < 1e-9
    assert (
        difference(conditioned.posterior(T).distribution.covariance_matrix, rebuilt.distribution.covariance_matrix)
        < 1e-9
    )


def test_conditioning_on_noisier_observations_uses_their_noise():
    X, Y = data(20, 2)
    T, _ = data(6, 2, seed=1)
    noise = torch.full_like(Y, 0.05)
    noise[15:] = 0.3
    first = nystrom(X[:15], Y[:15], X[:15], train_Yvar=noise[:15])
    conditioned = first.condition_on_observations(X[15:], Y[15:], noise=noise[15:])
    expected = exact_oracle("rbf", X, Y, noise[:, 0], T)
    mean, variance = marginals(conditioned, T)
    assert difference(mean, expected.mean) < expected.rounding
    assert difference(variance, expected.variance) < expected.rounding


@pytest.mark.parametrize("own", [None, 0.3])
def test_conditioning_without_noise_uses_the_regularization(own):
    X, Y = data(20, 2)
    T, _ = data(6, 2, seed=1)
    kwargs = {} if own is None else {"regularization": own}
    first = nystrom(X[:15], Y[:15], X[:15], train_Yvar=torch.full_like(Y[:15], 0.05), **kwargs)
    conditioned = first.condition_on_observations(X[15:], Y[15:])
    noise = torch.full((20,), 0.05, dtype=DOUBLE)
    noise[15:] = 0.05 if own is None else own
    expected = exact_oracle("rbf", X, Y, noise, T)
    assert difference(marginals(conditioned, T)[0], expected.mean) < expected.rounding


def test_conditioning_shrinks_the_variance_outside_the_old_span():
    """With a fixed dictionary it would not: the reason why conditioning grows it."""
    X, Y = data(10, 1)
    new = torch.tensor([[3.0]], dtype=DOUBLE)
    model = nystrom(X, Y)
    before, after = marginals(model, new)[1], marginals(model.condition_on_observations(new, new), new)[1]
    assert float(before) > 0.99
    assert float(after) == pytest.approx(LAMBDA / (1.0 + LAMBDA), rel=1e-6)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 20))
def test_the_order_of_data_and_dictionary_does_not_matter(seed, n):
    X, Y = data(n, 2, seed)
    T, _ = data(5, 2, seed + 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    one = nystrom(X, Y, X[: n // 2 + 1], kernel="matern").posterior(T)
    other = nystrom(X[order], Y[order], X[: n // 2 + 1].flip(0), kernel="matern").posterior(T)
    assert difference(one.mean, other.mean) < 1e-9
    assert difference(one.distribution.covariance_matrix, other.distribution.covariance_matrix) < 1e-9


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_no_data_equals_the_prior(kernel):
    model = nystrom(torch.empty(0, 2, dtype=DOUBLE), torch.empty(0, 1, dtype=DOUBLE), kernel=kernel)
    T, _ = data(6, 2)
    posterior = model.posterior(T)
    assert difference(posterior.mean, torch.zeros(6, 1)) == 0.0
    assert difference(posterior.distribution.covariance_matrix, KERNELS[kernel].dense(*dense(T, T))) < 1e-12
    assert float(model.information_gain()) == 0.0
    assert float(model.effective_dimension()) == 0.0


def test_no_data_then_conditioning_equals_building():
    X, Y = data(7, 2)
    T, _ = data(5, 2, seed=1)
    empty = nystrom(X[:0], Y[:0])
    assert difference(empty.condition_on_observations(X, Y).posterior(T).mean, nystrom(X, Y).posterior(T).mean) < 1e-10


@given(
    n=st.integers(1, 25), m=st.integers(1, 8), q=st.integers(2, 8), kernel=st.sampled_from(sorted(KERNELS)),
    seed=st.integers(0, 10_000),
)  # fmt: skip
def test_the_covariance_is_positive_semi_definite(n, m, q, kernel, seed):
    X, Y = data(n, 2, seed)
    T, _ = data(q, 2, seed + 1)
    T[-1] = T[0]  # a duplicate, and points of the data themselves
    T = torch.cat([T, X[:2]])
    covariance = nystrom(X, Y, X[:m], kernel=kernel).posterior(T).distribution.covariance_matrix.detach()
    assert difference(covariance, covariance.mT) < 1e-12
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-9
    assert difference(covariance[0], covariance[q - 1]) < 1e-12


def test_single_precision_agrees_to_its_rounding():
    X, Y = data(60, 3)
    T, _ = data(20, 3, seed=1)
    double = nystrom(X, Y, X[:20], kernel="matern").posterior(T)
    single = nystrom(X.float(), Y.float(), X[:20].float(), kernel="matern").posterior(T.float())
    assert single.mean.dtype == single.variance.dtype == torch.float32
    assert difference(single.mean, double.mean) < 5e-3
    assert difference(single.variance, double.variance) < 1e-3


@pytest.mark.parametrize("t_shape", [(3,), (2, 3)])
def test_t_batches_equal_one_at_a_time(t_shape):
    X, Y = data(30, 2)
    model = nystrom(X, Y, X[:10], kernel="matern")
    for q in (1, 4):
        T = torch.rand(*t_shape, q, 2, dtype=DOUBLE)
        posterior = model.posterior(T)
        assert posterior.mean.shape == (*t_shape, q, 1)
        for index in itertools.product(*map(range, t_shape)):
            alone = model.posterior(T[index])
            assert difference(posterior.mean[index], alone.mean) < 1e-12
            assert difference(posterior.variance[index], alone.variance) < 1e-12
            joint = posterior.distribution.covariance_matrix[index]
            assert difference(joint, alone.distribution.covariance_matrix) < 1e-12


@pytest.mark.parametrize("q", [1, 3])
def test_a_batch_of_models_equals_its_members(q):
    X, Y = (torch.stack(parts) for parts in zip(*(data(12, 2, seed) for seed in range(3)), strict=True))
    batch = nystrom(X, Y, X[:, :5], kernel="matern")
    shared = torch.rand(7, 1, q, 2, dtype=DOUBLE)
    posterior = batch.posterior(shared)
    assert posterior.mean.shape == (7, 3, q, 1)
    for b in range(3):
        alone = nystrom(X[b], Y[b], X[b, :5], kernel="matern").posterior(shared[:, 0])
        assert difference(posterior.mean[:, b], alone.mean) < 1e-10
        assert difference(posterior.variance[:, b], alone.variance) < 1e-10


@pytest.mark.one_in(2)
@pytest.mark.parametrize("q", [1, 3])
@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_outputs_equal_models_of_their_own(q, heteroscedastic):
    X, Y = data(15, 2)
    Y = torch.cat([Y, Y.square(), -Y], dim=-1)
    noise = torch.rand_like(Y) * 0.1 + 0.01
    kwargs = {"train_Yvar": noise} if heteroscedastic else {}
    joint = nystrom(X, Y, X[:6], kernel="matern", **kwargs)
    T = torch.rand(4, q, 2, dtype=DOUBLE)
    posterior = joint.posterior(T)
    for o in range(3):
        own = {"train_Yvar": noise[:, o, None]} if heteroscedastic else {}
        alone = nystrom(X, Y[:, o, None], X[:6], kernel="matern", **own)
        assert difference(posterior.mean[..., o, None], alone.posterior(T).mean) < 1e-10
        assert difference(posterior.variance[..., o, None], alone.posterior(T).variance) < 1e-10
        assert difference(joint.leverage_scores()[o], alone.leverage_scores()) < 1e-10
        assert difference(joint.information_gain()[o], alone.information_gain()) < 1e-10
    new_X, new_Y = torch.rand(2, 2, dtype=DOUBLE), torch.rand(2, 3, dtype=DOUBLE)
    conditioned = joint.condition_on_observations(new_X, new_Y).posterior(T)
    last = alone.condition_on_observations(new_X, new_Y[:, 2:]).posterior(T)
    assert difference(conditioned.mean[..., 2:], last.mean) < 1e-10
    assert difference(conditioned.variance[..., 2:], last.variance) < 1e-10


@pytest.mark.parametrize("q", [1, 3])
def test_autograd_through_mean_and_variance(q):
    X, Y = data(12, 2)
    model = nystrom(X, Y, X[:5], kernel="matern")
    T = torch.rand(2, q, 2, dtype=DOUBLE, requires_grad=True)

    def outputs(points):
        posterior = model.posterior(points)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(outputs, (T,))


def test_transforms_equal_transforming_by_hand():
    X, Y = data(20, 2)
    X, Y = 10.0 * X - 3.0, 5.0 * Y + 100.0
    T = 10.0 * data(6, 2, seed=1)[0] - 3.0
    low, high = X.amin(0), X.amax(0)
    model = nystrom(X, Y, X[::2], kernel="matern", input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))
    by_hand = nystrom(
        (X - low) / (high - low), (Y - Y.mean()) / Y.std(), (X[::2] - low) / (high - low), kernel="matern"
    )
    expected = by_hand.posterior((T - low) / (high - low))
    assert difference(model.posterior(T).mean, expected.mean * Y.std() + Y.mean()) < 1e-8
    assert difference(model.posterior(T).variance, expected.variance * Y.var()) < 1e-8
    new_X, new_Y = T[:2], torch.full((2, 1), 101.0, dtype=DOUBLE)
    conditioned = model.condition_on_observations(new_X, new_Y)
    expected = by_hand.condition_on_observations((new_X - low) / (high - low), (new_Y - Y.mean()) / Y.std())
    assert (
        difference(
            conditioned.posterior(T).mean, expected.posterior((T - low) / (high - low)).mean * Y.std() + Y.mean()
        )
        < 1e-8
    )


def test_a_prior_mean_is_honoured():
    X, Y = data(15, 2)
    mean = ConstantMean().double()
    mean.constant = exactly(7.0)
    with_mean = nystrom(X, Y + 7.0, X[:6], mean_module=mean)
    T, _ = data(5, 2, seed=1)
    assert difference(with_mean.posterior(T).mean - 7.0, nystrom(X, Y, X[:6]).posterior(T).mean) < 1e-10


def test_scores_and_gains_equal_their_dense_formulas():
    X, Y = data(30, 2)
    K = KERNELS["matern"].dense(*dense(X, X))
    smoother = np.linalg.solve(K + LAMBDA * np.eye(30), K)
    model = nystrom(X, Y, kernel="matern")
    assert difference(model.leverage_scores(), np.diag(smoother)) < 1e-8
    assert float(model.effective_dimension()) == pytest.approx(np.trace(smoother), abs=1e-7)
    gain = 0.5 * np.linalg.slogdet(np.eye(30) + K / LAMBDA)[1]
    assert float(model.information_gain()) == pytest.approx(gain, abs=1e-8)
    assert float(model.kernel_bound()) == pytest.approx(1.7)
    assert model.num_observations == 30
    assert float(model.regularization) == pytest.approx(LAMBDA, abs=1e-15)


def test_scores_and_gains_of_a_smaller_dictionary():
    X, Y = data(30, 2)
    noise = torch.rand_like(Y) * 0.1 + 0.01
    model = nystrom(X, Y, X[::6], kernel="matern", train_Yvar=noise)
    expected = oracles.dtc(KERNELS["matern"].dense, *dense(X, Y[:, 0], noise[:, 0], X[::6], X))
    assert difference(model.leverage_scores(), expected.variance / noise[:, 0].numpy()) < 1e-8
    gain = oracles.dtc_information_gain(KERNELS["matern"].dense, *dense(X, noise[:, 0], X[::6]))
    assert float(model.information_gain()) == pytest.approx(gain, abs=1e-8)
    assert gain < float(nystrom(X, Y, kernel="matern", train_Yvar=noise).information_gain())


@pytest.mark.parametrize("m", [1, 5, 25])
def test_fitting_maximises_the_collapsed_bound(m):
    X, Y = data(25, 2)
    model = nystrom(X, Y, X[:m], kernel="matern")
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    bound = 25 * float(mll(model(X), model.train_targets).detach())
    expected = oracles.collapsed_bound(KERNELS["matern"].dense, *dense(X, Y[:, 0]), LAMBDA, *dense(X[:m]))
    assert bound == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_the_bound_of_several_outputs_is_the_sum_of_theirs(heteroscedastic):
    X, Y = data(25, 2)
    Y = torch.cat([Y, Y.square()], -1)
    noise = torch.full_like(Y, LAMBDA)
    model = nystrom(X, Y, X[:6], kernel="matern", **({"train_Yvar": noise} if heteroscedastic else {}))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    bounds = 25 * mll(model(*model.train_inputs), model.train_targets).detach()
    for o in range(2):
        expected = oracles.collapsed_bound(KERNELS["matern"].dense, *dense(X, Y[:, o]), LAMBDA, *dense(X[:6]))
        assert float(bounds[o]) == pytest.approx(expected, rel=1e-7)


def test_fitting_never_forms_the_gram_matrix_of_all_points():
    """The covariance stays low rank plus diagonal: its dense form is what would cost O(n³) and O(n²) memory."""
    X, Y = data(300, 2)
    model = nystrom(X, Y, X[:6], kernel=RBFKernel().double())
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    shapes = []
    with _Shapes(shapes):
        (-mll(model(X), model.train_targets)).backward()
    assert max(shapes) <= 6 * 300


class _Shapes(torch.utils._python_dispatch.TorchDispatchMode):
    """Records how many numbers each result holds."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.sizes += [part.numel() for part in torch.utils._pytree.tree_leaves(result) if torch.is_tensor(part)]
        return result


def test_fitting_does_not_learn_the_bounds_of_a_transform_from_the_dictionary():
    X, Y = data(25, 2)
    X = 4.0 * X + 1.0
    unit = (X - X.amin(0)) / (X.amax(0) - X.amin(0))
    model = nystrom(X, Y, X[:6], kernel="matern", input_transform=Normalize(d=2))
    model.train()
    for _ in range(2):
        bound = ExactMarginalLogLikelihood(model.likelihood, model)(model(X), model.train_targets)
    expected = oracles.collapsed_bound(KERNELS["matern"].dense, *dense(unit, Y[:, 0]), LAMBDA, *dense(unit[:6]))
    assert 25 * float(bound.detach()) == pytest.approx(expected, rel=1e-7)


def test_fitting_at_all_points_maximises_the_exact_likelihood():
    X, Y = data(25, 2)
    ours = NystromGP(X, Y, inducing_points=X, covar_module=RBFKernel())
    theirs = SingleTaskGP(X, Y, covar_module=RBFKernel(), mean_module=ZeroMean(), outcome_transform=None)
    values = [
        float(ExactMarginalLogLikelihood(m.likelihood, m)(m(X), m.train_targets).detach()) for m in (ours, theirs)
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-6)


LEFT_OUT = {
    "exact": (OnlineGP, {}),
    "Nyström": (NystromGP, {"inducing_points": data(14, 2)[0][:4]}),
    "noise of each": (NystromGP, {"inducing_points": data(14, 2)[0][:4], "train_Yvar": 0.01 + data(14, 2)[1].abs()}),
}


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(("model", "words"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_leaving_one_out_equals_a_model_without_it(model, words, outputs):
    """At the same dictionary and hyperparameters, in the units told, which a transform learned from all."""
    X, Y = data(14, 2)
    Y = torch.cat([10.0 * Y + 3.0, Y.square()], -1)[:, :outputs]
    noise = words.get("train_Yvar", torch.full((14, 1), 0.05 * float(Y[:, 0].var()), dtype=DOUBLE)).expand(Y.shape)
    words = words | ({"train_Yvar": noise} if "train_Yvar" in words else {"regularization": 0.05})
    built = model(X, Y, covar_module=rbf(0.5), outcome_transform=Standardize(m=outputs), **words)
    noise = noise / Y.var(0) if "train_Yvar" in words else torch.full_like(Y, 0.05)
    scaled = (Y - Y.mean(0)) / Y.std(0)
    result, predicted = built.leave_one_out(observation_noise=False), built.leave_one_out()
    assert result.posterior.mean.shape == (14, 1, outputs)
    assert difference(result.observed_Y.squeeze(1), Y) < 1e-10
    for row, o in itertools.product(range(14), range(outputs)):
        rest = torch.arange(14) != row
        given = dense(X[rest], scaled[rest, o], noise[rest, o])
        where = dense(X[row, None])
        Z = [] if model is OnlineGP else dense(words["inducing_points"])
        expected = (oracles.dtc if Z else oracles.exact)(oracles.rbf(0.5), *given, *Z, *where)
        std = float(Y[:, o].std())
        assert float(result.posterior.mean[row, 0, o]) == pytest.approx(
            expected.mean[0] * std + float(Y[:, o].mean()), abs=1e-7
        )
        assert float(result.posterior.variance[row, 0, o]) == pytest.approx(expected.variance[0] * std**2, rel=1e-6)
        with_noise = expected.variance[0] + float(noise[row, o])
        assert float(predicted.posterior.variance[row, 0, o]) == pytest.approx(with_noise * std**2, rel=1e-6)


def test_leaving_one_out_is_botorchs_where_the_posterior_is_exact():
    X, Y = data(12, 2)
    Y = torch.cat([Y, Y.square()], -1)
    model = OnlineGP(X, Y, 0.01 + Y.abs(), covar_module=rbf(0.5), outcome_transform=Standardize(m=2)).eval()
    ours, theirs = model.leave_one_out(), loo_cv(model)
    for own, their in zip(ours[1:], theirs[1:], strict=True):
        for part in ("mean", "variance") if own is ours.posterior else (None,):
            one, other = (own, their) if part is None else (getattr(own, part), getattr(their, part))
            assert difference(one, other) < 1e-8


def test_the_prior_alone_is_refused_where_it_would_be_taken_for_the_model():
    """BoTorch's short cut for leaving one out takes the posterior for the conditional of the prior."""
    X, Y = data(12, 2)
    model = NystromGP(X, Y, inducing_points=X[:4], covar_module=rbf(0.5), regularization=0.05).eval()
    with pytest.raises(UnsupportedError, match=r"prior_mode\(\): model\(X\).*leave_one_out"):
        loo_cv(model)
    with prior_mode():
        assert difference(model(X).variance, torch.ones(12)) < 1e-12


@pytest.mark.parametrize("model", [NystromGP, OnlineGP])
def test_points_of_one_input_may_come_without_their_column(model):
    X, Y = data(12, 1)
    built = model(X, Y, covar_module=rbf(0.5), regularization=0.05).eval()
    T = torch.linspace(0.0, 1.0, 5, dtype=DOUBLE)
    assert difference(built(T).mean, built(T.unsqueeze(-1)).mean) == 0.0
    one, other = (built.get_fantasy_model(points, T) for points in (T, T.unsqueeze(-1)))
    assert difference(one(T).mean, other(T).mean) == 0.0
    built.train()
    assert built(X.squeeze(-1)).mean.shape == (12,)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("model", [NystromGP, OnlineGP])
def test_fantasies_show_their_inputs_in_the_shape_of_their_batch(model, outputs):
    """As SingleTaskGP's do; the factors are computed once for rewards fantasised at the same points."""
    X, Y = data(12, 2)
    Y = torch.cat([Y, -Y], -1)[:, :outputs]
    new = torch.rand(3, 2, 2, dtype=DOUBLE)
    sampler = IIDNormalSampler(torch.Size([4]), seed=0)
    theirs = SingleTaskGP(X, Y).fantasize(new, sampler)
    ours = model(X, Y, covar_module=rbf(0.5), regularization=0.05).fantasize(new, sampler)
    assert ours.train_inputs[0].shape == theirs.train_inputs[0].shape
    assert ours.train_targets.shape == theirs.train_targets.shape
    posterior, expected = ours.posterior(X), ours.train().eval().posterior(X)
    assert posterior.mean.shape == theirs.posterior(X).mean.shape
    assert difference(posterior.variance, expected.variance) < 1e-10
    assert ours.factors.variance(torch.ones(1), ours.embed(X[:1])).shape[0] == 3
