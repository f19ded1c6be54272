"""What the constructors of the models are given: data that fits together, and a noise variance."""

from typing import Any

from botorch.models import SingleTaskGP
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def fixed_gaussian(regularization: float, train_X: Tensor, train_Y: Tensor) -> GaussianLikelihood:
    """Return a Gaussian likelihood with the given noise variance for every output, not to be learned."""
    _, batch_shape = SingleTaskGP.get_batch_dimensions(train_X, train_Y)
    likelihood = GaussianLikelihood(noise_constraint=Positive(), batch_shape=batch_shape).to(train_X)
    likelihood.noise = train_X.new_tensor(regularization)
    return likelihood.requires_grad_(False)


def check_likelihood(likelihood: Likelihood | None) -> None:
    """Refuse a likelihood whose noise is not known from the points alone."""
    if isinstance(likelihood, SparseOutlierGaussianLikelihood):
        raise InputError(
            "The noise of a SparseOutlierGaussianLikelihood belongs to the rows of the data it is fitted to and may "
            "scale with the prior variance: use BoTorch's RobustRelevancePursuitSingleTaskGP."
        )


def checked_data(train_X: Any, train_Y: Any, train_Yvar: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return data as tensors, or refuse it if shapes, dtypes or values do not fit."""
    train_X = checks.points("train_X", train_X)
    train_Y = checks.finite("train_Y", checks.rows("train_Y", train_Y, like=train_X))
    if train_Y.shape[:-1] != train_X.shape[:-1]:
        raise InputError(
            "train_Y must have a row for each row of train_X and a column for each output, shape "
            f"{(*train_X.shape[:-1], 1)} for one output; got {checks.describe(train_Y)}."
        )
    if train_Yvar is not None:
        train_Yvar = checked_variances("train_Yvar", train_Yvar, "train_Y", train_Y)
    return train_X, train_Y, train_Yvar


def checked_variances(name: str, variances: Any, of: str, rewards: Tensor) -> Tensor:
    """Return noise variances of rewards, called ``of``, as a tensor, or refuse them."""
    variances = checks.finite(name, checks.same_kind(name, checks.floating_tensor(name, variances, rewards), rewards))
    if variances.shape != rewards.shape:
        raise InputError(
            f"{name} must have the shape of {of}, {tuple(rewards.shape)}; got {checks.describe(variances)}."
        )
    if bool((variances < 0).any()):
        raise InputError(f"{name} must not be negative, its least entry is {float(variances.min())}.")
    return variances
