"""A peak that moves along a line."""

import math
from abc import ABC, abstractmethod
from itertools import pairwise

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.covariances import stationary_kernel
from torch_kbandits.environments.dynamic import DynamicEnvironment


class PeakSequence(DynamicEnvironment, ABC):
    """A Gaussian peak that moves along a line over a base that stays: f_t(x) = base(x) + exp(−(x − c_t)² / (2ℓ²)).

    The peak is the Gaussian kernel at c_t, which is ``kernel``. So a change has a norm in its RKHS that is known in
    closed form, whatever the base is: ‖f_s − f_t‖² = 2 − 2 exp(−(c_s − c_t)² / (2ℓ²)).

    Args:
        arms: (A, 1).
        base: (A,), the part of the mean rewards that stays.
        lengthscale: ℓ, in units of the arms.
        noise_scale: standard deviation of the noise; λ is its square, and None without noise.
        seed: addresses the noise.
        rounds: how many rounds there are; None: any number.
        norm_bound: B, of base and peak together.
        center: constant to subtract from rewards.

    Cost: O(A) a round.
    """

    def __init__(
        self,
        arms: Tensor,
        base: Tensor,
        lengthscale: float,
        noise_scale: float,
        seed: int,
        *,
        rounds: int | None = None,
        norm_bound: float | None = None,
        center: float = 0.0,
    ) -> None:
        self.lengthscale = checks.positive("lengthscale", lengthscale)
        super().__init__(
            arms,
            noise_scale,
            seed,
            rounds=rounds,
            kernel=stationary_kernel("rbf", lengthscale),
            regularization=checks.non_negative("noise_scale", noise_scale) ** 2 or None,
            norm_bound=norm_bound,
            center=center,
        )
        self.base = base

    @abstractmethod
    def peak(self, round: int) -> float:
        """Return c_t, where the peak is in a round."""

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round."""
        return self.base + torch.exp((self.arms[:, 0] - self.peak(round)).square() / (-2.0 * self.lengthscale**2))

    def variation_budget(self, rounds: int) -> float:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ in the RKHS of ``kernel`` over the first T = ``rounds``. Cost: O(T)."""
        self.check_rounds(checks.positive_integer("rounds", rounds))
        peaks = [self.peak(round) for round in range(rounds)]
        # expm1 keeps what 2 − 2 exp(−small) would lose to cancellation.
        return math.fsum(
            math.sqrt(-2.0 * math.expm1(-((later - sooner) ** 2) / (2.0 * self.lengthscale**2)))
            for sooner, later in pairwise(peaks)
        )
