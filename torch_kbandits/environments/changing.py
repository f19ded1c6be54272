"""Problems that change: a peak that moves, the weather, and functions of an RKHS that switch or drift."""

import csv
import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import DynamicEnvironment
from torch_kbandits.environments.options import check_size, noise_variance, stationary_kernel
from torch_kbandits.environments.synthetic import POSTERIOR_NOISE, uniform_arms
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.gram import gram
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.random import generator_for

#: m, of the kernels whose sums the functions of an RKHS are.
_NUM_CENTRES = 50


class MovingPeak(DynamicEnvironment):
    """A peak that swings over a wave that stays: exp(−0.05 (x − 5 sin(0.1 t))²) + 0.5 cos(0.2 x) + 1.5 on [−50, 50].

    A ``speed`` s >= 0 other than 1 makes it 5 sin(0.1 s t): the slower it is, the less is there to ask an expert.

    Source: Mauduit, Berthier and Simonetto, 2025, §4.1. Differs: A arms are a grid of the interval, t counts from 0,
    and the kernel is that of the peak, ℓ = √10, where the paper fits one by marginal likelihood. With it the variation
    budget is exact: about 50 over the paper's 500 rounds. The seed addresses the noise.
    """

    def __init__(self, num_arms: int = 1000, *, noise_scale: float = 0.1, speed: float = 1.0, seed: int) -> None:
        grid, length, pace = (-50.0, 50.0, num_arms), math.sqrt(10.0), 0.1 * checks.non_negative("speed", speed)
        self._rise, words = _moving_kernel(grid, length, lambda round: 5.0 * math.sin(pace * round), noise_scale)
        super().__init__(seed=seed, center=1.5, **words)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        return 0.5 * torch.cos(0.2 * self.arms[:, 0]) + 1.5 + self._rise(round)


class SeattleWeather(DynamicEnvironment):
    """Each day, the temperature to prepare for, on four years of measured daily maxima in Seattle.

    Arms are A temperatures from −5 to 40 °C. The reward of one, x, is exp(−(x − c_t)² / (2ℓ²)), where c_t is the
    highest of the day t: 1 if x was right, 0.61 if it was wrong by the ``tolerance`` ℓ, in °C. It lies in the RKHS of
    its kernel with norm 1 each day, and its variation budget is known. The seed addresses the noise.

    Source: public-domain observations of NOAA for 2012 to 2015, by way of the package vega_datasets (MIT licence); the
    file and its licence are in the package's folder ``environments/data``.

    Attributes:
        dates, temperatures: the day of each round, such as "2012-01-01", and its highest temperature in °C.
    """

    def __init__(self, num_arms: int = 46, *, tolerance: float = 5.0, noise_scale: float = 0.1, seed: int) -> None:
        file = resources.files("torch_kbandits.environments").joinpath("data", "seattle_weather.csv")
        rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
        self.dates, self.temperatures = [row["date"] for row in rows], [float(row["temp_max"]) for row in rows]
        length, peak = checks.positive("tolerance", tolerance), self.temperatures.__getitem__
        self._rise, words = _moving_kernel((-5.0, 40.0, num_arms), length, peak, noise_scale)
        super().__init__(seed=seed, rounds=len(rows), norm_bound=1.0, **words)

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A)."""
        return self._rise(round)


def _moving_kernel(
    grid: tuple[float, float, int], lengthscale: float, peak: Callable[[int], float], noise_scale: float
) -> tuple[Callable[[int], Tensor], dict[str, Any]]:
    """Return a Gaussian kernel over a grid, which moves with ``peak(round)``, and the words of its problem.

    Norms of changes are known in closed form: ‖f_s − f_t‖² = 2 − 2 exp(−(c_s − c_t)² / (2ℓ²)).
    """
    check_size("num_arms", number := checks.positive_integer("num_arms", grid[2]))
    arms, slope = torch.linspace(*grid[:2], number, dtype=torch.float64), -2.0 * lengthscale**2

    def variation_budget(rounds: int) -> float:
        # expm1 keeps what 2 − 2 exp(−small) would lose to cancellation.
        steps = pairwise(map(peak, range(rounds)))
        return math.fsum(math.sqrt(-2.0 * math.expm1((later - sooner) ** 2 / slope)) for sooner, later in steps)

    known = {"kernel": stationary_kernel("rbf", lengthscale), "regularization": noise_variance(noise_scale)}
    words = {"arms": arms.unsqueeze(-1), "noise_scale": noise_scale, "variation_budget": variation_budget, **known}
    return lambda round: torch.exp((arms - peak(round)).square() / slope), words


class RKHSFunctions(ABC):
    """What the problems below share: random functions f = Σ_j w_j k(·, z_j) of one norm ρ, and their means on the arms.

    Norms and inner products come from the weights and the Gram matrix of the centres z: ⟨f, g⟩ = wᵀKv is exact.
    """

    @abstractmethod
    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""

    def means(self, round: int) -> Tensor:
        """Return the mean rewards (A,) of all arms in a round. Cost: O(A m)."""
        return self._columns @ self.weights(round)

    def _words(
        self, num_arms: int, dimension: int, kernel: str, lengthscale: float, norm: float, noise_scale: float, seed: int
    ) -> dict[str, Any]:
        """Draw arms and centres; return the words of the ``DynamicEnvironment``. Cost: O(m³ + A m)."""
        prior = stationary_kernel(kernel, checks.positive("lengthscale", lengthscale))
        self._norm, self._seed = checks.scale("norm", norm), checks.whole_number("seed", seed)
        arms, generator = uniform_arms("rkhs sequence", num_arms, dimension, seed, columns=_NUM_CENTRES)
        self.centres = torch.rand(_NUM_CENTRES, arms.shape[1], generator=generator, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            self._gram, self._columns = gram(prior, self.centres), gram(prior, arms, self.centres)
        noise = POSTERIOR_NOISE * torch.eye(_NUM_CENTRES, dtype=torch.float64)
        self._factor, self._noisy_factor = jittered_cholesky(self._gram), jittered_cholesky(self._gram + noise)
        known = {"kernel": prior, "regularization": noise_variance(noise_scale), "norm_bound": self._norm}
        words = {"arms": arms, "noise_scale": noise_scale, "seed": seed}
        return known | words | {"variation_budget": self._variation_budget}

    def _random(self, number: int, orthogonal_to: Tensor | None = None) -> Tensor:
        """Return the weights (m,) of a random function of norm ρ of the seed and a number; orthogonal to one of it."""
        generator = generator_for(self._seed, number, "function of a sequence")
        normals = torch.randn(_NUM_CENTRES, 1, generator=generator, dtype=torch.float64, device="cpu")
        weights = torch.cholesky_solve(self._factor @ normals, self._noisy_factor).squeeze(-1)
        if orthogonal_to is not None:
            weights = weights - orthogonal_to * (orthogonal_to @ self._gram @ weights) / self._norm**2
        return self._scaled(weights)

    def _scaled(self, weights: Tensor) -> Tensor:
        """Return the weights (m,) of a multiple of a function that has the norm ρ."""
        return weights * (self._norm / (weights @ self._gram @ weights).sqrt())

    def _variation_budget(self, rounds: int) -> float:
        changes = torch.stack([self.weights(round) for round in range(rounds)]).diff(dim=0)
        # Rounding may turn the form of a change of nothing negative.
        return float(((changes @ self._gram) * changes).sum(1).clamp_min(0.0).sqrt().sum())


class AbruptSwitches(RKHSFunctions, DynamicEnvironment):
    """A function of a kernel's RKHS that gives way to a new one, all at once, in some rounds.

    Between switches the problem is stationary. Each switch costs about √2 ρ of the variation budget.

    Args:
        switches: a number: a new function every so many rounds; a list: in these rounds, increasing and from 1.
        num_arms, dimension, kernel, lengthscale, norm, noise_scale, seed: A arms and 50 centres are uniform in
            [0, 1]^d. A function is a sum of kernels at the centres, drawn as in ``rkhs_function`` and scaled to the
            RKHS norm ρ. λ is the variance of the noise, None without noise. The seed addresses all of it.
    """

    def __init__(
        self,
        num_arms: int = 100,
        dimension: int = 1,
        *,
        switches: int | Sequence[int] = 100,
        kernel: str = "rbf",
        lengthscale: float = 0.2,
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        if isinstance(switches, Sequence) and not isinstance(switches, str | bytes):
            each = enumerate(switches)
            self.switches = tuple(checks.positive_integer(f"switches[{place}]", round) for place, round in each)
            if any(later <= sooner for sooner, later in pairwise(self.switches)):
                raise InputError(f"switches must increase, got {checks.shown(self.switches)}.")
        else:
            self.switches = checks.positive_integer("switches, unless it is a list of rounds,", switches)
        super().__init__(**self._words(num_arms, dimension, kernel, lengthscale, norm, noise_scale, seed))

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function on the kernels at the centres."""
        past = round // self.switches if isinstance(self.switches, int) else bisect_right(self.switches, round)
        return self._random(past)


class Drift(RKHSFunctions, DynamicEnvironment):
    """A function of a kernel's RKHS that moves at constant speed and spends a given variation budget.

    It moves on the sphere of functions of norm ρ, along a great circle: each step has the length P / (T − 1) exactly.
    After at most a quarter of a circle, 1.57 ρ of the budget, it turns into a new random direction.

    Args:
        variation_budget: P > 0, in reward units: what Σ ‖f_{t+1} − f_t‖ over the horizon is.
        horizon: T >= 2, the rounds that spend the budget; later ones go on at the same speed.
        num_arms, dimension, kernel, lengthscale, norm, noise_scale, seed: as in ``AbruptSwitches``.

    Raises:
        InputError: if a step would be longer than 2ρ, the diameter of the sphere.
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
        norm: float = 3.0,
        noise_scale: float = 0.1,
        seed: int,
    ) -> None:
        horizon = checks.whole_number("horizon", horizon, least=2)  # there is no change within one round
        budget, norm = checks.positive("variation_budget", variation_budget), checks.scale("norm", norm)
        step = budget / (horizon - 1)
        if step > 2.0 * norm:
            apart = f"{step:g} a step, and functions of norm {norm:g} are at most {2 * norm:g} apart"
            raise InputError(f"variation_budget is {apart}: give a smaller one, a longer horizon or a larger norm.")
        super().__init__(**self._words(num_arms, dimension, kernel, lengthscale, norm, noise_scale, seed))
        self._angle = 2.0 * math.asin(step / (2.0 * norm))
        self._steps = max(1, math.floor(0.5 * math.pi / self._angle))  # before it turns
        start = self._random(0)
        self._legs = [(start, self._random(1, start))]

    def weights(self, round: int) -> Tensor:
        """Return the weights (m,) of a round's function. Cost: O(m²) once for each turn before it."""
        leg, step = divmod(round, self._steps)
        while len(self._legs) <= leg:
            start = self._scaled(self._on_leg(len(self._legs) - 1, self._steps))
            self._legs.append((start, self._random(len(self._legs) + 1, start)))
        return self._on_leg(leg, step)

    def _on_leg(self, leg: int, step: int) -> Tensor:
        start, direction = self._legs[leg]
        return math.cos(step * self._angle) * start + math.sin(step * self._angle) * direction
