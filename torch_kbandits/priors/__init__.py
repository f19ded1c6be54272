"""What is believed before any reward: kernel, noise and units, fitted."""

from torch_kbandits.priors.fitting import FittedPrior, default_kernel, fit_prior

__all__ = ["FittedPrior", "default_kernel", "fit_prior"]
