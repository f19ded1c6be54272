"""Noise that is the same for all observations but those whose variance was given, and paths where noise differs."""

from typing import Any, cast

import torch
from botorch.models.model import Model
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.likelihoods.ageing import UncertaintyInjectionLikelihood


class GivenNoiseLikelihood(GaussianLikelihood):
    """Gaussian noise of variance λ, but for the observations that came with a variance of their own.

    What is predicted has variance λ. GPyTorch passes the inputs of observations as a list, or in training mode.

    Args:
        noise_covar: the model of λ; shared, not copied.
        given: the variances of the observations (..., n), NaN for one that has λ.
    """

    given: Tensor

    def __init__(self, noise_covar: Noise, given: Tensor) -> None:
        _GaussianLikelihoodBase.__init__(self, noise_covar)
        self.register_buffer("given", given, persistent=False)  # data, which no state dict has
        self.train(noise_covar.training)

    def observation_noise(self, X: Tensor) -> Tensor:
        """Return the variances (..., n) of the observations, which were made at X (..., n, d)."""
        return self._shaped_noise_covar(X.shape[:-1], [X]).diagonal(dim1=-1, dim2=-2)

    def _shaped_noise_covar(self, base_shape: torch.Size, *params: Any, **kwargs: Any) -> Tensor | LinearOperator:
        usual = super()._shaped_noise_covar(base_shape, *params, **kwargs)
        of_predictions = bool(params) and isinstance(params[0], Tensor) and not self.training
        if of_predictions or "noise" in kwargs:
            return usual
        if not params and not self.training:
            raise InputError(
                "Observations have noise of their own, so say of what the noise is: likelihood(f, X) of predictions,"
                " likelihood(f, [X]) of the observations; for loo_cv remove rows from copies of the model."
            )
        return DiagLinearOperator(torch.where(self.given.isnan(), usual.diagonal(dim1=-1, dim2=-2), self.given))


@GaussianUpdate.register(ExactGP, (UncertaintyInjectionLikelihood, GivenNoiseLikelihood))
def update_with_observation_noise(
    model: ExactGP,
    likelihood: UncertaintyInjectionLikelihood | GivenNoiseLikelihood,
    *,
    points: Tensor | None = None,
    noise_covariance: Tensor | LinearOperator | None = None,
    **kwargs: Any,
) -> GeneralizedLinearPath:
    """Return BoTorch's update of prior paths, with the noise that the posterior counts.

    BoTorch's own rule asks a likelihood for noise without inputs, which say when observations were made or that
    observations are meant, and may do so in training mode, where nothing that is old is cut off.
    """
    if points is None:
        points = cast(Tensor, get_train_inputs(cast(Model, model), transformed=True)[0])
    if noise_covariance is None:
        noise_covariance = DiagLinearOperator(likelihood.observation_noise(points))
    update = GaussianUpdate.dispatch(ExactGP, _GaussianLikelihoodBase)
    return update(model, likelihood, points=points, noise_covariance=noise_covariance, **kwargs)
