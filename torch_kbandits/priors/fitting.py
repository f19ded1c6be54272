"""What a bandit has to be given, from data: the kernel, the noise and the units of the rewards."""

import math
import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.kernels import GroupedKernel
from torch_kbandits.numerics.gram import check_kernel
from torch_kbandits.numerics.random import seeded
from torch_kbandits.observations.ledger import rewards

#: Rewards whose deviation is this fraction of their size are equal to rounding.
_EQUAL = 1e-12

#: Rewards this many times as far below the median as the best is above it are far below. Of 200 designs of ten points
#: five times as far were 1 to 40 in 100 on Branin and on bowls, on which nothing is to be clipped, and this far none.
_FAR = 20.0

#: With fewer different rewards above the median, or it, than this, far is further; see ``floor_below``.
_ENOUGH_ABOVE = 4

#: Where rewards far below are put, in the same units. On a bowl with holes 20 found less.
_FAR_COUNTS = 5.0

#: The least length scale, as in BoTorch.
_SHORTEST = 0.025


@dataclass(frozen=True)
class FittedPrior:
    """A prior for rewards that are brought to mean 0 and variance 1.

    Attributes:
        kernel: the prior covariance of scaled rewards.
        regularization: λ > 0, the noise variance of scaled rewards.
        center: the mean of the rewards, in their units.
        scale: their standard deviation, in their units; 1 where they are all equal.
        floor: in their units: a reward below counts as if it were this one, also in center and scale.
    """

    kernel: Kernel
    regularization: float
    center: float
    scale: float
    floor: float = -math.inf

    def scaled(self, Y: Tensor) -> Tensor:
        """Return rewards (n,) in units of the prior."""
        return (Y.clamp_min(self.floor) - self.center) / self.scale


def default_kernel(dimension: int, groups: Sequence[int] | None = None) -> ScaleKernel:
    """Return the kernel that is fitted where none is given, for points of the unit cube, in double precision.

    It is a Matérn 5/2 kernel with a variance and a length scale for each parameter. Of G parameters these are expected
    to be about ½√G, within a factor of three. A parameter in several columns, such as a choice of several values, has
    one length scale; see ``GroupedKernel``.

    Source: Hvarfner, Hellsten and Nardi, ICML 2024: distances grow with the root of the number of coordinates, and so
    do length scales. Differs: their prior, BoTorch's ``get_covar_module_with_dim_scaled_prior``, has a median eight
    times as long and is wider, and their variance is 1; with ten trials of three parameters that settles too soon.

    Args:
        dimension: d, the number of columns.
        groups: of each column the number of its parameter, (d,), as ``ParameterSpace.groups``; each one its own unless
            given.

    Raises:
        InputError: if the groups do not fit.
    """
    dimension = checks.positive_integer("dimension", dimension)
    groups = range(dimension) if groups is None else groups
    if len(groups) != dimension:
        raise InputError(f"groups must have one number for each of the {dimension} columns, got {list(groups)}.")
    number = len({*groups})
    expected = 0.5 * math.sqrt(number)
    words: Any = {
        "lengthscale_prior": LogNormalPrior(math.log(expected), 1.0),
        "lengthscale_constraint": GreaterThan(_SHORTEST, transform=None, initial_value=expected),  # pyright: ignore
    }
    if number == dimension:
        base = MaternKernel(nu=2.5, ard_num_dims=dimension, **words)
    else:
        base = GroupedKernel(MaternKernel(nu=2.5), groups, **words)
    return ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15)).double()


def center_and_scale(Y: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation of rewards (n,), in their units, by which they come to mean 0 and variance 1.

    The mean is 0 without rewards. The deviation is 1 where it is nothing but rounding, or there are fewer than two.

    Raises:
        InputError: if the deviation is beyond double precision.
    """
    if len(Y) < 2:
        return float(Y.sum()), 1.0
    # A power of two near the largest, so that no square overflows and nothing is rounded otherwise.
    unit = math.ldexp(1.0, math.frexp(float(Y.abs().max()))[1] - 1)
    center, scale = unit * float((Y / unit).mean()), unit * float((Y / unit).std())
    if not math.isfinite(scale):
        raise InputError(f"Y differs by more than double precision holds, from {float(Y.min())} to {float(Y.max())}.")
    return center, scale if scale > _EQUAL * max(abs(center), torch.finfo(Y.dtype).tiny) else 1.0


def floor_below(Y: Tensor, lowest: float | None = None) -> float:
    """Return the reward below which others count as if they were it.

    A few rewards far below the others, such as penalties of evaluations that failed, would be the unit in which all
    others are equal. So no reward counts as more than twenty times as far below the median as the best is above it;
    and if one lies there, none as more than five times as far. Of equal rewards one is looked at, so that the median
    is none of them where many have the same penalty. Units change nothing.

    Of few rewards the best is easily near the median by chance: that k of them lie within a share s of the range has a
    probability like s to the k-th power. So where k < 4 different rewards are above the median, 20 becomes 20 to the
    power of 4 / k: 400 with four or five different rewards. Of 2,000 designs of each size from three to ten points of
    Branin's function and of three bowls none or 1 was clipped, on Branin's function 1 of seven, 2 of eight and 13 of
    nine points.

    Args:
        Y: rewards (n,), of which fewer than half of the different ones are far below; else the floor is of no use.
        lowest: the lowest reward of all, if there are more; in units of Y.

    Returns:
        The floor in units of Y; minus infinity if there are fewer than three different rewards.
    """
    different = Y.unique()
    if len(different) < 3:
        return -math.inf
    best, median = float(different[-1]), float(different.median())
    far = _FAR ** max(1.0, _ENOUGH_ABOVE / int(different.gt(median).sum()))
    floor = median - far * (best - median)
    lowest = float(different[0]) if lowest is None else lowest
    return median - _FAR_COUNTS * (best - median) if lowest < floor else floor


def fit_prior(
    X: Tensor, Y: Any, kernel: Kernel | None = None, *, floor: float | None = None, seed: int = 0
) -> FittedPrior:
    """Fit kernel and noise to rewards by their marginal posterior, as BoTorch does, with a prior mean of zero.

    The result is what a ``Bandit`` needs: ``kernel`` and ``regularization``, for rewards ``scaled(Y)``.

    Args:
        X: points (n, d), in double precision, n >= 2; of the unit cube if no kernel is given.
        Y: rewards (n,), as in ``Bandit.tell``.
        kernel: any GPyTorch kernel with free parameters, which is copied; else ``default_kernel(d)``.
        floor: a reward below counts as if it were this one; ``floor_below(Y)`` unless given, minus infinity to take
            all as they are.
        seed: of the restarts that BoTorch makes where a fit fails.

    Raises:
        InputError: if the data does not fit together, or the kernel to the data.

    Where no fit succeeds, the parameters that the kernel came with are kept, and a ``KernelBanditWarning`` says so.

    Cost: O(n³) for each of some hundred evaluations.
    """
    checks.points("X", X)
    if X.dtype != torch.float64 or X.dim() != 2 or len(X) < 2:
        raise InputError(f"X (n, d) must be in double precision, n >= 2; got {checks.describe(X)}.")
    Y = rewards(Y, X)
    if kernel is not None:
        checks.instance("kernel", kernel, Kernel, "a GPyTorch kernel")
        check_kernel(kernel, X[:1])
    floor = floor_below(Y) if floor is None else float(floor)
    center, scale = center_and_scale(Y.clamp_min(floor))
    kernel = default_kernel(X.shape[-1]) if kernel is None else deepcopy(kernel)
    targets = ((Y.clamp_min(floor) - center) / scale).unsqueeze(-1)
    model = SingleTaskGP(X, targets, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
    untouched = deepcopy(model.state_dict())
    try:
        with seeded(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore", BotorchWarning)  # of attempts that are made again
            warnings.simplefilter("ignore", NumericalWarning)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    except ModelFittingError as error:
        model.load_state_dict(untouched)
        warnings.warn(
            f"The kernel could not be fitted to {len(X)} reward(s) and stays as it was: {error}",
            KernelBanditWarning,
            stacklevel=2,
        )
    noise = float(model.likelihood.noise.detach())  # pyright: ignore[reportCallIssue]
    return FittedPrior(kernel.eval().requires_grad_(False), noise, center, scale, floor)
