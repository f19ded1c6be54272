"""GPyTorch likelihoods."""

from torch_kbandits.likelihoods.ageing import UncertaintyInjectionLikelihood
from torch_kbandits.likelihoods.given import GivenNoiseLikelihood
from torch_kbandits.likelihoods.noise import AgeingNoise
from torch_kbandits.likelihoods.paths import update_with_observation_noise
from torch_kbandits.likelihoods.present import at_time

__all__ = [
    "AgeingNoise",
    "GivenNoiseLikelihood",
    "UncertaintyInjectionLikelihood",
    "at_time",
    "update_with_observation_noise",
]
