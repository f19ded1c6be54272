"""The self-normalised width."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.gain import InformationGain, RealizedGain, check_gain
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    enough_gain,
    exact_posterior,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
)


@dataclass(frozen=True)
class SelfNormalizedWidth(TheoremWidth):
    """The width of the self-normalised bound in separable Hilbert spaces, with λ exact.

        β_t = B + (R/√λ) √(2 I_t + 2 ln(1/δ))

    At λ = 1 it is IGP-UCB's width without the 1 under the root; K-UCB's and BKB's are bounds on it from above.

    Source: Whitehouse, Ramdas & Wu, "On the sublinear regret of GP-UCB", NeurIPS 2023, with their ρ our λ; the bound on
    the noise is in Abbasi-Yadkori's thesis (2012). Both are divided by √λ because our σ is √λ times theirs.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior; any λ > 0 fixed before the run, any
    kernel, all rounds and points at once.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: what stands for I_t; the realised gain is the sharpest that holds.
    """

    theorem = "Whitehouse, Ramdas and Wu, NeurIPS 2023; Abbasi-Yadkori, 2012"
    assumes = (
        bounded_norm,
        bounded_noise,
        enough_gain,
        fixed_prior,
        rewards_at_once,
        exact_posterior,
        nothing_forgotten,
    )

    noise_scale: float
    norm_bound: float
    failure_probability: float
    gain: InformationGain = field(default_factory=RealizedGain)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gain(self.gain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        gain, regularization = self.gain(evidence), evidence.regularization
        radius = noise_radius(self.noise_scale, self.failure_probability, gain, regularization)
        return self.norm_bound + radius


def noise_radius(
    noise_scale: float | Tensor, failure_probability: float, gain: Tensor, regularization: Tensor
) -> Tensor:
    """Return (R/√λ) √(2 I + 2 ln(1/δ)), 0-dim: what the noise adds to the width.

    With probability 1 − δ it bounds √(εᵀK(K + λI)⁻¹ε / λ) after every number of observations, ε being their noise.
    """
    return noise_scale * (2.0 * (gain - math.log(failure_probability)) / regularization).sqrt()
