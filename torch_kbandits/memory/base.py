"""What a memory is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.errors import InputError


class Memory(ABC):
    """Which observations count at a time, and with what noise. A value: it holds settings and no state.

    An argument out of its range is an ``InputError``, here and of a ``Growth``.

    What no longer counts at one time never counts again later. Where noise grows with the age by a ``Growth`` that is
    the attribute ``growth``, from which fits take it.
    """

    #: Whether an observation that counts has noise variance λ whatever its age.
    keeps_noise: bool = True

    #: How many of the latest observations count, where that alone decides. None where the age of one decides whether it
    #: counts, so that a part of a history may be taken alone.
    num_latest: int | None = None

    #: Whether the first column of points must be the time at which they are played.
    needs_time_column: ClassVar[bool] = False

    @abstractmethod
    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return the noise variances with which observations count now.

        Args:
            times: when their points were played, (n,), none after ``now``; in any order, since rewards come late. Of
                those of one time the one told last is the latest.
            now: the current time.
            regularization: λ, the variance of a fresh observation, in reward units squared.

        Returns:
            (n,), in reward units squared, at least λ; infinite for an observation that does not count.
        """

    @property
    def forgets(self) -> bool:
        """Whether an observation counts for less, or not at all, once it is old enough."""
        made = torch.zeros(1, dtype=torch.float64)
        return not bool(self.noise(made, 1e15, 1.0) == 1.0)

    def prior(self, kernel: Kernel) -> Kernel:
        """Return the prior covariance of points under this memory, given that of the function at one time."""
        return kernel

    def with_horizon(self, horizon: float) -> "Memory":
        """Return the memory with the number by which it forgets what is older than the horizon, fully or by and by.

        Args:
            horizon: h > 0, in units of time, or of observations if the memory counts these; infinite to forget nothing.
                It is the size of a window and the period of restarts. A discount becomes e^(−1/h), ε 1 − e^(−2/h), a
                linear rate 1 / h and a quadratic one 1 / h².

        Raises:
            InputError: if the memory has no number that can be learned.
        """
        raise InputError(
            f"The rate of {type(self).__name__} cannot be learned: leave learn_memory out, or give its class a method "
            "with_horizon."
        )

    def scaled(self, factor: float) -> "Memory":
        """Return the memory of rewards of which the variances are multiplied by a factor: itself if it has none."""
        return self


@dataclass(frozen=True)
class Stationary(Memory):
    """All observations count alike for ever, as if nothing changed."""

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ for each observation, (n,)."""
        return torch.full_like(times, float(regularization))


def where_counted(counts: Tensor, regularization: float | Tensor) -> Tensor:
    """Return the noise λ where an observation counts and infinity where it does not, (n,)."""
    noise = torch.full(counts.shape, torch.inf, dtype=torch.float64, device=counts.device)
    return noise.masked_fill_(counts, float(regularization))
