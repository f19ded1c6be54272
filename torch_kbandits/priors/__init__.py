"""What is believed before any reward: given, or fitted as rewards come."""

from torch_kbandits.priors.families import Family
from torch_kbandits.priors.fitting import default_kernel, fit_prior
from torch_kbandits.priors.learned import LearnedPrior
from torch_kbandits.priors.means import PriorMean
from torch_kbandits.priors.prior import Prior
from torch_kbandits.priors.words import given_prior, prior_of

__all__ = ["Family", "LearnedPrior", "Prior", "PriorMean", "default_kernel", "fit_prior", "given_prior", "prior_of"]
