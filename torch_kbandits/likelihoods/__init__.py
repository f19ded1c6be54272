"""GPyTorch likelihoods."""

from torch_kbandits.likelihoods.gaussian import GivenNoiseLikelihood, UncertaintyInjectionLikelihood, at_time

__all__ = ["GivenNoiseLikelihood", "UncertaintyInjectionLikelihood", "at_time"]
