"""The two halves of Titsias' collapsed bound: a low-rank log density and the trace term."""

from typing import Any

from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import InducingPointKernelAddedLossTerm
from linear_operator import settings as linear_operator_settings
from torch import Tensor


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
