"""What the models believe in Ax, against dense formulas: outcomes in their own units, standard errors, memories."""

import numpy as np
import oracles
import pytest
import torch
from ax.core.observation import ObservationFeatures
from ax_clients import BRANIN, UNIT, branin, client_of, fitted, tell
from gpytorch.kernels import MaternKernel
from problems import rbf

from torch_kbandits import FixedDictionary, GreedyDictionary, InputError, Linear, Quadratic
from torch_kbandits.memory import Discount, Restart, SlidingWindow, UncertaintyInjection
from torch_kbandits.priors import default_kernel

LAMBDA, SCALE, LENGTH = 0.3, 900.0, 0.35
TRIALS = 12


def in_the_box(x):
    return {"x1": -5.0 + 15.0 * float(x[0]), "x2": 15.0 * float(x[1])}


def told(sems=None, **settings):
    """A client that was told twelve trials, with the points in the unit cube and the outcomes."""
    client = client_of(BRANIN, "-y", kernel=rbf(LENGTH, SCALE), **settings)
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(TRIALS, 2))
    trials = [in_the_box(x) for x in X]
    Y = [branin(**parameters) for parameters in trials]
    tell(client, trials, Y if sems is None else zip(Y, sems, strict=True), "y")
    return client, X, np.array(Y)


def believed(client, T):
    """Means and variances of the model in Ax at points of the unit cube."""
    mean, covariance = fitted(client).predict([ObservationFeatures(in_the_box(x)) for x in T])
    return np.array(mean["y"]), np.array(covariance["y"]["y"])


def agree(client, X, Y, noise):
    counts = np.isfinite(noise)
    T = np.random.default_rng(1).uniform(size=(7, 2))
    dense = oracles.exact(oracles.rbf(LENGTH, SCALE), X[counts], Y[counts], noise[counts], T)
    mean, variance = believed(client, T)
    np.testing.assert_allclose(mean, dense.mean, rtol=1e-6, atol=1e-6 * SCALE)
    np.testing.assert_allclose(variance, dense.variance, rtol=1e-6, atol=1e-7 * SCALE)


AGE = TRIALS - np.arange(TRIALS)  # the present is trial 12
MEMORIES = {
    "all": (None, lambda fresh: fresh),
    "window": (SlidingWindow(5), lambda fresh: np.where(AGE <= 5, fresh, np.inf)),
    "latest": (SlidingWindow(4, "observations"), lambda fresh: np.where(AGE <= 4, fresh, np.inf)),
    "restart": (Restart(8), lambda fresh: np.where(np.arange(TRIALS) >= 8, fresh, np.inf)),
    "restarted": (Restart(6), lambda fresh: fresh + np.inf),
    "discount": (Discount(0.8), lambda fresh: fresh * 0.8**-AGE),
    "linear": (UncertaintyInjection(Linear(7.0)), lambda fresh: fresh + 7.0 * AGE),
    "dropping": (
        UncertaintyInjection(Linear(7.0), max_variance=60.0),
        lambda fresh: np.where(fresh + 7.0 * AGE <= 60.0, fresh + 7.0 * AGE, np.inf),
    ),
    "quadratic": (UncertaintyInjection(Quadratic(0.5)), lambda fresh: fresh * (0.5 * AGE**2 + 1.0)),
}


@pytest.mark.one_in(11)
@pytest.mark.parametrize("known", [False, True], ids=["regularization", "sem"])
@pytest.mark.parametrize("name", MEMORIES)
def test_memories_count_trials_as_dense_formulas_do(name, known):
    memory, noise = MEMORIES[name]
    sems = np.random.default_rng(2).uniform(0.2, 2.0, TRIALS) if known else None
    client, X, Y = told(sems, model="exact", memory=memory, regularization=LAMBDA)
    agree(client, X, Y, noise(np.full(TRIALS, LAMBDA) if sems is None else sems**2))


def test_nystrom_posterior_is_the_dense_one_at_its_dictionary():
    client, X, Y = told(regularization=LAMBDA, dictionary=GreedyDictionary(6))
    T = np.random.default_rng(1).uniform(size=(7, 2))
    mean, variance = believed(client, T)
    model = fitted(client).generator.surrogate.model
    assert len(model.inducing_points) == 6
    Z = (model.inducing_points.numpy() - [-5.0, 0.0]) / 15.0
    dense = oracles.dtc(oracles.rbf(LENGTH, SCALE), X, Y, np.full(TRIALS, LAMBDA), Z, T)
    np.testing.assert_allclose(mean, dense.mean, rtol=1e-6, atol=1e-6 * SCALE)
    np.testing.assert_allclose(variance, dense.variance, rtol=1e-6, atol=1e-7 * SCALE)


def test_a_dictionary_may_be_given():
    points = torch.tensor([[0.0, 1.0], [5.0, 5.0]], dtype=torch.float64)
    client, _, _ = told(regularization=LAMBDA, dictionary=FixedDictionary(points))
    model = fitted(client).generator.surrogate.model
    torch.testing.assert_close(model.inducing_points, points)


def test_trials_without_a_standard_error_get_the_mean_variance_of_the_others():
    sems = [0.5, None, 1.5] * 4
    client, X, Y = told(sems, model="exact")
    known = np.array([0.25, 1.25, 2.25] * 4)
    agree_with_mean_fitted = fitted(client).generator.surrogate.model
    np.testing.assert_allclose(agree_with_mean_fitted.likelihood.noise.numpy(), known)
    client, X, Y = told(sems, model="exact", regularization=LAMBDA)
    agree(client, X, Y, np.array([0.25, LAMBDA, 2.25] * 4))


def test_the_prior_mean_is_what_is_given():
    client, X, Y = told(model="exact", regularization=LAMBDA, prior_mean=50.0)
    T = np.random.default_rng(1).uniform(size=(7, 2))
    dense = oracles.exact(oracles.rbf(LENGTH, SCALE), X, Y - 50.0, np.full(TRIALS, LAMBDA), T)
    np.testing.assert_allclose(believed(client, T)[0], dense.mean + 50.0, rtol=1e-6, atol=1e-6 * SCALE)


@pytest.mark.parametrize(
    ("model", "memory"),
    [
        ("nystrom", None),
        pytest.param("exact", UncertaintyInjection(Linear(1.0)), marks=pytest.mark.slow),
        pytest.param("exact", None, marks=pytest.mark.slow),
        pytest.param("nystrom", UncertaintyInjection(Linear(1.0)), marks=pytest.mark.slow),
    ],
    ids=["nystrom", "exact injection", "exact", "nystrom injection"],
)
def test_what_is_fitted_changes_units_with_the_outcome(model, memory, short_fits):
    """Outcomes a y + b have the prior mean a m + b and variances that are a² times those of y."""
    a, b = 1000.0, -7e4
    beliefs = []
    for scale, shift in ((1.0, 0.0), (a, b)):
        growing = None if memory is None else UncertaintyInjection(Linear(scale**2 * memory.growth.rate))
        client = client_of(BRANIN, "y", model=model, memory=growing, dictionary=_all_points(model))
        rng = np.random.default_rng(0)
        trials = [in_the_box(x) for x in rng.uniform(size=(TRIALS, 2))]
        tell(client, trials, [scale * branin(**parameters) + shift for parameters in trials], "y")
        beliefs.append((*believed(client, rng.uniform(size=(7, 2))), fitted(client).generator.surrogate.model))
    (mean, variance, plain), (scaled_mean, scaled_variance, scaled) = beliefs
    np.testing.assert_allclose(scaled_mean, a * mean + b, rtol=1e-4)
    np.testing.assert_allclose(scaled_variance, a**2 * variance, rtol=1e-3)
    torch.testing.assert_close(scaled.regularization, a**2 * plain.regularization, rtol=1e-3, atol=0.0)


def _all_points(model):
    return GreedyDictionary(TRIALS) if model == "nystrom" else None


def test_hyperparameters_of_the_default_model_maximise_the_likelihood_of_botorch():
    """The fit is that of BoTorch's exact model with the same kernel, priors and standardised outcomes."""
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    client = client_of(BRANIN, "-y", model="exact")
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 2))
    trials = [in_the_box(x) for x in X]
    Y = [branin(**parameters) + rng.normal() for parameters in trials]
    tell(client, trials, Y, "y")
    ours = fitted(client).generator.surrogate.model
    theirs = SingleTaskGP(
        torch.tensor(X),
        torch.tensor(Y, dtype=torch.float64).unsqueeze(-1),
        covar_module=default_kernel(2).base_kernel,
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(theirs.likelihood, theirs))
    theirs.eval()
    T = rng.uniform(size=(7, 2))
    posterior = theirs.posterior(torch.tensor(T))
    mean, variance = believed(client, T)
    np.testing.assert_allclose(mean, posterior.mean.detach().flatten(), rtol=1e-2, atol=0.1)
    np.testing.assert_allclose(variance, posterior.variance.detach().flatten(), rtol=5e-2)
    assert isinstance(ours.covar_module.base_kernel, MaternKernel)


def test_a_cut_off_variance_needs_a_regularization():
    with pytest.raises(InputError, match="give regularization"):
        client_of(UNIT, memory=UncertaintyInjection(Linear(1.0), max_variance=3.0))
