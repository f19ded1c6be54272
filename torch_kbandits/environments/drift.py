"""Functions that drift."""

import math

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.rkhs_functions import RKHSFunctions
from torch_kbandits.errors import InputError


class Drift(DynamicEnvironment):
    """A function of a kernel's RKHS that moves at constant speed and spends a given variation budget.

    It moves on the sphere of functions of norm ρ, along a great circle: each step has the length P / (T − 1) exactly.
    After at most a quarter of a circle it turns into a new random direction, so it does not come back. A budget of
    1.57 ρ or more leads to an unrelated function; many times that, through as many of them.

    Args:
        num_arms: as in ``RKHSFunctions``, like the words that follow.
        dimension: d.
        variation_budget: P > 0, in reward units: what Σ ‖f_{t+1} − f_t‖ over the horizon is.
        horizon: T >= 2, the rounds that spend the budget; later ones go on at the same speed.
        kernel: its name.
        lengthscale: of the kernel.
        num_centres: m >= 2.
        norm: ρ.
        noise_scale: standard deviation of the noise.
        seed: addresses arms, centres, functions and noise.

    Raises:
        InputError: if an argument does not fit, or a step would be longer than 2ρ, the diameter of the sphere.
    """

    def __init__(
        self,
        num_arms: int = 100,
        dimension: int = 1,
        *,
        variation_budget: float = 10.0,
        horizon: int = 500,
        kernel: str = "rbf",
        lengthscale: float = 0.2,
        num_centres: int = 50,
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        if (horizon := checks.positive_integer("horizon", horizon)) < 2:
            raise InputError("horizon must be at least 2: there is no change within one round.")
        if (num_centres := checks.positive_integer("num_centres", num_centres)) < 2:
            raise InputError("num_centres must be at least 2: functions of one kernel differ by a factor only.")
        budget, norm = checks.positive("variation_budget", variation_budget), checks.positive("norm", norm)
        step = budget / (horizon - 1)
        if step > 2.0 * norm:
            raise InputError(
                f"A variation_budget of {budget:g} over {horizon} rounds is {step:g} a step, and functions of norm "
                f"{norm:g} are at most {2 * norm:g} apart: give a smaller one, a longer horizon or a larger norm."
            )
        self._functions = RKHSFunctions(num_arms, dimension, kernel, lengthscale, num_centres, norm, seed)
        self.centres = self._functions.centres
        super().__init__(**self._functions.words(self.weights, noise_scale))
        self._angle = 2.0 * math.asin(step / (2.0 * norm))
        self._steps = max(1, math.floor(0.5 * math.pi / self._angle))  # before it turns
        start = self._functions.random(0)
        self._legs = [(start, self._functions.random(1, start))]

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._functions.on_arms(self.weights(round))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres.

        Cost: O(m²) once for each turn before it.
        """
        leg, step = divmod(round, self._steps)
        while len(self._legs) <= leg:
            start = self._functions.scaled(self._on_leg(len(self._legs) - 1, self._steps))
            self._legs.append((start, self._functions.random(len(self._legs) + 1, start)))
        return self._on_leg(leg, step)

    def _on_leg(self, leg: int, step: int) -> Tensor:
        start, direction = self._legs[leg]
        return math.cos(step * self._angle) * start + math.sin(step * self._angle) * direction
