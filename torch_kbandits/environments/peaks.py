"""A peak that moves along a line."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.covariances import stationary_kernel


@dataclass(frozen=True, eq=False)
class PeakSequence:
    """A Gaussian peak that moves along a line over a base that stays: f_t(x) = base(x) + exp(−(x − c_t)² / (2ℓ²)).

    The peak is the Gaussian kernel at c_t. So a change has a norm in its RKHS that is known in closed form, whatever
    the base is: ‖f_s − f_t‖² = 2 − 2 exp(−(c_s − c_t)² / (2ℓ²)).

    Attributes:
        points: x, (A,).
        base: (A,), the part of the mean rewards that stays.
        lengthscale: ℓ, in units of the points.
        peak: returns c_t, given the round.
    """

    points: Tensor
    base: Tensor
    lengthscale: float
    peak: Callable[[int], float]

    def words(self, noise_scale: float) -> dict[str, Any]:
        """Return the words by which a ``DynamicEnvironment`` is told of these functions.

        Args:
            noise_scale: standard deviation of the noise; λ is its square, and None without noise.
        """
        return {
            "arms": self.points.unsqueeze(-1),
            "noise_scale": noise_scale,
            "kernel": stationary_kernel("rbf", self.lengthscale),
            "regularization": checks.non_negative("noise_scale", noise_scale) ** 2 or None,
            "variation_budget": self._variation_budget,
        }

    def means(self, round: int) -> Tensor:
        """Return f_t at the points, (A,)."""
        return self.base + torch.exp((self.points - self.peak(round)).square() / (-2.0 * self.lengthscale**2))

    def _variation_budget(self, rounds: int) -> float:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the first T = ``rounds``."""
        # expm1 keeps what 2 − 2 exp(−small) would lose to cancellation.
        return math.fsum(
            math.sqrt(-2.0 * math.expm1(-((later - sooner) ** 2) / (2.0 * self.lengthscale**2)))
            for sooner, later in pairwise(map(self.peak, range(rounds)))
        )
