"""Functions of a kernel's RKHS that change from round to round: all at once, little by little, or in a circle."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import DynamicEnvironment
from torch_kbandits.environments.options import check_size, noise_variance, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

#: s², in the posterior mean that a random function is.
_POSTERIOR_NOISE = 0.01


class RKHSFunctions:
    """Functions f = Σ_j w_j k(·, z_j) of one norm ρ, on random arms.

    Arms (A, d) and centres z (m, d) are uniform in [0, 1]^d. A random function is made as in ``rkhs_function``: the
    posterior mean of a Gaussian process given a draw of it at the centres, then scaled to the norm ρ. Norms and inner
    products come from the weights and the Gram matrix of the centres, so they are exact: ⟨f, g⟩ = wᵀKv.

    Cost: O(m³ + A m) once.
    """

    def __init__(
        self, num_arms: int, dimension: int, kernel: str, lengthscale: float, num_centres: int, norm: float, seed: int
    ) -> None:
        self.kernel = stationary_kernel(kernel, lengthscale)
        self.seed = checks.whole_number("seed", seed)
        self.norm = checks.scale("norm", norm)
        shape = checks.positive_integer("num_arms", num_arms), checks.positive_integer("dimension", dimension)
        number = checks.positive_integer("num_centres", num_centres)
        check_size("num_arms × dimension", *shape)
        check_size("num_centres × dimension", number, shape[1])
        check_size("num_arms × num_centres", shape[0], number)
        check_size("num_centres × num_centres", number, number)
        generator = generator_for(self.seed, 0, "rkhs sequence")
        self.arms = torch.rand(shape, generator=generator, dtype=torch.float64, device="cpu")
        self.centres = torch.rand(number, shape[1], generator=generator, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            self._gram = gram(self.kernel, self.centres)
            self._columns = gram(self.kernel, self.arms, self.centres)
        self._factor = jittered_cholesky(self._gram)
        self._noisy_factor = jittered_cholesky(self._gram + _POSTERIOR_NOISE * torch.eye(number, dtype=torch.float64))

    def on_arms(self, weights: Tensor) -> Tensor:
        """Return the values (A,) of the function with weights (m,) at the arms. Cost: O(A m)."""
        return self._columns @ weights

    def words(self, weights: Callable[[int], Tensor], noise_scale: float) -> dict[str, Any]:
        """Return the words of a ``DynamicEnvironment`` whose functions have these weights (m,) in a round."""
        return {
            "arms": self.arms,
            "noise_scale": noise_scale,
            "seed": self.seed,
            "kernel": self.kernel,
            "regularization": noise_variance(noise_scale),
            "norm_bound": self.norm,
            "variation_budget": partial(self._variation_budget, weights),
        }

    def random(self, number: int, *orthogonal_to: Tensor) -> Tensor:
        """Return the weights (m,) of a random function of norm ρ, addressed by the seed and a number.

        It is orthogonal to functions of norm ρ, given by their weights (m,), that are orthogonal to each other.
        """
        generator = generator_for(self.seed, number, "function of a sequence")
        normals = torch.randn(len(self.centres), 1, generator=generator, dtype=torch.float64, device="cpu")
        weights = torch.cholesky_solve(self._factor @ normals, self._noisy_factor).squeeze(-1)
        for other in orthogonal_to:
            weights = weights - other * (other @ self._gram @ weights) / self.norm**2
        return self.scaled(weights)

    def scaled(self, weights: Tensor) -> Tensor:
        """Return the weights (m,) of a multiple of a function that has the norm ρ."""
        return weights * (self.norm / (weights @ self._gram @ weights).sqrt())

    def _variation_budget(self, weights: Callable[[int], Tensor], rounds: int) -> float:
        """Return P_T = Σ ‖f_{t+1} − f_t‖ over the first T = ``rounds``, given the weights (m,) of each round."""
        changes = torch.stack([weights(round) for round in range(rounds)]).diff(dim=0)
        # Rounding may turn the form of a change of nothing negative.
        return float(((changes @ self._gram) * changes).sum(1).clamp_min(0.0).sqrt().sum())


class AbruptSwitches(DynamicEnvironment):
    """A function of a kernel's RKHS that gives way to a new one, all at once, in some rounds.

    Between switches the problem is stationary. Each switch costs about √2 ρ of the variation budget.

    Arms and centres are uniform in [0, 1]^d. A function is a sum of kernels at the centres: the posterior mean of a
    Gaussian process given a draw of it there, as in ``rkhs_function``, scaled to the norm ρ.

    Args:
        num_arms: A.
        dimension: d.
        switches: a number: a new function every so many rounds; a list: in these rounds, increasing and from 1.
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", with k(x, x) = 1.
        lengthscale: of the kernel.
        num_centres: m.
        norm: ρ, the RKHS norm of every function, in reward units.
        noise_scale: standard deviation of the noise; λ is its square, and None without noise.
        seed: addresses arms, centres, functions and noise.

    Raises:
        InputError: if an argument does not fit.
    """

    def __init__(
        self,
        num_arms: int = 100,
        dimension: int = 1,
        *,
        switches: int | Sequence[int] = 100,
        kernel: str = "rbf",
        lengthscale: float = 0.2,
        num_centres: int = 50,
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        self.switches = _switches(switches)
        self._functions = RKHSFunctions(num_arms, dimension, kernel, lengthscale, num_centres, norm, seed)
        self.centres = self._functions.centres
        super().__init__(**self._functions.words(self.weights, noise_scale))

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._functions.on_arms(self.weights(round))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""
        past = round // self.switches if isinstance(self.switches, int) else bisect_right(self.switches, round)
        return self._functions.random(past)


class Drift(DynamicEnvironment):
    """A function of a kernel's RKHS that moves at constant speed and spends a given variation budget.

    It moves on the sphere of functions of norm ρ, along a great circle: each step has the length P / (T − 1) exactly.
    After at most a quarter of a circle it turns into a new random direction, so it does not come back. A budget of
    1.57 ρ or more leads to an unrelated function; many times that, through as many of them.

    Args:
        variation_budget: P > 0, in reward units: what Σ ‖f_{t+1} − f_t‖ over the horizon is.
        horizon: T >= 2, the rounds that spend the budget; later ones go on at the same speed.
        num_centres: m >= 2; it and the other words are as in ``AbruptSwitches``.

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
        horizon = checks.whole_number("horizon", horizon, least=2)  # there is no change within one round
        num_centres = checks.whole_number("num_centres", num_centres, least=2)  # else functions differ by a factor
        budget, norm = checks.positive("variation_budget", variation_budget), checks.scale("norm", norm)
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


class Periodic(DynamicEnvironment):
    """A function of a kernel's RKHS that comes back after a period, as with the hours of a day or the days of a year.

    It goes round a circle at constant speed: f_t = √(1 − s²) a + s (cos(2πt/τ) b + sin(2πt/τ) c), where a, b and c are
    random functions of norm ρ that are orthogonal to each other and s is the swing. Each step has the norm
    2 ρ s sin(π/τ).

    Args:
        period: τ >= 2 rounds.
        swing: s in (0, 1], the share of the norm that changes; with 1 half a period turns the function into its
            negative.
        num_centres: m, at least 3; it and the other words are as in ``AbruptSwitches``.

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
        self.period = checks.whole_number("period", period, least=2)
        if (swing := checks.positive("swing", swing)) > 1.0:
            raise InputError(f"swing must be in (0, 1], got {swing}.")
        self.swing = swing
        num_centres = checks.whole_number("num_centres", num_centres, least=3)  # of three orthogonal functions
        self._functions = RKHSFunctions(num_arms, dimension, kernel, lengthscale, num_centres, norm, seed)
        self.centres = self._functions.centres
        super().__init__(**self._functions.words(self.weights, noise_scale))
        self._cosine = self._functions.random(0)
        self._sine = self._functions.random(1, self._cosine)
        self._constant = self._functions.random(2, self._cosine, self._sine)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._functions.on_arms(self.weights(round))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""
        angle = 2.0 * math.pi * (round % self.period) / self.period
        moving = math.cos(angle) * self._cosine + math.sin(angle) * self._sine
        return math.sqrt(1.0 - self.swing**2) * self._constant + self.swing * moving


def _switches(value: int | Sequence[int]) -> int | tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        return checks.positive_integer("switches, unless it is a list of rounds,", value)
    rounds = tuple(checks.positive_integer(f"switches[{i}]", round) for i, round in enumerate(value))
    for i, (sooner, later) in enumerate(pairwise(rounds)):
        if later <= sooner:
            raise InputError(f"switches must increase; after {sooner} comes switches[{i + 1}] = {later}.")
    return rounds
