"""Functions that come back."""

import math

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.rkhs_functions import RKHSFunctions
from torch_kbandits.errors import InputError


class Periodic(DynamicEnvironment):
    """A function of a kernel's RKHS that comes back after a period, as with the hours of a day or the days of a year.

    It goes round a circle at constant speed: f_t = √(1 − s²) a + s (cos(2πt/τ) b + sin(2πt/τ) c), where a, b and c are
    random functions of norm ρ that are orthogonal to each other and s is the swing. Each step has the norm
    2 ρ s sin(π/τ).

    Args:
        num_arms: as in ``RKHSFunctions``, like the words that follow.
        dimension: d.
        period: τ >= 2 rounds.
        swing: s in (0, 1], the share of the norm that changes; with 1 half a period turns the function into its
            negative.
        kernel: its name.
        lengthscale: of the kernel.
        num_centres: m, at least 3.
        norm: ρ.
        noise_scale: standard deviation of the noise.
        seed: addresses arms, centres, functions and noise.

    Raises:
        InputError: if an argument does not fit.
    """

    def __init__(
        self,
        num_arms: int = 100,
        dimension: int = 1,
        *,
        period: int = 100,
        swing: float = 1.0,
        kernel: str = "rbf",
        lengthscale: float = 0.2,
        num_centres: int = 50,
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        if (period := checks.positive_integer("period", period)) < 2:
            raise InputError("period must be at least 2: with 1 every round is the same.")
        if (swing := checks.positive("swing", swing)) > 1.0:
            raise InputError(f"swing must be in (0, 1], got {swing}.")
        if (num_centres := checks.positive_integer("num_centres", num_centres)) < 3:
            raise InputError(f"num_centres must be at least 3 for three orthogonal functions, got {num_centres}.")
        self._functions = RKHSFunctions(num_arms, dimension, kernel, lengthscale, num_centres, norm, seed)
        self.centres = self._functions.centres
        super().__init__(**self._functions.words(self.weights, noise_scale))
        self.period, self.swing = period, float(swing)
        cosine = self._functions.random(0)
        sine = self._functions.random(1, cosine)
        self._cosine, self._sine = cosine, sine
        self._constant = self._functions.random(2, cosine, sine)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._functions.on_arms(self.weights(round))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""
        angle = 2.0 * math.pi * (round % self.period) / self.period
        moving = math.cos(angle) * self._cosine + math.sin(angle) * self._sine
        return math.sqrt(1.0 - self.swing**2) * self._constant + self.swing * moving
