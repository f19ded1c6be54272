"""Normal distributions whose variances are those that were computed, and densities that use their low rank."""

from typing import Any

import torch
from botorch.cross_validation import CVResults
from botorch.posteriors import GPyTorchPosterior, TransformedPosterior
from botorch.posteriors.posterior import Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.mlls import InducingPointKernelAddedLossTerm
from linear_operator import settings as linear_operator_settings
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

#: Keeps the gradient of the square root finite, and is far below any variance that matters in any units.
MIN_VARIANCE = 1e-60


class Normal(MultivariateNormal):
    """A normal distribution, of which GPyTorch rounds no variance up to 1e-10, or 1e-6 in single precision."""

    @property
    def variance(self) -> Tensor:
        """The variances (..., n); 0 where rounding made them negative."""
        return _unrounded_variance(self)


class MultitaskNormal(MultitaskMultivariateNormal):
    """The same of several outputs."""

    @property
    def variance(self) -> Tensor:
        """The variances (..., n, o); 0 where rounding made them negative."""
        return _unrounded_variance(self)


class TraceTerm(InducingPointKernelAddedLossTerm):
    """The trace term of the collapsed bound. It holds the graph of a training step, so copies of a model drop it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """Return None."""


class LowRankNormal(MultivariateNormal):
    """A normal distribution whose log density uses the low rank of its covariance: O(n m²) instead of O(n³).

    BoTorch switches ``fast_computations.log_prob`` off for the whole process, since for other covariances it means
    conjugate gradients. For low rank plus diagonal it is the Woodbury identity, which is exact.
    """

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of values (..., n), (...,)."""
        with linear_operator_settings.fast_computations(log_prob=True):
            return super().log_prob(value)


def _unrounded_variance(distribution: MultivariateNormal) -> Tensor:
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
    variance = _unrounded_variance(posterior.distribution)
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


def cross_validation(model: Any, means: Tensor, variances: Tensor, rewards: Tensor, noise: Tensor | None) -> CVResults:
    """Return predictions (..., n), outputs before n, as BoTorch's ``loo_cv`` does: n x 1 x o, in the units told."""
    outputs, transform = model.num_outputs, getattr(model, "outcome_transform", None)
    joint = MultivariateNormal(means.unsqueeze(-1), DiagLinearOperator(variances.unsqueeze(-1)))
    if outputs > 1:
        joint = MultitaskMultivariateNormal.from_batch_mvn(joint, task_dim=-2)
    posterior: Any = GPyTorchPosterior(joint)
    Y, Yvar = _columns(rewards, outputs), None if noise is None else _columns(noise, outputs)
    if transform is not None:
        posterior = transform.untransform_posterior(posterior)
        Y, Yvar = transform.untransform(Y, Yvar)
    return CVResults(model, posterior, Y.unsqueeze(-2), None if Yvar is None else Yvar.unsqueeze(-2))


def _columns(values: Tensor, outputs: int) -> Tensor:
    """Return values (..., n), outputs before n, with outputs as columns, (..., n, o)."""
    return values.unsqueeze(-1) if outputs == 1 else values.mT
