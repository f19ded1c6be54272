"""The self-normalised width under windows, restarts and discounts."""

from dataclasses import dataclass, field

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.gain import InformationGain, RealizedGain, check_gain
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    enough_bounds,
    enough_gain,
    exact_posterior,
    fixed_prior,
    little_change,
    rewards_at_once,
)
from torch_kbandits.confidence.self_normalized import SelfNormalizedWidth


@dataclass(frozen=True)
class MemoryWidth(TheoremWidth):
    """The width of SW-GP-UCB, R-GP-UCB and W-GP-UCB: the self-normalised bound where observations stop counting.

        β_t = B + (R/√λ) √(2 Ī_t + 2 ln(n/δ))

    Ī_t is the information gain of the observations that count, each with the noise variance it counts with, and λ that
    of a fresh one. It is ``SelfNormalizedWidth`` at δ/n. There one bound holds in all rounds, because the observations
    only become more; a set that loses some, or whose weights fall, starts a bound of its own. So n is the number of
    bounds that are to hold at once: the rounds T for a sliding window or for ageing, the ⌈T/H⌉ blocks for a restart
    every H rounds.

    Proof for noise variances λ_s >= λ that follow from the ages alone. Give observation s the weight ω_s = λ/λ_s <= 1,
    and let V = Σ ω_s φ_s φ_sᵀ + λI and W = Σ ω_s² φ_s φ_sᵀ + λI. The noise's part of the error at x is at most
    ‖V⁻¹φ(x)‖_W ‖Σ ω_s φ_s ε_s‖_{W⁻¹}. The bound of ``SelfNormalizedWidth`` holds for the second factor, with the gain
    of noise variances λ_s²/λ, and W <= V, so the first is at most σ(x)/√λ and that gain at most Ī_t.

    What it does not cover is that old rewards are those of another function: the error is at most β_t σ(x) and a term
    that grows with Σ ‖f_{s+1} − f_s‖_k over what is remembered. The paper's bound on that is the same at every x, so it
    would not change which point is chosen; a short memory keeps it small (``window_size``).

    Source: Zhou & Shroff, CISS 2021, Lemma 2 (n = T) and Lemma 1 (n = 1); Deng et al., AISTATS 2022, for weights.
    Differs:

    - Zhou & Shroff's algorithms have IGP-UCB's width: ``IGPUCBWidth`` reads the same evidence. Their proofs have this.
    - Their Lemma 1 has n = 1, one block; the regret bound adds up all blocks, which takes n = ⌈T/H⌉.
    - They start a block at σ₀ = 0. That is a slip: after a restart the variance is the prior's.
    - Deng et al. multiply by the doubly weighted deviation √λ ‖V⁻¹φ(x)‖_W and have the gain of λ_s²/λ. Both are at
      most ours, which need nothing but the posterior.

    Assumes: ‖f_t‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior, a memory that goes by the clock.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of every f_t.
        failure_probability: δ in (0, 1), that any of the n bounds fails.
        num_bounds: n >= 1.
        gain: what stands for Ī_t. Others than the realised one read the number of observations that count:
            γ_{min(t, w)} for a window of w.
    """

    theorem = "Zhou and Shroff, CISS 2021, Lemmas 1 and 2; Deng et al., AISTATS 2022"
    assumes = (
        bounded_norm,
        bounded_noise,
        enough_gain,
        fixed_prior,
        rewards_at_once,
        exact_posterior,
        little_change,
        enough_bounds,
    )

    noise_scale: float
    norm_bound: float
    failure_probability: float
    num_bounds: int = 1
    gain: InformationGain = field(default_factory=RealizedGain)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_gain(self.gain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        return self._width(evidence)

    @property
    def _width(self) -> SelfNormalizedWidth:
        share = self.failure_probability / self.num_bounds
        return SelfNormalizedWidth(self.noise_scale, self.norm_bound, share, self.gain)
