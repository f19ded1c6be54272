"""The self-normalised width of a Nyström–DTC posterior, whatever its dictionary."""

from dataclasses import dataclass

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.gain import NystromGain
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
    whole_residual,
)
from torch_kbandits.confidence.self_normalized import noise_radius


@dataclass(frozen=True)
class NystromWidth(TheoremWidth):
    """The width that holds for a Nyström–DTC posterior at any dictionary, by what the dictionary leaves out.

        β_t = (1 + √ρ_t) B + (R/√λ) √(2 Ĩ_t + ρ_t + 2 ln(1/δ))

    ρ_t = Tr(K_t − K̃_t)/λ is what the dictionary does not span of the points played, and Ĩ_t + ρ_t/2 the gain of
    ``NystromGain``. Both are read off the posterior, so nothing is assumed of the dictionary: oversampling, resampling
    and caps are free, and it may have been chosen in the light of the rewards. With all points in it the width is
    ``SelfNormalizedWidth``.

    Proof, with P the projection on the dictionary's span, F = Σ_s φ_s φ_sᵀ and A = PFP + λI. The error at x is φ(x)ᵀA⁻¹
    applied to PΦᵀε, to PF(I − P)f and to −λf. First, ‖φ(x)‖ in the norm of A⁻¹ is σ̃(x)/√λ. Then, the noise's part
    squared is εᵀK̃(K̃ + λI)⁻¹ε <= εᵀK(K + λI)⁻¹ε, as K̃ <= K; the self-normalised bound holds for the latter in all
    rounds at once (``SelfNormalizedWidth``), with 2 I_t <= 2 Ĩ_t + ρ_t. Of the others the first is at most the norm of
    Φ(I − P)f, whose square is at most ‖K − K̃‖ B² <= λ ρ_t B²; the second is at most √λ B.

    Source: ours, by the steps of Calandriello et al., COLT 2019, Theorem 2, and Zenati et al., AISTATS 2022, Lemma 4.1.
    ``BKBWidth`` and ``EKUCBWidth`` bound both ρ_t, by what a dictionary promises, and the log-determinant, by the
    effective dimension times a logarithm.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian; any λ > 0 fixed before the run, all rounds and points at
    once, in double precision; DTC variances, so under a cap ``CappedDictionary(..., learns_residual=False)``.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
    """

    theorem = "ours, by the steps of Calandriello et al., COLT 2019, Theorem 2"
    assumes = (bounded_norm, bounded_noise, fixed_prior, rewards_at_once, whole_residual, nothing_forgotten)

    noise_scale: float
    norm_bound: float
    failure_probability: float

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the information gain and of the projection error."""
        bias = (1.0 + evidence.projection_error().sqrt()) * self.norm_bound
        gain, regularization = NystromGain()(evidence), evidence.regularization
        return bias + noise_radius(self.noise_scale, self.failure_probability, gain, regularization)
