"""Four years of weather in Seattle."""

import csv
from importlib import resources

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.options import check_size
from torch_kbandits.environments.peaks import PeakSequence


class SeattleWeather(DynamicEnvironment):
    """Each day, the temperature to prepare for, on four years of measured daily maxima in Seattle.

    An arm is a temperature that one gets ready for before the day: what to stock, how many to staff, what to set a
    heating to. The reward is exp(−(x − c_t)² / (2ℓ²)), where c_t is the highest temperature of the day t: 1 if x was
    right, 0.61 if it was wrong by the tolerance ℓ, next to nothing if by three times that. The best arm follows the
    seasons and, from day to day, the weather.

    It lies in the RKHS of its kernel with norm 1 each day, and its variation budget is known: real changes under the
    assumptions of the theorems.

    With the tolerance of 5 °C, the best arm that never changes loses 0.46 a day in the mean and a random one 0.73;
    preparing for yesterday's maximum would lose 0.13, but only the reward of a round is learned, not its maximum.

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
        number = checks.positive_integer("num_arms", num_arms)
        check_size("num_arms", number)
        points = torch.linspace(-5.0, 40.0, number, dtype=torch.float64)
        file = resources.files("torch_kbandits.environments").joinpath("data", "seattle_weather.csv")
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
        self.dates = [row["date"] for row in rows]
        self.temperatures = [float(row["temp_max"]) for row in rows]
        self._peaks = PeakSequence(points, torch.zeros_like(points), checks.positive("tolerance", tolerance), self.peak)
        super().__init__(seed=seed, rounds=len(rows), norm_bound=1.0, **self._peaks.words(noise_scale))

    def peak(self, round: int) -> float:
        """Return the highest temperature of a day, in °C."""
        return self.temperatures[round]

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        return self._peaks.means(round)
