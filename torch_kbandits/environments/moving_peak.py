"""A peak that swings."""

import math

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.options import check_size
from torch_kbandits.environments.peaks import PeakSequence


class MovingPeak(DynamicEnvironment):
    """A peak that swings over a wave that stays: exp(−0.05 (x − 5 sin(0.1 t))²) + 0.5 cos(0.2 x) + 1.5 on [−50, 50].

    Source: Mauduit, Berthier and Simonetto, 2025, §4.1. Differs: arms are a grid of the interval, t counts
    from 0, and the kernel is that of the peak, ℓ = √10, where the paper fits one by marginal likelihood. With it the
    variation budget is exact: about 50 over the paper's 500 rounds.

    Args:
        num_arms: A, from −50 to 50 at equal distances.
        noise_scale: standard deviation of the noise; the paper has a variance of 0.01.
        seed: addresses the noise; the means are the same for every seed.
    """

    def __init__(self, num_arms: int = 1000, *, noise_scale: float = 0.1, seed: int) -> None:
        number = checks.positive_integer("num_arms", num_arms)
        check_size("num_arms", number)
        points = torch.linspace(-50.0, 50.0, number, dtype=torch.float64)
        wave = 0.5 * torch.cos(0.2 * points) + 1.5
        self._peaks = PeakSequence(points, wave, math.sqrt(10.0), self.peak)
        super().__init__(seed=seed, center=1.5, **self._peaks.words(noise_scale))

    def peak(self, round: int) -> float:
        """Return 5 sin(0.1 t)."""
        return 5.0 * math.sin(0.1 * round)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        return self._peaks.means(round)
