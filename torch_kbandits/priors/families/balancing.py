"""Regret balancing: hypotheses play so that their optimistic regret bounds stay equal."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.priors.families.base import FamilyRule, Trials, checked_rule, noise_scales, shares


@dataclass(frozen=True)
class Balancing(FamilyRule):
    """Play the hypothesis of the smallest optimistic regret bound by its own rule, and reject what cannot keep it.

        u_t = argmin_u R_u(n_u + 1),  R_u(n) = 2 β_u √(c_u I_u n),  c_u = 2κ_u² / ln(1 + κ_u² / λ_u)

    where I_u is the information gain of what was learned. The bound is that of GP-UCB were u true. Hypothesis u is
    rejected, for good, once even its optimistic mean is below what another has earned:

        (Σ_{S_u} y + Σ_{S_u} β σ_u) / n_u + √(ξ_t / n_u) < max_v (Σ_{S_v} y) / n_v − √(ξ_t / n_v)

    with ξ_t = 2R² ln(K π² t² / 6δ). The v of the maximum is never rejected, so one hypothesis always stays. The leader
    is the one that plays next.

    Source: Ziomek, Adachi and Osborne, "Bayesian optimisation with unknown hyperparameters: regret bounds
    logarithmically closer to optimal", NeurIPS 2024, LB-GP-UCB. Differs: hypotheses are any, not length scales alone,
    so the information gain in R_u is the realised one in place of a rate in the length scale; those that have not
    played take no part in the comparison, where the authors' code waits for all; of equal bounds the first plays. All
    hypotheses learn from all rewards, as there. The bounds hold for a mean reward that stays, so with a memory, and
    with contexts, in which the rounds of two hypotheses differ in what could be earned, there is no theorem.

    Args:
        failure_probability: δ in (0, 1).
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ.
        num_starting: how many hypotheses, the first, take part from the beginning; None for all.
        shrinkage: p >= 0: with ``num_starting`` hypothesis number i, counted from 0, joins once t^p >= e^(i step).
        step: by which the logarithm of the shrinking scale changes from one hypothesis to the next: 1/d for length
            scales θ e^(−i/d).
    """

    failure_probability: float = 0.1
    noise_scale: float | None = None
    num_starting: int | None = None
    shrinkage: float = 0.25
    step: float = 1.0

    def __post_init__(self) -> None:
        checked_rule(self)
        checks.keep(
            self,
            num_starting=checks.optional(checks.positive_integer),
            shrinkage=checks.non_negative,
            step=checks.positive,
        )

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which hypotheses can have kept their bounds, (K,) bool."""
        upper, lower = self.bounds(trials, noise)
        return trials.active & ~(upper < torch.where(trials.active, lower, -torch.inf).max())

    def bounds(self, trials: Trials, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return between what the best mean reward lies were a hypothesis true, each (K,); ±∞ where it never played."""
        radius = trials.confidence(self.failure_probability, noise_scales(self.noise_scale, noise))
        n, played = trials.plays.clamp_min(1.0), trials.plays > 0
        upper = (trials.rewards + trials.widths) / n + (radius / n).sqrt()
        lower = trials.rewards / n - (radius / n).sqrt()
        return torch.where(played, upper, torch.inf), torch.where(played, lower, -torch.inf)

    def weights(self, trials: Trials) -> Tensor:
        """Return the same weight for all that take part, (K,)."""
        return shares(self.playing(trials))

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis of the smallest bound after one more round."""
        bounds = trials.rates * (trials.plays + 1.0).sqrt()
        return int(torch.where(self.playing(trials), bounds, torch.inf).argmin())

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return the leader alone."""
        return (self.leader(trials),)

    def playing(self, trials: Trials) -> Tensor:
        """Return which hypotheses take part and are not rejected, (K,) bool; if that leaves none, the next that may."""
        number = len(trials.plays)
        if self.num_starting is None:
            return trials.active
        joined = self.shrinkage * math.log(max(1, trials.number)) >= self.step * torch.arange(
            number, dtype=torch.float64
        )
        playing = trials.active & (joined | (torch.arange(number) < self.num_starting))
        return playing if bool(playing.any()) else trials.active & (trials.active.cumsum(0) == 1)
