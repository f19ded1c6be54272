"""What is believed before any reward: kernel, noise and units, fitted."""

from torch_kbandits.priors.fitting import FittedPrior, default_kernel, fit_prior
from torch_kbandits.priors.means import PriorMean, mean_over, own_mean

__all__ = ["FittedPrior", "PriorMean", "default_kernel", "fit_prior", "mean_over", "own_mean"]
