"""Normal distributions whose variances are those that were computed, and densities that use their low rank."""

from typing import Any

import torch
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.mlls import InducingPointKernelAddedLossTerm
from linear_operator import settings as linear_operator_settings
from torch import Tensor

#: Keeps the gradient of the square root finite, and is far below any variance that matters in any units.
MIN_VARIANCE = 1e-60


class UnroundedPosterior(GPyTorchPosterior):
    """A posterior of which GPyTorch rounds no variance up to 1e-10, or 1e-6 in single precision."""

    @property
    def variance(self) -> Tensor:
        """The variances (..., q, o); 0 where rounding made them negative."""
        distribution, shape = self.distribution, self.mean.shape
        diagonal = distribution.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2).clamp_min(0.0)
        if not isinstance(distribution, MultitaskMultivariateNormal) or distribution._interleaved:
            return diagonal.unflatten(-1, shape[-2:]).expand(shape)
        return diagonal.unflatten(-1, (shape[-1], shape[-2])).mT.expand(shape)


def unrounded(posterior: Any) -> Any:
    """Return a posterior, of GPyTorch's in the end, with variances that are those of its distribution."""
    if isinstance(posterior, TransformedPosterior):
        posterior._posterior = unrounded(posterior._posterior)
    return UnroundedPosterior(posterior.distribution) if type(posterior) is GPyTorchPosterior else posterior


def posterior_variance(posterior: Any) -> Tensor:
    """Return the variances (..., q, o) of the posterior of any model, without GPyTorch's least variance if Gaussian."""
    return unrounded(posterior).variance


class TraceTerm(InducingPointKernelAddedLossTerm):
    """The trace term of the collapsed bound. It holds the graph of a training step, so copies of a model drop it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None."""


class LowRankNormal(MultivariateNormal):
    """A normal distribution whose log density uses the low rank of its covariance: O(n m²) instead of O(n³).

    BoTorch switches that off for the whole process: else it means conjugate gradients, here the Woodbury identity.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of values (..., n), (...,)."""
        with linear_operator_settings.fast_computations(log_prob=True):
            return super().log_prob(value)


def deviation_of(variance: Tensor) -> Tensor:
    """Return the deviations of variances, with a finite gradient."""
    return variance.clamp_min(max(MIN_VARIANCE, 100.0 * torch.finfo(variance.dtype).tiny)).sqrt()
