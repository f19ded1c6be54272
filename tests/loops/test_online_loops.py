"""OnlineGP inside the loops that BoTorch users already have: what NystromGP does there, and equal to SingleTaskGP."""

import copy
import io

import pytest
import torch
from botorch import settings as botorch_settings
from botorch.acquisition import UpperConfidenceBound, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.monte_carlo import qNoisyExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf, optimize_acqf_discrete, optimize_acqf_mixed
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood
from problems import DOUBLE, data, difference, exactly, matern, rbf
from test_botorch_loops import ANALYTIC, BATCH, BOUNDS, KINDS, NotACovariance, _sample_moments, in_box

from torch_kbandits import ConstantWidth, InputError, KernelUCB, OnlineGP
from torch_kbandits.numerics.linalg import NotPositiveDefiniteError

X, Y = data(40, 2)
X[30:] = X[:10]  # repeats
NOISE = 0.05


def built(dtype=DOUBLE, n=40, **kwargs):
    kwargs.setdefault("covar_module", matern())
    if kwargs.get("train_Yvar") is None:
        kwargs.setdefault("regularization", NOISE)
    else:
        kwargs["train_Yvar"] = kwargs["train_Yvar"][:n]
    return OnlineGP(X[:n].to(dtype), Y[:n].to(dtype), **kwargs)


def told(dtype=DOUBLE, **kwargs):
    """The same observations, most of them told, and some told that are removed again."""
    variances = kwargs.get("train_Yvar")
    model = built(dtype, n=25, **kwargs)
    for part in torch.arange(25, 40).split(4):
        model.tell(X[part].to(dtype), Y[part].to(dtype), None if variances is None else variances[part])
    model.tell(X[:3].to(dtype) + 0.3, Y[:3].to(dtype))
    model.remove([40, 42, 41])
    return model


def exact(**kwargs):
    kwargs = {"covar_module": matern(), "mean_module": ZeroMean(), "outcome_transform": None} | kwargs
    return SingleTaskGP(X, Y, torch.full_like(Y, NOISE), **kwargs)


pytestmark = [
    pytest.mark.filterwarnings("ignore:qNoisyExpectedImprovement has known numerical issues"),
    # BoTorch's, where a candidate of a batch meets an observed point, whatever the model.
    pytest.mark.filterwarnings("ignore:A not p.d., added jitter"),
]

ACQUISITIONS = ANALYTIC | {
    name: lambda m, kind=kind: kind(m, X[:10], sampler=SobolQMCNormalSampler(torch.Size([64]), seed=0))
    for name, kind in {"qLogNEI": qLogNoisyExpectedImprovement, "qNEI": qNoisyExpectedImprovement}.items()
}


# -------------------------------------------------------------------- acquisition functions


@pytest.mark.parametrize("make", [built, told])
@pytest.mark.parametrize("name", sorted(ACQUISITIONS))
def test_acquisition_values_and_gradients_equal_those_of_botorchs_model(name, make):
    values, gradients = [], []
    for m in (make(), exact()):
        T = torch.rand(20, 1, 2, generator=torch.Generator().manual_seed(1), dtype=DOUBLE).requires_grad_()
        values.append(ACQUISITIONS[name](m)(T))
        gradients.append(torch.autograd.grad(values[-1].sum(), T)[0])
    assert difference(*values) < 1e-6
    assert difference(*gradients) < 1e-5


def test_kernel_ucb_is_botorchs_ucb_with_the_square_root_taken():
    T = torch.rand(50, 1, 2, dtype=DOUBLE)
    expected = UpperConfidenceBound(exact(), beta=4.0)(T)
    for m in (built(), told()):
        assert difference(KernelUCB(m, beta=2.0)(T), expected) < 1e-8
        assert difference(KernelUCB(m, beta=ConstantWidth(2.0))(T), UpperConfidenceBound(m, beta=4.0)(T)) < 1e-12


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_pending_points_shrink_the_band_as_if_they_were_observed(kind):
    m, pending = told(**KINDS[kind]), torch.tensor([[0.2, 0.9], [0.7, 0.1]], dtype=DOUBLE)
    T = torch.cat([pending, X[:2], torch.rand(20, 2, dtype=DOUBLE)]).unsqueeze(-2)
    observed = copy.deepcopy(m)
    observed.tell(pending, torch.zeros(2, 1, dtype=DOUBLE))
    deviation = observed.posterior(T).variance.sqrt().flatten()
    expected = m.posterior(T).mean.flatten() + 3.0 * deviation
    acquisition = KernelUCB(m, beta=3.0)
    without = acquisition(T)
    assert bool((expected < without - 0.01)[:2].all())
    acquisition.set_X_pending(pending)
    assert difference(acquisition(T), expected) < 1e-8
    acquisition.set_X_pending(None)
    assert difference(acquisition(T), without) == 0.0


@pytest.mark.one_in(16)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(ACQUISITIONS))
def test_optimize_acqf_one_point(name, kind):
    acquisition = ACQUISITIONS[name](told(**KINDS[kind]))
    point, value = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=3, raw_samples=32)
    assert point.shape == (1, 2)
    assert in_box(point)
    grid = torch.cartesian_prod(*2 * [torch.linspace(0.0, 1.0, 25, dtype=DOUBLE)])
    assert float(value) >= float(acquisition(grid.unsqueeze(-2)).detach().max()) - 1e-6


@pytest.mark.one_in(8)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("name", sorted(BATCH))
def test_batches_one_after_another(name, kind):
    m, options = told(**KINDS[kind]), {"maxiter": 3}
    points, _ = optimize_acqf(
        BATCH[name](m), BOUNDS, q=3, num_restarts=2, raw_samples=16, sequential=True, options=options
    )
    assert in_box(points)
    assert float(torch.pdist(points).min()) > 1e-3
    choices = torch.rand(50, 2, dtype=DOUBLE)
    chosen, _ = optimize_acqf_discrete(BATCH[name](m), q=3, choices=choices)
    assert bool((chosen[:, None] == choices).all(-1).any(-1).all())
    mixed, _ = optimize_acqf_mixed(
        BATCH[name](m), BOUNDS, q=2, num_restarts=2, raw_samples=16, options=options,
        fixed_features_list=[{0: 0.25}, {0: 0.75}],
    )  # fmt: skip
    assert set(mixed[:, 0].tolist()) <= {0.25, 0.75}


def test_single_precision_loops():
    acquisition = KernelUCB(told(torch.float32), beta=2.0)
    point, _ = optimize_acqf(acquisition, BOUNDS.float(), q=2, num_restarts=1, raw_samples=8, sequential=True)
    assert point.dtype == torch.float32
    assert bool(torch.isfinite(point).all())


def test_max_posterior_sampling():
    choices = torch.rand(300, 2, dtype=DOUBLE)
    chosen = MaxPosteriorSampling(told(), replacement=False)(choices, num_samples=5)
    values = built().posterior(choices).mean.flatten()
    assert float(built().posterior(chosen).mean.detach().mean()) > float(values.detach().quantile(0.8))


# -------------------------------------------------------------------- fantasies


@pytest.mark.one_in(4)
@pytest.mark.parametrize("make", [built, told])
@pytest.mark.parametrize("used", [False, True])
def test_knowledge_gradients_equal_botorchs(make, used):
    results = []
    for m in (make(), exact()):
        if used:
            with torch.no_grad():
                m.posterior(X[:2])
        sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
        acquisition = qKnowledgeGradient(m, num_fantasies=4, sampler=sampler)
        T = torch.rand(3, 5, 2, generator=torch.Generator().manual_seed(2), dtype=DOUBLE).requires_grad_()
        for _ in range(2):  # a second time over kept factors
            value = acquisition(T)
            gradient = torch.autograd.grad(value.sum(), T)[0]
        results.append((value, gradient))
    assert difference(results[0][0], results[1][0]) < 1e-8
    assert difference(results[0][1], results[1][1]) < 1e-7
    assert float(results[0][1][:, 0].abs().max()) > 1e-3


def test_knowledge_gradient_in_a_loop():
    acquisition = qKnowledgeGradient(told(), num_fantasies=4)
    points, value = optimize_acqf(acquisition, BOUNDS, q=1, num_restarts=2, raw_samples=8, options={"maxiter": 2})
    assert points.shape == (1, 2)
    assert bool(torch.isfinite(value))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("batch", [(), (3,)])
def test_fantasies_equal_conditioning_by_hand(kind, batch):
    m, new = told(**KINDS[kind]), torch.rand(*batch, 2, 2, dtype=DOUBLE)
    fantasies = m.fantasize(new, SobolQMCNormalSampler(torch.Size([4]), seed=0))
    T = torch.rand(5, 2, dtype=DOUBLE)
    posterior = fantasies.posterior(T)
    assert posterior.mean.shape == (4, *batch, 5, 1)
    samples = fantasies.train_targets[..., -2:].unsqueeze(-1).detach()
    if hasattr(m, "outcome_transform"):
        samples, _ = m.outcome_transform.untransform(samples)
    by_hand = m.condition_on_observations(new, samples[2]).posterior(T)
    assert difference(posterior.mean[2], by_hand.mean) < 1e-9
    assert difference(posterior.variance[2].expand_as(by_hand.variance), by_hand.variance) < 1e-9
    fantasies.train()  # the same from scratch
    assert difference(fantasies.posterior(T).mean, posterior.mean) < 1e-8


# -------------------------------------------------------------------- fitting


@pytest.mark.one_in(6)
@pytest.mark.parametrize("make", [built, told])
@pytest.mark.parametrize("kind", ["homoscedastic", "heteroscedastic"])
def test_fitting_equals_botorchs_and_clears_the_factors(kind, make):
    fixed = KINDS[kind].get("train_Yvar")
    ours = make(covar_module=ScaleKernel(RBFKernel()), regularization=None, **KINDS[kind])
    theirs = SingleTaskGP(
        X, Y, fixed, covar_module=ScaleKernel(RBFKernel()), mean_module=ZeroMean(), outcome_transform=None
    )
    T = torch.rand(6, 2, dtype=DOUBLE)
    before = ours.posterior(T).mean
    for m in (ours, theirs):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    assert difference(ours.posterior(T).mean, before) > 1e-3
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert difference(one, other) < 1e-4
    assert difference(ours.posterior(T).mean, theirs.posterior(T).mean) < 1e-4
    theirs.load_state_dict(ours.state_dict())
    theirs.train()
    assert difference(ours.posterior(T).mean, theirs.posterior(T).mean) < 1e-8
    assert difference(ours.posterior(T).variance, theirs.posterior(T).variance) < 1e-8


def test_fitting_with_everything_fixed_does_nothing():
    m = told(covar_module=matern().requires_grad_(False))
    expected = m.posterior(X).mean
    fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    assert difference(m.posterior(X).mean, expected) == 0.0


def test_a_given_regularization_is_not_fitted():
    m = told(covar_module=ScaleKernel(RBFKernel()))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    assert float(m.regularization) == pytest.approx(NOISE, abs=1e-15)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_fitted_model_goes_on(kind):
    """The usual loop: fit, tell, condition, fantasise, copy, ask for a batch, fit."""
    m = told(covar_module=ScaleKernel(RBFKernel()).double(), **KINDS[kind])
    mll = ExactMarginalLogLikelihood(m.likelihood, m)
    fit_gpytorch_mll(mll)
    new = torch.rand(2, 2, dtype=DOUBLE)
    expected = m.condition_on_observations(new, new[:, :1]).posterior(X)
    m.tell(new, new[:, :1])
    assert difference(m.posterior(X).mean, expected.mean) < 1e-9
    m.fantasize(new, SobolQMCNormalSampler(torch.Size([2]), seed=0)).posterior(X)
    points, _ = optimize_acqf(
        KernelUCB(m, 2.0), BOUNDS, q=2, num_restarts=2, raw_samples=8, options={"maxiter": 3}, sequential=True
    )
    assert points.shape == (2, 2)
    m.train()
    mll(m(*m.train_inputs), m.train_targets)  # a training step by hand leaves its graph behind
    assert difference(copy.deepcopy(m).posterior(X).mean, m.posterior(X).mean) < 1e-12
    fit_gpytorch_mll(mll)
    assert m.num_observations == 42


# -------------------------------------------------------------------- model methods


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_state_dict_round_trip(kind):
    m = told(covar_module=ScaleKernel(MaternKernel()), **KINDS[kind])
    fit_gpytorch_mll(ExactMarginalLogLikelihood(m.likelihood, m))
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    file.seek(0)
    other = told(covar_module=ScaleKernel(MaternKernel()), **KINDS[kind])
    other.posterior(X)
    other.load_state_dict(torch.load(file, weights_only=True))
    T = torch.rand(5, 2, dtype=DOUBLE)
    assert difference(other.posterior(T).mean, m.posterior(T).mean) < 1e-9
    assert difference(other.posterior(T).variance, m.posterior(T).variance) < 1e-9


def test_model_lists():
    first, second = told(), OnlineGP(X[:20], -Y[:20], covar_module=rbf(), regularization=0.1)
    models = ModelListGP(first, second)
    T = torch.rand(4, 3, 2, dtype=DOUBLE)
    posterior = models.posterior(T)
    assert difference(posterior.mean[..., :1], first.posterior(T).mean) < 1e-12
    assert difference(posterior.variance[..., 1:], second.posterior(T).variance) < 1e-12
    far, values = torch.tensor([[4.0, 4.0]], dtype=DOUBLE), torch.tensor([[1.0, 2.0]], dtype=DOUBLE)
    conditioned = models.condition_on_observations([far] * 2, values)
    for o, m in enumerate((first, second)):
        alone = m.condition_on_observations(far, values[:, o, None])
        assert difference(conditioned.posterior(far).variance[..., o, None], alone.posterior(far).variance) < 1e-9
    weights = ScalarizedPosteriorTransform(torch.ones(2, dtype=DOUBLE))
    pending = KernelUCB(models, 2.0, posterior_transform=weights, X_pending=far)(far.unsqueeze(0)).detach()
    assert float(pending) < float(KernelUCB(models, 2.0, posterior_transform=weights)(far.unsqueeze(0)).detach())
    second.tell(X[:1], Y[:1])
    assert difference(models.posterior(T).mean[..., 1:], second.posterior(T).mean) < 1e-12
    fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
    assert bool(torch.isfinite(models.posterior(T).mean).all())


@pytest.mark.parametrize("used", [False, True])
def test_hyperparameter_gradients_flow_when_asked(used):
    gradients = []
    for m in (told(covar_module=matern()), exact()):
        m.train()
        if used and isinstance(m, OnlineGP):  # then factors are kept that have no graph
            m.posterior(X[:3])
        with botorch_settings.propagate_grads(True):
            posterior = m.posterior(X[:3] + 0.1)
            (posterior.mean.sum() + posterior.variance.sum()).backward()
        gradients.append(m.covar_module.base_kernel.raw_lengthscale.grad)
    assert difference(*gradients) < 1e-8


# -------------------------------------------------------------------- pathwise samples


@pytest.mark.slow
@pytest.mark.parametrize("make", [built, told])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_botorchs_paths_sample_the_posterior(kind, make):
    """4,000 paths of 4,096 features at 6 points. Sampling errors: 4.5 σ/√4000 = 0.071 σ in the mean and 4.5 √(2/4000)
    = 0.10 σ² in the variance; random features add about 1/√2048 = 0.02 of the prior variance. The seed is fixed, the
    rate of false alarms over seeds is about 1e-4.
    """
    m, T = make(covar_module=rbf(0.35), **KINDS[kind]), torch.rand(6, 2, dtype=DOUBLE)
    T[0] = torch.tensor([1.6, -0.5])  # away from the data, where the variance is large
    posterior = m.posterior(T.unsqueeze(-2))
    scale = float(m.outcome_transform.stdvs) ** 2 if hasattr(m, "outcome_transform") else 1.0
    mean, variance = _sample_moments(m, T)
    expected = posterior.variance.flatten().detach()
    assert float(expected.max()) > 0.5 * scale
    assert bool(((mean - posterior.mean.flatten().detach()).abs() < 0.071 * expected.sqrt() + 0.05 * scale**0.5).all())
    assert bool(((variance - expected).abs() < 0.10 * expected + 0.04 * scale).all())


def test_paths_honour_the_prior_mean_the_noise_and_the_inputs():
    """As above, with inputs off the unit cube, a prior mean of 50 and much noise: 4.5 standard errors each.

    Of 2,000 paths these are 0.10 σ and 0.142 σ²; of 2,048 features about 0.03 of the prior variance.
    """
    wide, mean = 30.0 * X - 7.0, ConstantMean().double()
    mean.constant = exactly(50.0)
    m = OnlineGP(
        wide[:12], Y[:12] + 50.0, covar_module=rbf(0.35), regularization=3.0, mean_module=mean,
        input_transform=Normalize(d=2),
    )  # fmt: skip
    m.tell(wide[8:15], Y[8:15] + 50.0)
    T = 30.0 * torch.rand(6, 2, dtype=DOUBLE) - 7.0
    posterior = m.posterior(T.unsqueeze(-2))
    sampled_mean, sampled_variance = _sample_moments(m, T, 2_000, 2_048)
    expected = posterior.variance.flatten().detach()
    assert float(expected.min()) > 0.1
    error = (sampled_mean - posterior.mean.flatten().detach()).abs()
    assert bool((error < 0.10 * expected.sqrt() + 0.05).all())
    assert bool(((sampled_variance - expected).abs() < 0.142 * expected + 0.05).all())


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:Data .outcome observations. is not standardized")
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_paths_of_outputs_and_batches_have_botorchs_shapes(batch, outputs):
    many_X, many_Y = X.expand(*batch, 40, 2), Y.expand(*batch, 40, outputs)
    ours = OnlineGP(many_X, many_Y, regularization=0.1)
    theirs = SingleTaskGP(many_X, many_Y, outcome_transform=None)
    T = torch.rand(*batch, 6, 2, dtype=DOUBLE)
    if batch and outputs > 1:
        T = T.unsqueeze(-3)
    shapes = [draw_matheron_paths(m, torch.Size([5]))(T).shape for m in (ours, theirs)]
    assert shapes[0] == shapes[1]


def test_pathwise_thompson_sampling():
    points, _ = optimize_acqf(PathwiseThompsonSampling(told()), BOUNDS, q=2, num_restarts=2, raw_samples=16)
    assert points.shape == (2, 2)


# -------------------------------------------------------------------- bad input

BAD_MODELS = {
    "NaN in X": ({"train_X": X * float("nan")}, "train_X must be finite"),
    "infinite Y": ({"train_Y": Y / 0.0}, "train_Y must be finite"),
    "1-D X": ({"train_X": X[:, 0]}, "train_X must have a row for each point"),
    "1-D Y": ({"train_Y": Y[:, 0]}, "train_Y must have a row for each point"),
    "too few rewards": ({"train_Y": Y[:5]}, r"shape \(40, 1\) for one output"),
    "mixed dtypes": ({"train_Y": Y.float()}, "train_Y must have dtype torch.float64"),
    "integers": ({"train_X": X.long()}, "train_X must have a floating dtype"),
    "texts": ({"train_X": [["a"]]}, "train_X must be real numbers"),
    "zero regularization": ({"regularization": 0.0}, "regularization must be a finite number above 0"),
    "bad regularization beside variances": (
        {"regularization": float("nan"), "train_Yvar": Y.abs()},
        "regularization must be a finite number above 0",
    ),
    "negative variances": ({"train_Yvar": -Y.abs()}, "train_Yvar must not be negative"),
    "variances of another shape": ({"train_Yvar": Y[:3].abs()}, "the shape of train_Y"),
    "a likelihood and variances": (
        {"likelihood": exact().likelihood, "train_Yvar": Y.abs()},
        "Give either a likelihood or train_Yvar",
    ),
    "two noises": ({"likelihood": exact().likelihood, "regularization": 0.1}, "not both"),
}


@pytest.mark.parametrize("name", sorted(BAD_MODELS))
def test_a_bad_model_is_named(name):
    kwargs, message = BAD_MODELS[name]
    with pytest.raises(InputError, match=message):
        OnlineGP(**({"train_X": X, "train_Y": Y, "covar_module": matern()} | kwargs))


def test_a_kernel_that_is_no_covariance_is_named():
    m = built(covar_module=NotACovariance().double())
    with pytest.raises(NotPositiveDefiniteError, match="not a valid covariance"):
        m.posterior(X)
