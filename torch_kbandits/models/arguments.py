"""What the constructors of the models are given: data that fits together, and a noise variance."""

from botorch.models import SingleTaskGP
from gpytorch.constraints import Positive
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError


def fixed_gaussian(regularization: float, train_X: Tensor, train_Y: Tensor) -> GaussianLikelihood:
    """Return a Gaussian likelihood with the given noise variance for every output, not to be learned."""
    _, batch_shape = SingleTaskGP.get_batch_dimensions(train_X, train_Y)
    likelihood = GaussianLikelihood(noise_constraint=Positive(), batch_shape=batch_shape).to(train_X)
    likelihood.noise = train_X.new_tensor(regularization)
    return likelihood.requires_grad_(False)


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
        checks.points("train_Yvar", train_Yvar, like=train_X)
        if train_Yvar.shape != train_Y.shape:
            raise InputError(
                f"train_Yvar must have the shape of train_Y, {tuple(train_Y.shape)}; got {checks.describe(train_Yvar)}."
            )
        if bool((train_Yvar < 0).any()):
            raise InputError(f"train_Yvar must not be negative, its least entry is {float(train_Yvar.min())}.")
