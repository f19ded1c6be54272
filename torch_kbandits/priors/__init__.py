"""What is believed before any reward: given, or fitted as rewards come."""

from torch_kbandits.priors.fitting import default_kernel, fit_prior
from torch_kbandits.priors.learned import LearnedPrior
from torch_kbandits.priors.means import PriorMean
from torch_kbandits.priors.prior import Prior
from torch_kbandits.priors.words import prior_of

__all__ = ["LearnedPrior", "Prior", "PriorMean", "default_kernel", "fit_prior", "prior_of"]
