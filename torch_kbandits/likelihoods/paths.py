"""Pathwise samples of exact GPs whose observations differ in noise, for BoTorch's ``draw_matheron_paths``."""

from typing import Any, cast

from botorch.models.model import Model
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.update_strategies import GaussianUpdate
from botorch.sampling.pathwise.utils import get_train_inputs
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.models import ExactGP
from linear_operator.operators import DiagLinearOperator, LinearOperator
from torch import Tensor

from torch_kbandits.likelihoods.ageing import UncertaintyInjectionLikelihood
from torch_kbandits.likelihoods.given import GivenNoiseLikelihood


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

    Args:
        model: an exact GP.
        likelihood: its own.
        points: the observed points as the kernel sees them; those of the model otherwise.
        noise_covariance: in place of the likelihood's.
        kwargs: of BoTorch's rule.
    """
    if points is None:
        points = cast(Tensor, get_train_inputs(cast(Model, model), transformed=True)[0])
    if noise_covariance is None:
        noise_covariance = DiagLinearOperator(likelihood.observation_noise(points))
    update = GaussianUpdate.dispatch(ExactGP, _GaussianLikelihoodBase)
    return update(model, likelihood, points=points, noise_covariance=noise_covariance, **kwargs)
