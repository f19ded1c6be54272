"""What the models are given: data that fits together, a noise variance, and the shapes of points."""

from collections.abc import Callable
from typing import Any

import torch
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


def checked_data(train_X: Any, train_Y: Any, train_Yvar: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return data as tensors, or refuse it if shapes, dtypes or values do not fit."""
    train_X = checks.points("train_X", train_X)
    train_Y = checks.finite("train_Y", checks.rows("train_Y", train_Y, like=train_X))
    if train_Y.shape[:-1] != train_X.shape[:-1]:
        raise InputError(
            "train_Y must have a row for each row of train_X and a column for each output, shape "
            f"{(*train_X.shape[:-1], 1)} for one output; got {checks.describe(train_Y)}."
        )
    return (
        train_X,
        train_Y,
        None if train_Yvar is None else checked_variances("train_Yvar", train_Yvar, "train_Y", train_Y),
    )


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


def checked_rows(rows: Tensor | list[int], n: int) -> Tensor:
    """Return distinct row numbers below n as a tensor (k,), or refuse them."""
    numbers = torch.tensor(checks.whole_numbers("rows", rows), dtype=torch.long)
    if len(numbers) != len(numbers.unique()) or bool(((numbers < 0) | (numbers >= n)).any()):
        raise InputError(f"rows must be distinct rows of the {n} observations, got {numbers.tolist()}.")
    return numbers


def flatten_t_batch(X: Tensor, batch_dims: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Merge the t-batch dimensions of X (*t, *b, q, d) into its points: (*b, t q, d), and how to undo it.

    Candidates come as b x 1 x d; broadcasting over that layout would repeat the posterior for every candidate.

    Returns:
        The flat points, and a function that takes (*b, ..., t q) to (*t, *b, ..., q).
    """
    t_dims = max(X.dim() - 2 - batch_dims, 0)
    t_shape, q = X.shape[:t_dims], X.shape[-2]
    front, back = tuple(range(t_dims)), tuple(range(-2 - t_dims, -2))
    flat = X.movedim(front, back).flatten(-2 - t_dims, -2)

    def unflatten(values: Tensor) -> Tensor:
        return values.unflatten(-1, (*t_shape, q)).movedim(tuple(range(-1 - t_dims, -1)), front)

    return flat, unflatten


def same_values(left: Tensor, right: Tensor) -> bool:
    """Say whether tensors have the same kind and the same values; NaN, for what is not known, is itself."""
    if left.dtype != right.dtype or left.device != right.device or left.shape != right.shape:
        return False
    if torch.equal(left, right):
        return True
    are_alike = left.is_floating_point() and torch.equal(left.isnan(), right.isnan())
    return are_alike and torch.equal(left.nan_to_num(), right.nan_to_num())
