"""What the constructors of the models are given: data that fits together, and a noise variance."""

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


def check_data(train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None) -> None:
    """Refuse data whose shapes, dtypes or values do not fit."""
    checks.points("train_X", train_X)
    checks.points("train_Y", train_Y, like=train_X)
    if train_Y.shape[:-1] != train_X.shape[:-1]:
        raise InputError(
            "train_Y must have a row for each row of train_X and a column for each output, shape "
            f"{(*train_X.shape[:-1], 1)} for one output; got {checks.describe(train_Y)}."
        )
    if train_Yvar is not None:
        check_variances("train_Yvar", train_Yvar, "train_Y", train_Y)


def check_variances(name: str, variances: Tensor, of: str, rewards: Tensor) -> None:
    """Refuse noise variances that are not those of rewards, called ``of``."""
    checks.finite(name, checks.same_kind(name, checks.floating_tensor(name, variances), rewards))
    if variances.shape != rewards.shape:
        raise InputError(
            f"{name} must have the shape of {of}, {tuple(rewards.shape)}; got {checks.describe(variances)}."
        )
    if bool((variances < 0).any()):
        raise InputError(f"{name} must not be negative, its least entry is {float(variances.min())}.")
