"""GP-UCB's width for functions of bounded norm."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.gain import InformationGain, RealizedGain, check_gain
from torch_kbandits.confidence.guarantee import (
    bounded_norm,
    enough_gain,
    exact_posterior,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
    small_noise,
)


@dataclass(frozen=True)
class GPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem for functions of bounded RKHS norm.

        β_t = √(2B² + 300 γ_{t−1} ln³(t/δ)),  t = ``num_observations`` + 1

    Our value b corresponds to ``UpperConfidenceBound(beta=b²)`` of BoTorch, which is the paper's own β_t.

    Source: Srinivas et al., ICML 2010, Theorem 3, as restated by Chowdhury & Gopalan, ICML 2017, §3.1. Differs: the
    original has γ_t where the restatement, and we, have γ_{t−1}. That loses nothing: by the self-normalised bound at
    R = √λ a squared multiplier of 2B² + 4 I_{t−1} + 4 ln(1/δ) is enough, and this one is above it once I_{t−1} is at
    least 0.0042, that is from the first point on if k(x, x) >= 0.01 λ there. So the realised gain will do, too.

    Assumes: ‖f‖_k <= B, noise of conditional mean 0 bounded by √λ, the exact posterior; all rounds at once.

    Args:
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: what stands for γ_{t−1}.
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 3"
    assumes = (bounded_norm, enough_gain, fixed_prior, rewards_at_once, small_noise, exact_posterior, nothing_forgotten)

    norm_bound: float
    failure_probability: float
    gain: InformationGain = field(default_factory=RealizedGain)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gain(self.gain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        log_factor = math.log((evidence.num_observations + 1) / self.failure_probability) ** 3
        return (2.0 * self.norm_bound**2 + 300.0 * log_factor * self.gain(evidence)).sqrt()
