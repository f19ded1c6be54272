"""Prior elimination: every hypothesis that is not contradicted offers its best point."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits.priors.families.base import FamilyRule, Trials, checked_rule, noise_scales, shares


@dataclass(frozen=True)
class Elimination(FamilyRule):
    """Play the highest of the scores that the hypotheses give to their best points; drop a hypothesis that is refuted.

    By upper confidence bounds it is PE-GP-UCB, by draws PE-GP-TS. Hypothesis u is dropped, for good, once

        |Σ_{S_u} (y_s − μ_{u,s−1}(x_s))| > √(ξ_t n_u) + Σ_{S_u} β_s σ_{u,s−1}(x_s),  ξ_t = 2R² ln(K π² t² / 6δ)

    The true one is kept in all rounds with probability 1 − δ where its band β σ holds. If the last ones are refuted
    in one round none of the family is true: the one that is refuted by least stays, and goes on alone. The leader is
    the one, of those left, that predicted best.

    Source: Ziomek, Adachi and Osborne, "Time-varying Gaussian process bandits with unknown prior", AISTATS 2025,
    PE-GP-UCB; Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson
    sampling", 2025, PE-GP-TS. Differs: one stays in any case; σ of rewards told together is that of before all of
    them; of equal scores the first hypothesis' is played.

    A hypothesis that explains more than the truth needs, such as too short a length scale, is never refuted, and its
    bounds are the highest: the family explores like the most careful of its members. Give few, near each other.

    Args:
        failure_probability: δ in (0, 1).
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ.
    """

    failure_probability: float = 0.1
    noise_scale: float | None = None

    def __post_init__(self) -> None:
        checked_rule(self)

    def kept(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return which hypotheses are not refuted, (K,) bool."""
        excess = torch.where(trials.active, self.excess(trials, noise), torch.inf)
        kept = trials.active & (excess <= 0.0)
        return kept if bool(kept.any()) else torch.arange(len(kept)) == excess.argmin()

    def excess(self, trials: Trials, noise: Tensor) -> Tensor:
        """Return by how much the residuals of each hypothesis exceed what they may sum to, (K,), in reward units."""
        radius = trials.confidence(self.failure_probability, noise_scales(self.noise_scale, noise))
        return trials.residuals.abs() - (radius * trials.plays).sqrt() - trials.widths

    def weights(self, trials: Trials) -> Tensor:
        """Return the same weight for all that are not dropped, (K,)."""
        return shares(trials.active)

    def leader(self, trials: Trials) -> int:
        """Return the hypothesis, of those left, that predicted best."""
        return trials.likeliest

    def offering(self, trials: Trials, seed: int) -> tuple[int, ...]:
        """Return all that are not dropped."""
        return tuple(trials.active.nonzero().flatten().tolist())
