"""EK-UCB's width."""

import math
from dataclasses import dataclass

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
    small_projection,
    whole_residual,
)


@dataclass(frozen=True)
class EKUCBWidth(TheoremWidth):
    """The width of EK-UCB's lemma, for a Nyström–DTC posterior.

        β_t = (1 + √(μ/λ)) B + (R/√λ) √(4 ln(1/δ) + 2 ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 4.1, divided by √λ because our σ̃ is √λ times theirs. Differs:

    - Noise of scale R rather than 1.
    - μ is what the dictionary promises, where the lemma has the error of its projection, ‖(I − P) F^½‖².
    - d_eff is Σ_s τ̃(x_s) of the DTC posterior, where the lemma has that of the exact one. It may be less: the
      projection error bounds it below by d_eff / (2 (1 + μ/λ)).
    - δ is the probability that any round fails, where the lemma has one δ for each round. The noise that the
      projection leaves is at most R √(2 I_t + 2 ln(1/δ)) in all rounds at once, as for ``SelfNormalizedWidth``, and at
      the exact d_eff the root above is at least √2 times that.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, a dictionary with ‖(I − P) F^½‖² <= μ, as that of ``KORS``
    at its theorem's oversampling; any λ > 0 fixed before the run.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        projection: μ > 0, in reward units squared; None for λ, as for ``KORS``.
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 4.1"
    assumes = (
        bounded_norm,
        bounded_noise,
        fixed_prior,
        rewards_at_once,
        small_projection,
        whole_residual,
        nothing_forgotten,
    )

    noise_scale: float
    norm_bound: float
    failure_probability: float
    projection: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.keep(self, projection=checks.optional(checks.positive))

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the effective dimension."""
        scaled_time = evidence.kernel_bound() * evidence.num_observations / evidence.regularization
        complexity = (1.0 + scaled_time.log1p()) * evidence.effective_dimension()
        log_confidence = -4.0 * math.log(self.failure_probability)
        regularization = evidence.regularization
        projection = regularization if self.projection is None else self.projection
        bias = (1.0 + (projection / regularization).sqrt()) * self.norm_bound
        return bias + self.noise_scale * ((2.0 * complexity + log_confidence) / regularization).sqrt()
