"""Memories in which an observation counts less and less, or says less and less, as it grows older."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory.base import Memory, where_counted
from torch_kbandits.memory.growth import ExponentialGrowth, Growth, ages, negligible

#: ``ExponentialGrowth`` stops growing at the variance that is negligible, to this relative accuracy.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class UncertaintyInjection(Memory):
    """The noise variance of an observation grows with its age.

    Source: Brunzema, von Rohr and Trimpe, CDC 2022 (linear); Mauduit et al., 2025, Eq. (10) (quadratic). Differs: ages
    are those of the round in which the point is played, so the latest reward has age 1, where the latter has 0.

    Args:
        growth: a ``QuadraticGrowth``, ``LinearGrowth`` or ``ExponentialGrowth``.
        max_variance: observations of a larger variance are dropped, which bounds the cost of a round; by default those
            that a squared rounding error outweighs.
    """

    growth: Growth
    max_variance: float | None = None

    keeps_noise = False

    def __post_init__(self) -> None:
        checks.instance("growth", self.growth, Growth, "a growth such as QuadraticGrowth(1.0)")
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

    Source: Deng et al., AISTATS 2022, W-GP-UCB, in the form of Mauduit et al., 2025, Eq. (9). Differs: the latest
    reward has age 1; theirs is the same with λ/η in place of λ.

    Args:
        discount: η, above 0 and at most 1; 1 forgets nothing.
        least_weight: observations of a smaller weight η^age are dropped, as by ``max_variance``.
    """

    discount: float
    least_weight: float | None = None

    keeps_noise = False

    def __post_init__(self) -> None:
        checks.keep(self, discount=checks.discount, least_weight=checks.optional(checks.open_unit_interval))

    @property
    def growth(self) -> ExponentialGrowth:
        """How the noise variance grows with the age."""
        return ExponentialGrowth(self.discount)

    def with_horizon(self, horizon: float) -> "Discount":
        """Return the discount e^(−1/h)."""
        return replace(self, discount=math.exp(-1.0 / horizon))

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ η^(−age), infinite below the least weight, (n,)."""
        noise = UncertaintyInjection(self.growth).noise(times, now, regularization)
        least = 0.0 if self.least_weight is None else self.least_weight
        return noise.masked_fill(self.discount ** (now - times) < least, torch.inf)


@dataclass(frozen=True)
class TemporalPrior(Memory):
    """Each unit of time replaces a share ε of the function by a new draw of the prior.

    The prior covariance of points x at time t and x' at time t' is k(x, x') (1 − ε)^(|t − t'| / 2). Observations keep
    their noise; where nothing is observed any more the posterior goes back to the prior. Unlike memories in which noise
    grows it is not too sure of what many old observations agree on, which err together.

    Points of any candidates get the time as their first column, see ``Timed``; the kernel given is that of the function
    at one time. If that is a ``SpaceTimeKernel``, as in ``TVGPUCB``, both replace their share.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, §2.2; "back to prior" in Brunzema, von Rohr and Trimpe, CDC
    2022. Differs: times need not be rounds; observations may be dropped.

    Args:
        forgetting: ε in [0, 1); 0 forgets nothing.
        least_correlation: observations are dropped whose correlation (1 − ε)^(age / 2) with the function of now is
            less; None drops none.
    """

    forgetting: float
    least_correlation: float | None = None

    needs_time_column: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.keep(self, forgetting=checks.share, least_correlation=checks.optional(checks.open_unit_interval))

    def with_horizon(self, horizon: float) -> "TemporalPrior":
        """Return ε = 1 − e^(−2/h), at which a correlation is 1/e after the horizon."""
        return replace(self, forgetting=-math.expm1(-2.0 / horizon))

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ for each observation that counts, and infinity for the others, (n,)."""
        correlation = (1.0 - self.forgetting) ** (0.5 * ages(times, times.new_tensor(now)))
        least = 0.0 if self.least_correlation is None else self.least_correlation
        return where_counted(correlation >= least, regularization)

    def prior(self, kernel: Kernel) -> Kernel:
        """Return the covariance of points (time, x), given that of the function at one time."""
        in_time = ForgettingKernel(self.forgetting)
        if isinstance(kernel, SpaceTimeKernel):
            return SpaceTimeKernel(kernel.space_kernel, kernel.time_kernel * in_time)
        return SpaceTimeKernel(kernel, in_time)
