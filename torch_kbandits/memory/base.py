"""What a memory is, and memories in which an observation counts fully or not at all."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.memory.growth import no_rate


class Memory(ABC):
    """Which observations count at a time, and with what noise. A value: it holds settings and no state.

    What no longer counts never counts again. A ``Growth`` by which noise grows is the attribute ``growth``.
    """

    #: Whether an observation that counts has noise variance λ whatever its age.
    keeps_noise: bool = True

    #: How many of the latest observations count, where that alone decides; None where the age of one does.
    num_latest: int | None = None

    #: How long an observation counts, and like a fresh one until then; None where that is not so.
    span: float | None = None

    #: Whether the first column of points must be the time at which they are played.
    needs_time_column: ClassVar[bool] = False

    @abstractmethod
    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return the noise variances with which observations count now, (n,): at least λ, infinite for none.

        Args:
            times: when their points were played, (n,), none after ``now``, in any order; of those of one time the one
                told last is the latest.
            now: the current time.
            regularization: λ, the variance of a fresh observation, in reward units squared, or that of each, (n,).
        """

    @property
    def forgets(self) -> bool:
        """Whether an observation counts for less, or not at all, once it is old enough."""
        return bool(self.noise(torch.zeros(1, dtype=torch.float64), 1e15, 1.0) != 1.0)

    def prior(self, kernel: Kernel) -> Kernel:
        """Return the prior covariance of points under this memory, given that of the function at one time."""
        return kernel

    def with_horizon(self, horizon: float) -> "Memory":
        """Return the memory that forgets what is older than a horizon h > 0, in units of time or of observations.

        That is the size of a window, the period of restarts, a discount e^(−1/h), ε = 1 − e^(−2/h), a linear rate 1 / h
        and a quadratic one 1 / h². An infinite one forgets nothing.
        """
        raise no_rate(self)

    def scaled(self, factor: float) -> "Memory":
        """Return the memory of rewards of which the variances are multiplied by a factor: itself if it has none."""
        return self


@dataclass(frozen=True)
class Stationary(Memory):
    """All observations count alike for ever, as if nothing changed."""

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ for each observation, (n,)."""
        return torch.zeros_like(times) + regularization


def where_counted(counts: Tensor, regularization: float | Tensor) -> Tensor:
    """Return the noise λ, or its own, where an observation counts and infinity where it does not, (n,)."""
    noise = torch.as_tensor(regularization, dtype=torch.float64, device=counts.device)
    return torch.where(counts, noise, torch.inf)


@dataclass(frozen=True)
class SlidingWindow(Memory):
    """What is no older than the window counts: in round t of a bandit the rounds t − size … t − 1.

    Source: Zhou and Shroff, CISS 2021, SW-GP-UCB.

    Args:
        size: w: the largest age that counts, or how many of the latest observations; infinite for no limit.
        unit: what the size counts; "time" is rounds unless times are given to ``tell``.
    """

    size: float
    unit: Literal["time", "observations"] = "time"

    def __post_init__(self) -> None:
        checks.one_of("unit", self.unit, ("time", "observations"))
        checks.keep(self, size=_or_infinite(checks.positive if self.unit == "time" else checks.positive_integer))
        object.__setattr__(self, "span", self.size)
        if self.unit == "observations" and self.size < math.inf:
            object.__setattr__(self, "num_latest", self.size)

    def with_horizon(self, horizon: float) -> "SlidingWindow":
        """Return a window of that size; of observations a whole number of them."""
        counts = self.unit == "observations" and horizon < math.inf
        return replace(self, size=max(round(horizon), 1) if counts else horizon)

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ within the window and infinity outside, (n,)."""
        if self.unit == "time":
            return where_counted(now - times <= self.size, regularization)
        return where_counted(is_latest(times, self.size), regularization)


@dataclass(frozen=True)
class LastObservations(Memory):
    """As many of the latest observations count as the current time says; for the parts of a history that is divided."""

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ for the ``now`` latest and infinity for the others, (n,)."""
        return where_counted(is_latest(times, now), regularization)


def _or_infinite(kind: Any) -> Any:
    """Return a check that lets infinity pass, too."""
    return lambda name, value: value if isinstance(value, float) and value == math.inf else kind(name, value)


def is_latest(times: Tensor, number: float) -> Tensor:
    """Say of each observation, told in this order, whether it is among so many that were played last, (n,) bool."""
    latest = torch.zeros(len(times), dtype=torch.bool, device=times.device)
    latest[times.argsort(stable=True)[max(len(times) - int(min(number, len(times))), 0) :]] = True
    return latest


@dataclass(frozen=True)
class Restart(Memory):
    """Everything is forgotten whenever a period is over; the next starts from the prior.

    The rounds 0 … period − 1 are the first period. ``Bandit.restart`` forgets on demand.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, R-GP-UCB, with the period of Zhou and Shroff, CISS 2021.
    After a restart the variance is the prior's; "σ₀ = 0" in the latter is a slip.

    Args:
        period: H, in units of time: rounds unless times are given to ``tell``; infinite for no restarts.
        origin: the time at which a period starts.
    """

    period: float
    origin: float = 0.0

    def __post_init__(self) -> None:
        checks.keep(self, period=_or_infinite(checks.positive), origin=checks.finite_number)
        object.__setattr__(self, "span", self.period)

    def with_horizon(self, horizon: float) -> "Restart":
        """Return restarts of that period."""
        return replace(self, period=horizon)

    def epoch(self, now: float) -> int:
        """Return the number of the period of a time; 0 before any, and where none ends."""
        return math.floor((now - self.origin) / self.period) if math.isfinite(now) and self.period < math.inf else 0

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ in the current period and infinity before, (n,)."""
        start = -math.inf if self.period == math.inf else math.floor((now - self.origin) / self.period)
        return where_counted(((times - self.origin) / self.period).floor() >= start, regularization)
