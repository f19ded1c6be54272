"""The widths of K-UCB, and of Nyström–DTC posteriors: EK-UCB's, BKB's, and one for any dictionary."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits.confidence.assumptions import EXACT, SKETCHED, SUBGAUSSIAN, accurate_dictionary, small_projection
from torch_kbandits.confidence.base import Evidence, SubGaussian, TheoremWidth
from torch_kbandits.confidence.gain import NystromGain
from torch_kbandits.confidence.self_normalized import noise_radius


@dataclass(frozen=True)
class KUCBWidth(SubGaussian, TheoremWidth):
    """The width of K-UCB's lemma, with the effective dimension in place of the information gain.

        β_t = B + (R/√λ) √(2 ln(1/δ) + ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 3.1, divided by √λ because our σ is √λ times theirs. Differs: noise of
    scale R rather than 1, and δ is the probability that any round fails, where the lemma has one δ for each round:
    2 I_t <= ln(e + e t κ²/λ) d_eff, so it is at least ``SelfNormalizedWidth``, which holds in all rounds at once.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior; any λ > 0 fixed before the run.
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 3.1"
    assumes = (*SUBGAUSSIAN, *EXACT)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the effective dimension."""
        complexity = _complexity(evidence)
        log_confidence = -2.0 * math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * ((complexity + log_confidence) / evidence.regularization).sqrt()


@dataclass(frozen=True)
class EKUCBWidth(SubGaussian, TheoremWidth):
    """The width of EK-UCB's lemma, for a Nyström–DTC posterior.

        β_t = (1 + √(μ/λ)) B + (R/√λ) √(4 ln(1/δ) + 2 ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 4.1, divided by √λ because our σ̃ is √λ times theirs. Differs:

    - Noise of scale R rather than 1.
    - μ is what the dictionary promises, where the lemma has the error of its projection, ‖(I − P) F^½‖².
    - d_eff is Σ_s τ̃(x_s) of the DTC posterior, where the lemma has that of the exact one. It may be less: the
      projection error bounds it below by d_eff / (2 (1 + μ/λ)).
    - δ is the probability that any round fails, where the lemma has one δ for each: the noise that the projection
      leaves is at most R √(2 I_t + 2 ln(1/δ)) in all rounds at once, and the root above at least √2 times that at the
      exact d_eff.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, a dictionary with ‖(I − P) F^½‖² <= μ, as that of ``KORS``
    at its theorem's oversampling; any λ > 0 fixed before the run.

    Args:
        noise_scale, norm_bound, failure_probability: R, B and δ, see ``TheoremWidth``.
        projection: μ > 0, in reward units squared; None for λ, as for ``KORS``.
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 4.1"
    assumes = (*SUBGAUSSIAN, small_projection, *SKETCHED)

    projection: float | None = None

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the effective dimension."""
        complexity = _complexity(evidence)
        log_confidence = -4.0 * math.log(self.failure_probability)
        regularization = evidence.regularization
        projection = regularization if self.projection is None else self.projection
        bias = (1.0 + (projection / regularization).sqrt()) * self.norm_bound
        return bias + self.noise_scale * ((2.0 * complexity + log_confidence) / regularization).sqrt()


def _complexity(evidence: Evidence) -> Tensor:
    """Return ln(e + e t κ²/λ) d_eff, 0-dim."""
    scaled_time = evidence.kernel_bound() * evidence.num_observations / evidence.regularization
    return (1.0 + scaled_time.log1p()) * evidence.effective_dimension()


@dataclass(frozen=True)
class BKBWidth(SubGaussian, TheoremWidth):
    """The width of BKB's theorem.

        β_t = (2R/√λ) √(α ℓ_t Σ_s τ̃_t(x_s) + ln(1/δ)) + (1 + 1/√(1−ε)) B

    with α = (1 + ε)/(1 − ε) and ℓ_t = max(ln(κ²t), ½(1 + ln(κ²t/λ + 1))).

    Source: Calandriello et al., COLT 2019, Theorem 2, divided by √λ because our σ̃ is √λ times theirs. Differs: the
    paper's ℓ_t is ln(κ²t), which is negative for small t. Its proof bounds log det(I + K/λ) by Σ τ̃ times
    1 + ln(‖K‖/λ + 1), its Eq. (6), then drops λ and simplifies to 2 ln(κ²t). That is smaller until t reaches about
    e/(κ²λ); until then we keep Eq. (6), so that the bound holds for every t and λ.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, a DTC posterior whose dictionary is ε-accurate; any λ > 0.

    Args:
        noise_scale, norm_bound, failure_probability: R, B and δ, see ``TheoremWidth``; the paper's ξ, F and δ.
        accuracy: ε in (0, 1), the accuracy of the dictionary, as in ``theoretical_oversampling``.
    """

    theorem = "Calandriello et al., COLT 2019, Theorem 2"
    assumes = (*SUBGAUSSIAN, accurate_dictionary, *SKETCHED)

    accuracy: float = 0.5

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the effective dimension."""
        alpha = (1.0 + self.accuracy) / (1.0 - self.accuracy)
        scaled_time = evidence.kernel_bound() * evidence.num_observations
        log_factor = torch.maximum(scaled_time.log(), 0.5 * (1.0 + (scaled_time / evidence.regularization).log1p()))
        complexity = alpha * log_factor * evidence.effective_dimension()
        log_confidence = -math.log(self.failure_probability)
        estimation = 2.0 * self.noise_scale * ((complexity + log_confidence) / evidence.regularization).sqrt()
        return estimation + (1.0 + (1.0 - self.accuracy) ** -0.5) * self.norm_bound


@dataclass(frozen=True)
class NystromWidth(SubGaussian, TheoremWidth):
    """The width that holds for a Nyström–DTC posterior at any dictionary, by what the dictionary leaves out.

        β_t = (1 + √ρ_t) B + (R/√λ) √(2 Ĩ_t + ρ_t + 2 ln(1/δ))

    ρ_t = Tr(K_t − K̃_t)/λ is what the dictionary does not span of the points played, and Ĩ_t + ρ_t/2 the gain of
    ``NystromGain``. Both are read off the posterior, so nothing is assumed of the dictionary, which may have been
    chosen in the light of the rewards. With all points in it the width is ``SelfNormalizedWidth``.

    Proof, with P the projection on the dictionary's span, F = Σ_s φ_s φ_sᵀ and A = PFP + λI. The error at x is φ(x)ᵀA⁻¹
    applied to PΦᵀε, to PF(I − P)f and to −λf. First, ‖φ(x)‖ in the norm of A⁻¹ is σ̃(x)/√λ. Then, the noise's part
    squared is εᵀK̃(K̃ + λI)⁻¹ε <= εᵀK(K + λI)⁻¹ε, as K̃ <= K; the self-normalised bound holds for the latter in all
    rounds at once (``SelfNormalizedWidth``), with 2 I_t <= 2 Ĩ_t + ρ_t. Of the others the first is at most the norm of
    Φ(I − P)f, whose square is at most ‖K − K̃‖ B² <= λ ρ_t B²; the second is at most √λ B.

    Source: ours, by the steps of Calandriello et al., COLT 2019, Theorem 2, and Zenati et al., AISTATS 2022, Lemma 4.1,
    which bound ρ_t by what a dictionary promises, and the log-determinant by the effective dimension and a logarithm.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian; any λ > 0 fixed before the run, all rounds and points at
    once, in double precision; DTC variances, so under a cap ``CappedDictionary(..., learns_residual=False)``.
    """

    theorem = "ours, by the steps of Calandriello et al., COLT 2019, Theorem 2"
    assumes = (*SUBGAUSSIAN, *SKETCHED)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the information gain and of the projection error."""
        bias = (1.0 + evidence.projection_error().sqrt()) * self.norm_bound
        gain, regularization = NystromGain()(evidence), evidence.regularization
        return bias + noise_radius(self.noise_scale, self.failure_probability, gain, regularization)
