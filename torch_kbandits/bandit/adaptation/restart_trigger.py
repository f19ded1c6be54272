"""When a reward says that the function has become another."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.residuals import Group, Predictions, standardized
from torch_kbandits.confidence import Evidence, Width


class Prediction(NamedTuple):
    """What was believed of rewards before they were told.

    Attributes:
        mean: posterior means (q,), in reward units.
        variance: posterior variances of the function (q,), in reward units squared.
        evidence: the posterior they are from.
        num_before: how many rewards were told since the last restart.
        known: what those since then were worth, or since the prior was fitted last.
        noise: λ, 0-dim, or where rewards came late the noise variance that each counts with now, (q,), in reward units
            squared, infinite for one that does not count.
    """

    mean: Tensor
    variance: Tensor
    evidence: Evidence
    num_before: int
    known: Predictions
    noise: Tensor


class RestartTrigger(ABC):
    """When rewards say that the function has become another. A value: it holds settings and no state.

    A late reward is compared with the posterior when it is told, as any other: one that was played before a restart
    may cause another.
    """

    @abstractmethod
    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether to restart because of the rewards of one round, (q,), given what was believed of them."""


@dataclass(frozen=True)
class ResidualTrigger(RestartTrigger):
    """Restart when a reward leaves the band that holds all rewards of a function that stays.

        |y_t − μ(x_t)| > ρ_t σ(x_t) + R ρ_t,  ρ_t = √(2 ln(2 π_t / δ)),  π_t = π² t² / 6

    t counts the rewards since the last restart, this one included; μ and σ are of the posterior before it.

    On a function that stays, a restart comes with probability at most δ from one restart to the next, however long
    that takes. Proof: given what was told before, (f(x_t) − μ)/σ and ε_t/√λ are standard normal, and each exceeds ρ_t
    in size with probability at most exp(−ρ_t²/2) = δ/(2π_t); Σ 1/π_t = 1. The same holds of rewards told in one round.

    Source: Brunzema, von Rohr, Solowjow and Trimpe, "Event-triggered time-varying Bayesian optimization", TMLR 2025.

    Assumes: the function is a draw from the prior, noise is N(0, λ), R is at least √λ, the exact posterior of all
    rewards since the restart, also where a batch rule holds some back. With ``width`` the first term is β σ, for
    functions of the RKHS and noise N(0, R²): half of δ is then the width's own failure probability. A memory and a
    dictionary are outside the proof.

    Args:
        false_alarm_probability: δ in (0, 1). A smaller one finds small changes later.
        noise_scale: R > 0, the standard deviation of the noise, in reward units; None for √λ.
        width: a width in place of ρ_t on σ.

    Raises:
        InputError: if an argument is out of range.
    """

    false_alarm_probability: float = 0.1
    noise_scale: float | None = None
    width: Width | None = None

    def __post_init__(self) -> None:
        checks.keep(
            self, false_alarm_probability=checks.open_unit_interval, noise_scale=checks.optional(checks.positive)
        )
        if self.width is not None:
            checks.instance("width", self.width, Width, "a confidence width such as ConstantWidth(2.0), or None")

    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether a reward (q,) lies outside the band. Cost: O(q), and that of the width."""
        return bool(((Y - before.mean).abs() > self.band(before)).any())

    def band(self, before: Prediction) -> Tensor:
        """Return how far rewards may lie from their means, (q,), in reward units."""
        deviation = before.variance.clamp_min(0.0).sqrt()
        number = before.num_before + torch.arange(1, len(deviation) + 1, device=deviation.device).to(deviation)
        radius = (2.0 * torch.log(2.0 * (math.pi * number).square() / (6.0 * self.false_alarm_probability))).sqrt()
        noise = before.evidence.regularization.sqrt() if self.noise_scale is None else self.noise_scale
        return (radius if self.width is None else self.width(before.evidence)) * deviation + noise * radius


@dataclass(frozen=True)
class CumulatedTrigger(RestartTrigger):
    """Restart when residuals, none of which need be a surprise, are one together: for drift that is slow.

    It restarts once the martingale of ``Surprise`` is at least 1/δ: a bet that the standardised residuals since the
    last restart are N(0, 1), against residuals that spread more or lie to one side, from whatever time on.

    On a function that stays, a restart comes with probability at most δ from one restart to the next, however long
    that takes, by Ville's inequality. It is a CUSUM whose threshold is a probability.

    Assumes: the function is a draw from the prior, noise is N(0, λ), the exact posterior of all rewards since the
    restart. A λ above the variance of the noise makes alarms rarer and later. A memory and a dictionary are outside
    the proof. So is what a batch rule holds back, but for the end of each batch. Under a prior that is learned, the
    residuals count from its last fit, and none does before the first since a restart.

    Unlike ``ResidualTrigger`` it adds up what single residuals say, so it finds changes below the noise; a large jump
    may take it a few rounds more. Its δ is for residuals that are normal, not for functions of an RKHS.

    Source: ours, after those that ``Surprise`` names, with the restarts of Brunzema et al., TMLR 2025.

    Args:
        false_alarm_probability: δ in (0, 1). A smaller one finds changes later: by ln(1/δ) over what a residual says.

    Raises:
        InputError: if it is out of range.
    """

    false_alarm_probability: float = 0.01

    def __post_init__(self) -> None:
        checks.keep(self, false_alarm_probability=checks.open_unit_interval)

    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether the martingale is at least 1/δ once these rewards (q,) are in it. Cost: O(q)."""
        residuals = standardized(Y, before.mean, before.variance, before.noise)
        after, _ = before.known.judged.misfit.after([Group(residuals, 0, True)])
        return after.log_evidence >= -math.log(self.false_alarm_probability)
