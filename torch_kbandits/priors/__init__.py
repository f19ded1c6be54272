"""What is believed before any reward: kernel, noise and units, fitted."""

from torch_kbandits.priors.fitting import FittedPrior, default_kernel, fit_prior
from torch_kbandits.priors.means import PriorMean

__all__ = ["FittedPrior", "PriorMean", "default_kernel", "fit_prior"]
