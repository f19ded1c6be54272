"""The widths of IGP-UCB and of GP-TS."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from torch_kbandits.confidence.assumptions import EXACT, SUBGAUSSIAN, enough_gain, large_regularization
from torch_kbandits.confidence.base import Evidence, InformationGain, SubGaussian, TheoremWidth
from torch_kbandits.confidence.gain import RealizedGain


@dataclass(frozen=True)
class IGPUCBWidth(SubGaussian, TheoremWidth):
    """The width of IGP-UCB's theorem.

        β_t = B + R √(2 (γ_{t−1} + 1 + ln(1/δ)))

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 1 and Theorem 2. The proof holds for the realised gain.

    Assumes: ‖f‖_k <= B, k(x, x) <= 1, noise conditionally R-sub-Gaussian, the exact posterior with λ = 1 + 2/T for at
    most T rounds. As it is at least ``SelfNormalizedWidth`` for λ >= 1, any such λ, any kernel and any number of rounds
    will do. The paper's experiments take λ = R², below 1: there it can fail, and ``SelfNormalizedWidth`` holds.

    Args:
        noise_scale, norm_bound, failure_probability: R, B and δ, see ``TheoremWidth``.
        gain: what stands for γ_{t−1}.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 2"
    assumes = (*SUBGAUSSIAN, enough_gain, large_regularization, *EXACT)

    gain: InformationGain = field(default_factory=RealizedGain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        exponent = self.gain(evidence) + 1.0 - math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * exponent).sqrt()


@dataclass(frozen=True)
class GPTSWidth(SubGaussian, TheoremWidth):
    """The factor on the posterior standard deviation from which GP-TS draws: N(μ, v_t² cov).

        v_t = B + R √(2 (γ_{t−1} + 1 + ln(2/δ)))

    It is IGP-UCB's width at δ/2, so f lies within v_t σ of the mean with probability 1 − δ/2, where δ is that of the
    regret bound. Assumptions and arguments are those of ``IGPUCBWidth``.

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 2 and Lemma 6.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 4"
    assumes = (*SUBGAUSSIAN, enough_gain, large_regularization, *EXACT)

    gain: InformationGain = field(default_factory=RealizedGain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return v_t. Cost: that of the gain."""
        return IGPUCBWidth(self.noise_scale, self.norm_bound, self.failure_probability / 2.0, self.gain)(evidence)
