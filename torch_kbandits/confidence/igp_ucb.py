"""IGP-UCB's width."""

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
    large_regularization,
    nothing_forgotten,
    rewards_at_once,
)


@dataclass(frozen=True)
class IGPUCBWidth(TheoremWidth):
    """The width of IGP-UCB's theorem.

        β_t = B + R √(2 (γ_{t−1} + 1 + ln(1/δ)))

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 1 and Theorem 2. The proof holds for the realised gain.

    Assumes: ‖f‖_k <= B, k(x, x) <= 1, noise conditionally R-sub-Gaussian, the exact posterior with λ = 1 + 2/T for at
    most T rounds. As it is at least ``SelfNormalizedWidth`` for λ >= 1, any such λ, any kernel and any number of rounds
    will do. The paper's experiments take λ = R², below 1: there it can fail, and ``SelfNormalizedWidth`` holds.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: what stands for γ_{t−1}.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 2"
    assumes = (
        bounded_norm,
        bounded_noise,
        enough_gain,
        fixed_prior,
        rewards_at_once,
        large_regularization,
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
        exponent = self.gain(evidence) + 1.0 - math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * exponent).sqrt()
