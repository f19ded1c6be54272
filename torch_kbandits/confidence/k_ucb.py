"""K-UCB's width."""

import math
from dataclasses import dataclass

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    exact_posterior,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
)


@dataclass(frozen=True)
class KUCBWidth(TheoremWidth):
    """The width of K-UCB's lemma, with the effective dimension in place of the information gain.

        β_t = B + (R/√λ) √(2 ln(1/δ) + ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 3.1, divided by √λ because our σ is √λ times theirs. Differs: noise of
    scale R rather than 1, and δ is the probability that any round fails, where the lemma has one δ for each round:
    2 I_t <= ln(e + e t κ²/λ) d_eff, so it is at least ``SelfNormalizedWidth``, which holds in all rounds at once.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior; any λ > 0 fixed before the run.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 3.1"
    assumes = (bounded_norm, bounded_noise, fixed_prior, rewards_at_once, exact_posterior, nothing_forgotten)

    noise_scale: float
    norm_bound: float
    failure_probability: float

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the effective dimension."""
        scaled_time = evidence.kernel_bound() * evidence.num_observations / evidence.regularization
        complexity = (1.0 + scaled_time.log1p()) * evidence.effective_dimension()
        log_confidence = -2.0 * math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * ((complexity + log_confidence) / evidence.regularization).sqrt()
