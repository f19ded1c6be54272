"""Every observation may have a noise variance of its own, whatever noise the model was made with."""

import numpy as np
import oracles
import pytest
import torch
from botorch.acquisition.joint_entropy_search import qJointEntropySearch
from botorch.exceptions.warnings import InputDataWarning
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from botorch.sampling import IIDNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from problems import DOUBLE, KERNELS, data, dense, difference, matern

from torch_kbandits import InputError, NystromGP, OnlineGP, UncertaintyInjectionLikelihood
from torch_kbandits.memory import Quadratic

LAMBDA = 0.05
MODELS = [OnlineGP, NystromGP]
MADE_WITH = ["regularization", "a likelihood", "train_Yvar"]
X, Y = data(12, 2)
T, _ = data(6, 2, seed=1)
OWN = torch.linspace(0.001, 0.3, 12, dtype=DOUBLE).unsqueeze(-1)
FIRST, LATER = slice(0, 8), slice(8, 12)
SMALLEST = 1e-6  # to which GPyTorch rounds up


def make(model, X, Y, made_with="regularization", **kwargs):
    """A model on data of noise variance λ; with all points as dictionary, so that it is the exact one."""
    if made_with == "a likelihood":
        kwargs["likelihood"] = GaussianLikelihood().double()
        kwargs["likelihood"].noise = torch.tensor(LAMBDA, dtype=DOUBLE)
    else:
        kwargs["regularization"] = LAMBDA
    if made_with == "train_Yvar":
        kwargs["train_Yvar"] = torch.full_like(Y, LAMBDA)
    if model is NystromGP:
        kwargs["inducing_points"] = X
    return model(X, Y, covar_module=matern(), **kwargs)


def noises(*own):
    """λ for the first eight observations, then what was given."""
    return torch.cat([torch.full((8,), LAMBDA, dtype=DOUBLE), *(part.flatten() for part in own)])


def assert_exact(posterior, X, Y, noise, T=T):
    """The posterior at T is the dense one; condition numbers stay below 1e5."""
    expected = oracles.exact(KERNELS["matern"].dense, *dense(X, Y, noise, T))
    assert difference(posterior.mean.flatten(), expected.mean) < 1e-8
    assert difference(posterior.distribution.covariance_matrix, expected.covariance) < 1e-8


@pytest.mark.parametrize("made_with", MADE_WITH)
@pytest.mark.parametrize("model", MODELS)
def test_conditioning_takes_the_noise_that_is_given(model, made_with):
    before = make(model, X[FIRST], Y[FIRST], made_with)
    after = before.condition_on_observations(X[LATER], Y[LATER], noise=OWN[LATER])
    assert_exact(after.posterior(T), X, Y[:, 0], noises(OWN[LATER]))
    assert_exact(before.posterior(T), X[FIRST], Y[FIRST, 0], noises())
    again = after.condition_on_observations(T[:2], T[:2, :1])
    noise = noises(OWN[LATER], torch.full((2,), LAMBDA, dtype=DOUBLE))
    assert_exact(again.posterior(T), torch.cat([X, T[:2]]), torch.cat([Y[:, 0], T[:2, 0]]), noise)


@pytest.mark.parametrize("made_with", MADE_WITH)
@pytest.mark.parametrize("model", MODELS)
def test_telling_takes_the_noise_that_is_given_and_forgets_it(model, made_with):
    told = make(model, X[FIRST], Y[FIRST], made_with)
    told.posterior(T)
    joins = {"add_to_dictionary": True} if model is NystromGP else {}
    told.tell(X[LATER], Y[LATER], OWN[LATER], **joins)
    assert_exact(told.posterior(T), X, Y[:, 0], noises(OWN[LATER]))
    told.tell(X[:1], Y[:1] + 1.0)
    everything = torch.cat([X, X[:1]]), torch.cat([Y[:, 0], Y[:1, 0] + 1.0])
    assert_exact(told.posterior(T), *everything, noises(OWN[LATER], torch.tensor([LAMBDA], dtype=DOUBLE)))
    told.remove([0, 9])
    kept = torch.tensor([row not in (0, 9) for row in range(13)])
    assert_exact(
        told.posterior(T),
        *(part[kept] for part in everything),
        noises(OWN[LATER], torch.tensor([LAMBDA], dtype=DOUBLE))[kept],
    )


@pytest.mark.parametrize("model", MODELS)
def test_fantasies_take_the_noise_that_is_given(model):
    sampler, noise = IIDNormalSampler(torch.Size([3]), seed=0), torch.full((1, 1), 1e-4, dtype=DOUBLE)
    start = make(model, X[FIRST], Y[FIRST])
    fantasies = start.fantasize(T[:2].unsqueeze(-2), sampler, observation_noise=noise)
    rewards = sampler(start.posterior(T[:2].unsqueeze(-2), observation_noise=noise.expand(2, 1, 1)))
    posterior = fantasies.posterior(T)
    assert posterior.mean.shape == (3, 2, 6, 1)
    for fantasy, place in np.ndindex(3, 2):
        points = torch.cat([X[FIRST], T[place, None]])
        values = torch.cat([Y[FIRST, 0], rewards[fantasy, place, 0]])
        expected = oracles.exact(KERNELS["matern"].dense, *dense(points, values, noises(noise), T))
        assert difference(posterior.mean[fantasy, place, :, 0], expected.mean) < 1e-8
        assert difference(posterior.variance[fantasy, place, :, 0], expected.variance) < 1e-8


@pytest.mark.filterwarnings("ignore:Non-strict enforcement")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_rewards_that_share_points_have_each_the_noise_that_is_given(model, batch):
    """A list of models with outcome transforms conditions with a batch dimension of one."""
    members = torch.arange(1.0, batch + 1.0, dtype=DOUBLE).reshape(batch, 1, 1)
    rewards, noise = members * Y[LATER], members * OWN[LATER]
    start = make(model, X[FIRST], Y[FIRST])
    posterior = start.condition_on_observations(X[LATER], rewards, noise=noise).posterior(T)
    for member in range(batch):
        values = torch.cat([Y[FIRST, 0], rewards[member, :, 0]])
        expected = oracles.exact(KERNELS["matern"].dense, *dense(X, values, noises(noise[member]), T))
        assert difference(posterior.mean[member, :, 0], expected.mean) < 1e-8
        assert difference(posterior.variance[member, :, 0], expected.variance) < 1e-8


@pytest.mark.parametrize("model", MODELS)
def test_each_output_has_the_noise_that_is_given(model):
    both, own = torch.cat([Y, Y.square()], -1), torch.cat([OWN, 2.0 * OWN], -1)
    told = make(model, X[FIRST], both[FIRST])
    conditioned = told.condition_on_observations(X[LATER], both[LATER], noise=own[LATER])
    told.tell(X[LATER], both[LATER], own[LATER], **({"add_to_dictionary": True} if model is NystromGP else {}))
    parts = [make(model, X[FIRST], both[FIRST, o, None]) for o in range(2)]
    listed = ModelListGP(*parts).eval()
    listed.posterior(T)
    listed = listed.condition_on_observations([X[LATER]] * 2, both[LATER], noise=own[LATER])
    for o in range(2):
        expected = oracles.exact(KERNELS["matern"].dense, *dense(X, both[:, o], noises(own[LATER, o]), T))
        for posterior in (told.posterior(T), conditioned.posterior(T), listed.posterior(T)):
            assert difference(posterior.mean[:, o], expected.mean) < 1e-8
            assert difference(posterior.variance[:, o], expected.variance) < 1e-8


@pytest.mark.parametrize("model", MODELS)
def test_what_is_predicted_and_what_comes_later_have_the_regularization(model):
    told = make(model, X[FIRST], Y[FIRST])
    told.tell(X[LATER], Y[LATER], OWN[LATER])
    assert float(told.regularization) == pytest.approx(LAMBDA)
    noise = told.posterior(T, observation_noise=True).variance - told.posterior(T).variance
    assert difference(noise, torch.full_like(noise, LAMBDA)) < 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_fitting_knows_the_noise_that_was_given_and_learns_the_regularization(model):
    learning = make(model, X[FIRST], Y[FIRST], "a likelihood")
    learning.tell(X[LATER], Y[LATER], OWN[LATER])
    Z = {"inducing_points": X[FIRST]} if model is NystromGP else {}
    fixed = model(X, Y, noises(OWN[LATER]).unsqueeze(-1), covar_module=matern(), **Z)
    values = []
    for each in (learning, fixed):
        mll = ExactMarginalLogLikelihood(each.likelihood, each).train()
        values.append(mll(each(*each.train_inputs), each.train_targets, *each.train_inputs))
    assert float(values[0].detach()) == pytest.approx(float(values[1].detach()), rel=1e-8)
    values[0].backward()
    assert float(learning.likelihood.noise_covar.raw_noise.grad) != 0.0


@pytest.mark.parametrize("model", MODELS)
def test_joint_entropy_search_conditions_without_noise(model):
    """Its optima are known to 1e-4, the least that BoTorch infers; the variances are those of SingleTaskGP."""
    optima, values = T[:4], T[:4, :1]
    exact = SingleTaskGP(
        X, Y, likelihood=make(model, X, Y, "a likelihood").likelihood, covar_module=matern(), mean_module=ZeroMean(),
        outcome_transform=None,
    )  # fmt: skip
    ours, theirs = (
        qJointEntropySearch(each, optima, values, condition_noiseless=True).conditional_model.posterior(
            optima.unsqueeze(-2)
        )
        for each in (make(model, X, Y, "a likelihood"), exact)
    )
    assert float(ours.variance.detach().max()) < 1.1e-4
    assert difference(ours.variance, theirs.variance) < 1e-8


def test_pathwise_samples_know_the_noise_that_was_given():
    """Paths go through an observation that is known to 1e-6, and not where it has λ."""
    torch.manual_seed(0)
    model = make(OnlineGP, X[FIRST], Y[FIRST])
    model.tell(T[:1], T[:1, :1], torch.full((1, 1), SMALLEST, dtype=DOUBLE))
    paths = draw_matheron_paths(model, torch.Size([64]))
    assert float((paths(T[:1]) - T[0, 0]).detach().abs().max()) < 6.0 * SMALLEST**0.5


@pytest.mark.parametrize("model", MODELS)
def test_a_variance_of_zero_is_rounded_up_with_a_warning(model):
    start = make(model, X[FIRST], Y[FIRST])
    with pytest.warns(match="Rounding small noise"):
        after = start.condition_on_observations(T[:1], Y[:1], noise=torch.zeros_like(Y[:1]))
    assert float(after.posterior(T[:1]).variance.detach()) == pytest.approx(SMALLEST, rel=1e-3)


@pytest.mark.filterwarnings("ignore", category=InputDataWarning)
@pytest.mark.parametrize("model", MODELS)
def test_noise_that_was_given_goes_with_the_model(model):
    told = make(model, X[FIRST], Y[FIRST])
    told.tell(X[LATER], Y[LATER], OWN[LATER])
    variance = told.posterior(T).variance
    assert difference(told.float().posterior(T.float()).variance, variance) < 1e-3
    assert set(told.state_dict()) == set(make(model, X, Y).state_dict())


@pytest.mark.parametrize("model", MODELS)
def test_a_likelihood_asked_without_inputs_does_not_guess(model):
    """BoTorch's loo_cv would take λ for all: what is meant must be said."""
    told = make(model, X[FIRST], Y[FIRST])
    told.tell(X[LATER], Y[LATER], OWN[LATER])
    with pytest.raises(InputError, match="say of what the noise is"):
        told.likelihood(told(T))
    predicted = told.likelihood(told(T), T).variance - told(T).variance
    assert difference(predicted, torch.full_like(predicted, LAMBDA)) < 1e-12
    observed = told.likelihood(told(X), [X]).variance - told(X).variance
    assert difference(observed, noises(OWN[LATER])) < 1e-12


BAD = {
    "negative": (-OWN[LATER], "must not be negative"),
    "NaN": (OWN[LATER] * torch.nan, "must be finite"),
    "of another shape": (OWN[LATER].squeeze(-1), "noise|Yvar"),
    "of another number": (OWN[FIRST], "must have the shape of Y"),
}


@pytest.mark.parametrize(("noise", "message"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("model", MODELS)
def test_bad_noise_is_refused_and_changes_nothing(model, noise, message):
    start = make(model, X[FIRST], Y[FIRST])
    for call in (start.tell, start.condition_on_observations):
        with pytest.raises(InputError, match=message):
            call(X[LATER], Y[LATER], noise)
    assert_exact(start.posterior(T), X[FIRST], Y[FIRST, 0], noises())


@pytest.mark.parametrize("model", MODELS)
def test_noise_that_follows_from_age_is_not_given(model):
    ageing = UncertaintyInjectionLikelihood(Quadratic(0.1), regularization=LAMBDA, now=1.0, time_column=0)
    start = model(X[FIRST], Y[FIRST], covar_module=matern(), likelihood=ageing.double())
    for call in (start.tell, start.condition_on_observations):
        with pytest.raises(InputError, match=r"says itself|follows from its age"):
            call(X[LATER], Y[LATER], OWN[LATER])


@pytest.mark.parametrize("model", MODELS)
def test_noise_that_scales_with_the_prior_variance_is_refused(model):
    sparse = SparseOutlierGaussianLikelihood(GaussianLikelihood().noise_covar, dim=len(X), outlier_indices=[1])
    with pytest.raises(InputError, match="RobustRelevancePursuitSingleTaskGP"):
        model(X, Y, covar_module=matern(), likelihood=sparse)
