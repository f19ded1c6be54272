"""Leave-one-out predictions in closed form."""

from typing import Any

from botorch.cross_validation import CVResults
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from torch_kbandits.errors import NumericalError


def left_out(rewards: Tensor, means: Tensor, reducible: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean at each observation without it, and the variance that others at its point could take away.

    With h the same variance after the observation, whose share 1 − h/λ is what is left without it:
    mean = y − (y − m) / (1 − h/λ) and h / (1 − h/λ).

    Source: Rasmussen and Williams, 2006, Eq. (5.12), by the matrix inversion lemma.

    Args:
        rewards: y (..., n).
        means: m, the posterior means at the observations, (..., n).
        reducible: h (..., n).
        noise: λ_s (..., n).

    Raises:
        NumericalError: if rounding is left of the share of an observation.
    """
    share = 1.0 - reducible / noise
    if not bool((share > 0.0).all()):
        raise NumericalError("The noise is too small to tell what an observation adds: use float64 or a larger one.")
    return rewards - (rewards - means) / share, reducible / share


def cross_validation(model: Any, means: Tensor, variances: Tensor, rewards: Tensor, noise: Tensor | None) -> CVResults:
    """Return predictions (..., n), outputs before n, as BoTorch's ``loo_cv`` does: n x 1 x o, in the units told."""
    o = model.num_outputs
    parts = [(means, variances)] if o == 1 else [(means[..., i, :], variances[..., i, :]) for i in range(o)]
    normals = [
        MultivariateNormal(mean.unsqueeze(-1), DiagLinearOperator(variance.unsqueeze(-1))) for mean, variance in parts
    ]
    joint = normals[0] if o == 1 else MultitaskMultivariateNormal.from_independent_mvns(normals)
    posterior: Any = GPyTorchPosterior(joint)
    Y, Yvar = _columns(rewards, o), None if noise is None else _columns(noise, o)
    transform = getattr(model, "outcome_transform", None)
    if transform is not None:
        posterior = transform.untransform_posterior(posterior)
        Y, Yvar = transform.untransform(Y, Yvar)
    return CVResults(model, posterior, Y.unsqueeze(-2), None if Yvar is None else Yvar.unsqueeze(-2))


def _columns(values: Tensor, outputs: int) -> Tensor:
    """Return values (..., n), outputs before n, with outputs as columns, (..., n, o)."""
    return values.unsqueeze(-1) if outputs == 1 else values.mT
