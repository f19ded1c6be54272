"""BKB's width."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    accurate_dictionary,
    bounded_noise,
    bounded_norm,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
    whole_residual,
)


@dataclass(frozen=True)
class BKBWidth(TheoremWidth):
    """The width of BKB's theorem.

        β_t = (2R/√λ) √(α ℓ_t Σ_s τ̃_t(x_s) + ln(1/δ)) + (1 + 1/√(1−ε)) B

    with α = (1 + ε)/(1 − ε) and ℓ_t = max(ln(κ²t), ½(1 + ln(κ²t/λ + 1))).

    It is the multiplier of σ̃ itself: our value b corresponds to ``UpperConfidenceBound(beta=b²)`` of BoTorch.

    Source: Calandriello et al., COLT 2019, Theorem 2, divided by √λ because our σ̃ is √λ times theirs. Differs: the
    paper's ℓ_t is ln(κ²t), which is negative for small t. Its proof bounds log det(I + K/λ) by Σ τ̃ times
    1 + ln(‖K‖/λ + 1), its Eq. (6), then drops λ and simplifies to 2 ln(κ²t). That is smaller until t reaches about
    e/(κ²λ); until then we keep Eq. (6), so that the bound holds for every t and λ.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, a DTC posterior whose dictionary is ε-accurate; any λ > 0.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units (ξ in the paper).
        norm_bound: B > 0, a bound on the RKHS norm of the reward function (F in the paper).
        failure_probability: δ in (0, 1).
        accuracy: ε in (0, 1), the accuracy of the dictionary, as in ``theoretical_oversampling``.
    """

    theorem = "Calandriello et al., COLT 2019, Theorem 2"
    assumes = (
        bounded_norm,
        bounded_noise,
        fixed_prior,
        rewards_at_once,
        accurate_dictionary,
        whole_residual,
        nothing_forgotten,
    )

    noise_scale: float
    norm_bound: float
    failure_probability: float
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
