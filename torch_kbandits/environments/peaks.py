"""A peak that moves along a line: a formula's, and four years of weather in Seattle."""

import csv
import math
from collections.abc import Callable
from importlib import resources
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import DynamicEnvironment
from torch_kbandits.environments.options import check_size, noise_variance, stationary_kernel


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
        self._points = _grid(-50.0, 50.0, num_arms)
        words = _peak_words(self._points, math.sqrt(10.0), self.peak, noise_scale)
        super().__init__(seed=seed, center=1.5, **words)

    def peak(self, round: int) -> float:
        """Return 5 sin(0.1 t)."""
        return 5.0 * math.sin(0.1 * round)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        wave = 0.5 * torch.cos(0.2 * self._points) + 1.5
        return wave + _bump(self._points, self.peak(round), math.sqrt(10.0))


class SeattleWeather(DynamicEnvironment):
    """Each day, the temperature to prepare for, on four years of measured daily maxima in Seattle.

    An arm is a temperature that one gets ready for before the day: what to stock, how many to staff, what to set a
    heating to. The reward is exp(−(x − c_t)² / (2ℓ²)), where c_t is the highest temperature of the day t: 1 if x was
    right, 0.61 if it was wrong by the tolerance ℓ, next to nothing if by three times that. The best arm follows the
    seasons and, from day to day, the weather.

    It lies in the RKHS of its kernel with norm 1 each day, and its variation budget is known: real changes under the
    assumptions of the theorems. With the tolerance of 5 °C, the best arm that never changes loses 0.46 a day in the
    mean and a random one 0.73; preparing for yesterday's maximum would lose 0.13, but only the reward of a round is
    learned, not its maximum.

    Source: public-domain observations of NOAA for 2012 to 2015, by way of the package vega_datasets (MIT licence); the
    file and its licence are in the package's folder ``environments/data``.

    Args:
        num_arms: A, from −5 to 40 °C at equal distances; 46 are whole degrees.
        tolerance: ℓ, in °C.
        noise_scale: standard deviation of the noise that is added to rewards.
        seed: addresses the noise; the weather is the same for every seed.

    Attributes:
        dates: the day of each round, such as "2012-01-01".
        temperatures: its highest temperature in °C.
    """

    def __init__(self, num_arms: int = 46, *, tolerance: float = 5.0, noise_scale: float = 0.1, seed: int) -> None:
        self._points, self._tolerance = _grid(-5.0, 40.0, num_arms), checks.positive("tolerance", tolerance)
        file = resources.files("torch_kbandits.environments").joinpath("data", "seattle_weather.csv")
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
        self.dates = [row["date"] for row in rows]
        self.temperatures = [float(row["temp_max"]) for row in rows]
        words = _peak_words(self._points, self._tolerance, self.peak, noise_scale)
        super().__init__(seed=seed, rounds=len(rows), norm_bound=1.0, **words)

    def peak(self, round: int) -> float:
        """Return the highest temperature of a day, in °C."""
        return self.temperatures[round]

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        return _bump(self._points, self.peak(round), self._tolerance)


def _grid(low: float, high: float, num_arms: int) -> Tensor:
    number = checks.positive_integer("num_arms", num_arms)
    check_size("num_arms", number)
    return torch.linspace(low, high, number, dtype=torch.float64)


def _bump(points: Tensor, peak: float, lengthscale: float) -> Tensor:
    """Return the Gaussian kernel between points (A,) and a peak."""
    return torch.exp((points - peak).square() / (-2.0 * lengthscale**2))


def _peak_words(points: Tensor, lengthscale: float, peak: Callable[[int], float], noise_scale: float) -> dict[str, Any]:
    """Return the words of a ``DynamicEnvironment`` in which a Gaussian kernel moves, at ``peak(round)``.

    So a change has a norm in the RKHS that is known in closed form: ‖f_s − f_t‖² = 2 − 2 exp(−(c_s − c_t)² / (2ℓ²)).
    """

    def variation_budget(rounds: int) -> float:
        # expm1 keeps what 2 − 2 exp(−small) would lose to cancellation.
        return math.fsum(
            math.sqrt(-2.0 * math.expm1(-((later - sooner) ** 2) / (2.0 * lengthscale**2)))
            for sooner, later in pairwise(map(peak, range(rounds)))
        )

    return {
        "arms": points.unsqueeze(-1),
        "noise_scale": noise_scale,
        "kernel": stationary_kernel("rbf", lengthscale),
        "regularization": noise_variance(noise_scale),
        "variation_budget": variation_budget,
    }
