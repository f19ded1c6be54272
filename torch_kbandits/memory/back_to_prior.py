"""Forgetting by a prior on time: what an observation says of the function fades, and its noise stays."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory.base import Memory, where_counted
from torch_kbandits.memory.growth import ages


@dataclass(frozen=True)
class BackToPrior(Memory):
    """Each unit of time replaces a share ε of the function by a new draw of the prior.

    The prior covariance of points x at time t and x' at time t' is k(x, x') (1 − ε)^(|t − t'| / 2). Observations keep
    their noise; the belief where nothing is observed any more goes back to the prior. Unlike memories in which noise
    grows it knows that observations of one time err together, so it is not too sure of what many old ones agree on.

    It is the prior of ``TVGPUCB`` as a memory, so a ``MemoryChoice`` can choose ε. The points of any candidates get the
    time as their first column, see ``Timed``; the kernel given is that of the function at one time. If it is a
    ``SpaceTimeKernel``, as in ``TVGPUCB`` itself, both replace their share.

    Source: Bogunovic, Scarlett and Cevher, "Time-varying Gaussian process bandit optimization", AISTATS 2016, §2.2;
    "back to prior" is the name that Brunzema, von Rohr and Trimpe, CDC 2022, give it. Differs: times need not be
    rounds; observations may be dropped.

    Args:
        forgetting: ε in [0, 1); 0 forgets nothing.
        least_correlation: observations are dropped whose correlation (1 − ε)^(age / 2) with the function of now is
            less, which bounds the cost of a round; None drops none.

    Raises:
        InputError: if ε is not in [0, 1), or the correlation not in (0, 1).
    """

    forgetting: float
    least_correlation: float | None = None

    needs_time_column: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.keep(self, forgetting=checks.share, least_correlation=checks.optional(checks.open_unit_interval))

    def with_horizon(self, horizon: float) -> "BackToPrior":
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
