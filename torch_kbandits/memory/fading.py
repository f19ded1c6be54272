"""Memories in which an observation counts less and less as it grows older."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.memory.base import Memory
from torch_kbandits.memory.growth import Exponential, Growth, ages, negligible

#: ``Exponential`` stops growing at the variance that is negligible, to this relative accuracy.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class UncertaintyInjection(Memory):
    """The noise variance of an observation grows with its age.

    Source: Brunzema, von Rohr and Trimpe, CDC 2022 (``Linear``); Mauduit et al., 2025, Eq. (10) (``Quadratic``).
    Differs: a bandit chooses with ages of the round in which the point is played, so its latest reward has age 1, where
    the latter has 0.

    Args:
        growth: ``Quadratic``, ``Linear`` or ``Exponential``; its age is in rounds unless times are given to ``tell``.
        max_variance: observations of a larger variance are dropped, which bounds the cost of a round; in reward units
            squared. Without it those are dropped that a squared rounding error outweighs.

    Raises:
        InputError: if the growth is none, or the variance is not positive.
    """

    growth: Growth
    max_variance: float | None = None

    keeps_noise = False

    def __post_init__(self) -> None:
        checks.instance("growth", self.growth, Growth, "a growth such as Quadratic(1.0)")
        checks.keep(self, max_variance=checks.optional(checks.positive))

    def with_horizon(self, horizon: float) -> "UncertaintyInjection":
        """Return it with a growth of that horizon."""
        return replace(self, growth=self.growth.with_horizon(horizon))

    def scaled(self, factor: float) -> "UncertaintyInjection":
        """Return it for variances times a factor."""
        limit = None if self.max_variance is None else self.max_variance * factor
        return replace(self, growth=self.growth.scaled(factor), max_variance=limit)

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return the grown variances, infinite beyond the largest that counts, (n,)."""
        level = torch.as_tensor(regularization, dtype=times.dtype, device=times.device)
        grown = self.growth.noise(ages(times, times.new_tensor(now)), level)
        dropped = grown >= (1.0 - _ROUNDING) * negligible(level)
        if self.max_variance is not None:
            dropped |= grown > self.max_variance
        return grown.masked_fill(dropped, torch.inf)


@dataclass(frozen=True)
class Discount(Memory):
    """The weight of an observation falls by the factor η in a unit of time: its noise variance is λ η^(−age).

    Source: Deng et al., AISTATS 2022, W-GP-UCB, in the form of Mauduit et al., 2025, Eq. (9). Differs: as for
    ``UncertaintyInjection``, the latest reward has age 1; theirs is the same with λ/η in place of λ.

    Args:
        discount: η, above 0 and at most 1; 1 forgets nothing.
        least_weight: observations of a smaller weight η^age are dropped, which bounds the cost of a round. None drops
            what a squared rounding error outweighs.

    Raises:
        InputError: if η is not in (0, 1], or the weight not in (0, 1).
    """

    discount: float
    least_weight: float | None = None

    keeps_noise = False

    def __post_init__(self) -> None:
        checks.keep(self, discount=checks.discount, least_weight=checks.optional(checks.open_unit_interval))

    @property
    def growth(self) -> Exponential:
        """How the noise variance grows with the age."""
        return Exponential(self.discount)

    def with_horizon(self, horizon: float) -> "Discount":
        """Return the discount e^(−1/h)."""
        return replace(self, discount=math.exp(-1.0 / horizon))

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ η^(−age), infinite below the least weight, (n,)."""
        noise = UncertaintyInjection(self.growth).noise(times, now, regularization)
        if self.least_weight is None:
            return noise
        return noise.masked_fill(self.discount ** (now - times) < self.least_weight, torch.inf)
