"""Normal distributions whose variances are those that were computed, whatever the units of rewards."""

from typing import Any

import torch
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.posteriors.posterior import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from torch import Tensor

#: Keeps the gradient of the square root finite, and is far below any variance that matters in any units.
MIN_VARIANCE = 1e-60


class Normal(MultivariateNormal):
    """A normal distribution, of which GPyTorch rounds no variance up to 1e-10, or 1e-6 in single precision."""

    @property
    def variance(self) -> Tensor:
        """The variances (..., n); 0 where rounding made them negative."""
        return unrounded_variance(self)


class MultitaskNormal(MultitaskMultivariateNormal):
    """The same of several outputs."""

    @property
    def variance(self) -> Tensor:
        """The variances (..., n, o); 0 where rounding made them negative."""
        return unrounded_variance(self)


def unrounded_variance(distribution: MultivariateNormal) -> Tensor:
    """Return the variances of a distribution, in the shape of its mean, without GPyTorch's least variance."""
    diagonal = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2).clamp_min(0.0)
    shape = distribution.mean.shape
    if not isinstance(distribution, MultitaskMultivariateNormal):
        return diagonal.expand(shape)
    n, outputs = shape[-2:]
    if distribution._interleaved:
        return diagonal.unflatten(-1, (n, outputs)).expand(shape)
    return diagonal.unflatten(-1, (outputs, n)).mT.expand(shape)


def posterior_variance(posterior: Any) -> Tensor:
    """Return the variances (..., q, o) of the posterior of any model, without GPyTorch's least variance if Gaussian."""
    if not isinstance(posterior, GPyTorchPosterior):
        return posterior.variance
    variance = unrounded_variance(posterior.distribution)
    return variance if posterior._is_mt else variance.unsqueeze(-1)


def unrounded(posterior: Posterior) -> Posterior:
    """Return the posterior with variances that are those of its distribution."""
    if isinstance(posterior, TransformedPosterior):
        posterior._posterior = unrounded(posterior._posterior)
    if type(posterior) is not GPyTorchPosterior or isinstance(posterior.distribution, (Normal, MultitaskNormal)):
        return posterior
    given = posterior.distribution
    mean, covariance = given.mean, given.lazy_covariance_matrix
    if isinstance(given, MultitaskMultivariateNormal):
        return GPyTorchPosterior(MultitaskNormal(mean, covariance, interleaved=given._interleaved))
    return GPyTorchPosterior(Normal(mean, covariance))


def deviation_of(variance: Tensor) -> Tensor:
    """Return the deviations of variances, with a finite gradient."""
    return variance.clamp_min(least_variance(variance.dtype)).sqrt()


def least_variance(dtype: torch.dtype) -> float:
    """Return ``MIN_VARIANCE``, or what is representable in its place."""
    return max(MIN_VARIANCE, 100.0 * torch.finfo(dtype).tiny)
