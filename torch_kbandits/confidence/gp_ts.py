"""GP-TS's width."""

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
from torch_kbandits.confidence.igp_ucb import IGPUCBWidth


@dataclass(frozen=True)
class GPTSWidth(TheoremWidth):
    """The factor on the posterior standard deviation from which GP-TS draws: N(μ, v_t² cov).

        v_t = B + R √(2 (γ_{t−1} + 1 + ln(2/δ)))

    It is IGP-UCB's width at δ/2, so f lies within v_t σ of the mean with probability 1 − δ/2.

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 2 and Lemma 6.

    Assumes: as ``IGPUCBWidth``.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1), of the regret bound.
        gain: what stands for γ_{t−1}.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 4"
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
        """Return v_t. Cost: that of the gain."""
        return self._width(evidence)

    @property
    def _width(self) -> IGPUCBWidth:
        return IGPUCBWidth(self.noise_scale, self.norm_bound, self.failure_probability / 2.0, self.gain)
