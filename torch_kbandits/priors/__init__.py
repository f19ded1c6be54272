"""What is believed before any reward: kernel, noise and units, fitted."""

from torch_kbandits.priors.families import Family
from torch_kbandits.priors.fitting import FittedPrior, default_kernel, fit_prior
from torch_kbandits.priors.means import PriorMean

__all__ = ["Family", "FittedPrior", "PriorMean", "default_kernel", "fit_prior"]
