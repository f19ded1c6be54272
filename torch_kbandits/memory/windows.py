"""Memories in which an observation counts fully or not at all."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.memory.base import Memory, where_counted

#: What a window's size counts.
Unit = Literal["time", "observations"]


@dataclass(frozen=True)
class SlidingWindow(Memory):
    """What is no older than the window counts; what is older is forgotten.

    With rounds as the clock the choice of round t rests on the rounds t − size … t − 1. Where observations are counted,
    the latest are those played last, and of those played at one time the ones told last.

    Source: Zhou and Shroff, CISS 2021, SW-GP-UCB.

    Args:
        size: w: the largest age that counts, or with ``unit="observations"`` how many of the latest count. Infinite
            for no limit.
        unit: what the size counts; "time" is rounds unless times are given to ``tell``.
    """

    size: float
    unit: Unit = "time"

    def __post_init__(self) -> None:
        checks.one_of("unit", self.unit, ("time", "observations"))
        if not (isinstance(self.size, float) and self.size == math.inf):
            checks.keep(self, size=checks.positive_integer if self.unit == "observations" else checks.positive)
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


def is_latest(times: Tensor, number: float) -> Tensor:
    """Say of each observation, told in this order, whether it is among so many that were played last, (n,) bool."""
    latest = torch.zeros(len(times), dtype=torch.bool, device=times.device)
    latest[times.argsort(stable=True)[max(len(times) - int(min(number, len(times))), 0) :]] = True
    return latest


@dataclass(frozen=True)
class Restart(Memory):
    """Everything is forgotten whenever a period is over; the next starts from the prior.

    With rounds as the clock the rounds 0 … period − 1 are the first period. ``Bandit.restart`` forgets on demand,
    with or without this.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016, R-GP-UCB, with the period of Zhou and Shroff, CISS 2021.
    After a restart the variance is the prior's; "σ₀ = 0" in the latter is a slip.

    Args:
        period: H, in units of time: rounds unless times are given to ``tell``. Infinite for no restarts.
        origin: the time at which a period starts.
    """

    period: float
    origin: float = 0.0

    def __post_init__(self) -> None:
        if not (isinstance(self.period, float) and self.period == math.inf):
            checks.keep(self, period=checks.positive)
        checks.keep(self, origin=checks.finite_number)

    def with_horizon(self, horizon: float) -> "Restart":
        """Return restarts of that period."""
        return replace(self, period=horizon)

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return λ in the current period and infinity before, (n,)."""
        if self.period == math.inf:
            return where_counted(torch.ones_like(times, dtype=torch.bool), regularization)
        periods = ((times - self.origin) / self.period).floor()
        return where_counted(periods == math.floor((now - self.origin) / self.period), regularization)
