"""What a bandit has to be given, from data: the kernel, the noise and the units of the rewards."""

import warnings
from copy import deepcopy
from dataclasses import dataclass

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.utils.gpytorch_modules import get_matern_kernel_with_gamma_prior
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.errors import InputError, KernelBanditWarning
from torch_kbandits.random import seeded

#: Rewards whose deviation is this fraction of their size are equal to rounding.
_EQUAL = 1e-12


@dataclass(frozen=True)
class FittedPrior:
    """A prior for rewards that are brought to mean 0 and variance 1.

    Attributes:
        kernel: the prior covariance of scaled rewards.
        regularization: λ > 0, the noise variance of scaled rewards.
        center: the mean of the rewards, in their units.
        scale: their standard deviation, in their units; 1 where they are all equal.
    """

    kernel: Kernel
    regularization: float
    center: float
    scale: float

    def scaled(self, Y: Tensor) -> Tensor:
        """Return rewards (n,) in units of the prior."""
        return (Y - self.center) / self.scale


def default_kernel(dimension: int) -> ScaleKernel:
    """Return the kernel that is fitted where none is given, for points of the unit cube, in double precision.

    It is a Matérn 5/2 kernel with a variance and a length scale for each coordinate, which are expected to be about a
    half: BoTorch's default until 2024. Its present one, ``get_covar_module_with_dim_scaled_prior``, expects longer ones
    the more coordinates there are, and finds more where there are many of which few matter.
    """
    return get_matern_kernel_with_gamma_prior(checks.positive_integer("dimension", dimension)).double()


def center_and_scale(Y: Tensor) -> tuple[float, float]:
    """Return mean and standard deviation of rewards (n,), in their units, by which they come to mean 0 and variance 1.

    The mean is 0 without rewards. The deviation is 1 where it is nothing but rounding, or there are fewer than two.
    """
    if len(Y) < 2:
        return float(Y.sum()), 1.0
    center, scale = float(Y.mean()), float(Y.std())
    return center, scale if scale > _EQUAL * max(abs(center), torch.finfo(Y.dtype).tiny) else 1.0


def fit_prior(X: Tensor, Y: Tensor, kernel: Kernel | None = None, *, seed: int = 0) -> FittedPrior:
    """Fit kernel and noise to rewards by their marginal posterior, as BoTorch does, with a prior mean of zero.

    The result is what a ``Bandit`` needs: ``kernel`` and ``regularization``, for rewards ``scaled(Y)``.

    Args:
        X: points (n, d), in double precision, n >= 2; of the unit cube if no kernel is given.
        Y: rewards (n,).
        kernel: any GPyTorch kernel with free parameters, which is copied; else ``default_kernel(d)``.
        seed: of the restarts that BoTorch makes where a fit fails.

    Raises:
        InputError: if the data does not fit together.

    Where no fit succeeds, the parameters that the kernel came with are kept, and a ``KernelBanditWarning`` says so.

    Cost: O(n³) for each of some hundred evaluations.
    """
    checks.points("X", X)
    if X.dtype != torch.float64 or X.dim() != 2 or len(X) < 2 or Y.shape != X.shape[:1] or Y.dtype != X.dtype:
        raise InputError(
            f"X (n, d) and Y (n,) must be in double precision, n >= 2; got {checks.describe(X)} and "
            f"{checks.describe(Y)}."
        )
    center, scale = center_and_scale(checks.finite("Y", Y))
    kernel = default_kernel(X.shape[-1]) if kernel is None else deepcopy(kernel)
    targets = ((Y - center) / scale).unsqueeze(-1)
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
    return FittedPrior(kernel.eval().requires_grad_(False), noise, center, scale)
