"""What is assumed of rewards before any is told."""

import math
from copy import deepcopy
from dataclasses import dataclass

from gpytorch.kernels import Kernel

from torch_kbandits import checks
from torch_kbandits.priors.means import PriorMean, own_mean


@dataclass(frozen=True, eq=False)
class Prior:
    """A Gaussian process as it is taken to be before any reward is told, in the units of rewards.

    Args:
        kernel: the prior covariance of the function, any GPyTorch kernel, in reward units squared; a copy is kept.
        regularization: λ > 0, the variance of the noise, in reward units squared.
        mean: the prior mean, in reward units: a number, a value for each arm (A,), a GPyTorch mean, or a function of
            points (n, d), with contexts of (context, action), that returns (n,). If it has a parameter ``time`` it is
            given the times (n,), as a bandit counts them, too.
        floor: in reward units: a reward below counts as if it were this one, so that penalties do not outweigh all
            else; see ``floor_below``. Minus infinity where all count as they are.

    Raises:
        InputError: if an argument does not fit.
    """

    kernel: Kernel
    regularization: float
    mean: PriorMean = 0.0
    floor: float = -math.inf

    def __post_init__(self) -> None:
        checks.instance("kernel", self.kernel, Kernel, "a GPyTorch kernel")
        checks.keep(self, regularization=checks.positive)
        if not (isinstance(self.floor, float) and self.floor == -math.inf):
            checks.keep(self, floor=checks.finite_number)
        mean = own_mean(self.mean)
        object.__setattr__(self, "mean", 0.0 if mean is None else mean)
        object.__setattr__(self, "kernel", deepcopy(self.kernel))
