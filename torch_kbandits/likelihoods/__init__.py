"""GPyTorch likelihoods."""

from torch_kbandits.likelihoods.ageing import AgeingNoise, UncertaintyInjectionLikelihood, at_time
from torch_kbandits.likelihoods.given import GivenNoiseLikelihood, update_with_observation_noise

__all__ = [
    "AgeingNoise",
    "GivenNoiseLikelihood",
    "UncertaintyInjectionLikelihood",
    "at_time",
    "update_with_observation_noise",
]
