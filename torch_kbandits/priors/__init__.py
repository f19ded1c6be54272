"""What is assumed before any reward: given, or fitted as rewards come."""

from torch_kbandits.priors.families import Family
from torch_kbandits.priors.learned import LearnedPrior, fit_prior, given_prior, prior_of
from torch_kbandits.priors.prior import Prior, PriorMean
from torch_kbandits.priors.units import default_kernel

__all__ = ["Family", "LearnedPrior", "Prior", "PriorMean", "default_kernel", "fit_prior", "given_prior", "prior_of"]
