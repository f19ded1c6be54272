"""The self-normalised width, what it becomes where observations stop counting, and the one for an unknown norm."""

import math
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, cast

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.assumptions import (
    CHANGING,
    EXACT,
    SUBGAUSSIAN,
    bounded_norm,
    enough_gain,
    exact_posterior,
    points_chosen_apart,
)
from torch_kbandits.confidence.base import Evidence, InformationGain, SubGaussian, TheoremWidth
from torch_kbandits.confidence.gain import RealizedGain
from torch_kbandits.confidence.guarantee import Assumption, Circumstances, said
from torch_kbandits.errors import InputError


@dataclass(frozen=True)
class SelfNormalizedWidth(SubGaussian, TheoremWidth):
    """The width of the self-normalised bound in separable Hilbert spaces, with λ exact.

        β_t = B + (R/√λ) √(2 I_t + 2 ln(1/δ))

    At λ = 1 it is IGP-UCB's width without the 1 under the root; K-UCB's and BKB's are bounds on it from above.

    Source: Whitehouse, Ramdas & Wu, "On the sublinear regret of GP-UCB", NeurIPS 2023, with their ρ our λ; the bound on
    the noise is in Abbasi-Yadkori's thesis (2012). Both are divided by √λ because our σ is √λ times theirs.

    Assumes: ‖f‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior; any λ > 0 fixed before the run, any
    kernel, all rounds and points at once.

    Args:
        noise_scale, norm_bound, failure_probability: R, B and δ, see ``TheoremWidth``.
        gain: what stands for I_t; the realised gain is the sharpest that holds.
    """

    theorem = "Whitehouse, Ramdas and Wu, NeurIPS 2023; Abbasi-Yadkori, 2012"
    assumes = (*SUBGAUSSIAN, enough_gain, *EXACT)

    gain: InformationGain = field(default_factory=RealizedGain)

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


@dataclass(frozen=True)
class MemoryWidth(SubGaussian, TheoremWidth):
    """The width of SW-GP-UCB, R-GP-UCB and W-GP-UCB: the self-normalised bound where observations stop counting.

        β_t = B + (R/√λ) √(2 Ī_t + 2 ln(n/δ))

    Ī_t is the information gain of the observations that count, each with the noise variance it counts with, and λ that
    of a fresh one. It is ``SelfNormalizedWidth`` at δ/n. One bound holds while observations only become more; a set
    that loses some, or whose weights fall, starts another. So n is the number of bounds that are to hold at once: the
    rounds T for a sliding window or for ageing, the ⌈T/H⌉ blocks for a restart every H rounds.

    Proof for noise variances λ_s >= λ that follow from the ages alone. Give observation s the weight ω_s = λ/λ_s <= 1,
    and let V = Σ ω_s φ_s φ_sᵀ + λI and W = Σ ω_s² φ_s φ_sᵀ + λI. The noise's part of the error at x is at most
    ‖V⁻¹φ(x)‖_W ‖Σ ω_s φ_s ε_s‖_{W⁻¹}. The bound of ``SelfNormalizedWidth`` holds for the second factor, with the gain
    of noise variances λ_s²/λ, and W <= V, so the first is at most σ(x)/√λ and that gain at most Ī_t.

    Not covered is that old rewards are those of another function: a further term of the error grows with
    Σ ‖f_{s+1} − f_s‖_k over what is remembered. The paper's bound on it is the same at every x, so it would not change
    which point is chosen; a short memory keeps it small (``window_size``).

    Source: Zhou & Shroff, CISS 2021, Lemma 2 (n = T) and Lemma 1 (n = 1); Deng et al., AISTATS 2022, for weights.
    Differs:

    - Zhou & Shroff's algorithms have IGP-UCB's width, their proofs this. Their Lemma 1 is for one block; the regret
      bound adds up all, which takes n = ⌈T/H⌉. They start a block at σ₀ = 0, a slip: the variance is the prior's.
    - Deng et al. multiply by the doubly weighted deviation √λ ‖V⁻¹φ(x)‖_W and have the gain of λ_s²/λ. Both are at
      most ours, which need nothing but the posterior.

    Assumes: ‖f_t‖_k <= B, noise conditionally R-sub-Gaussian, the exact posterior, a memory that goes by the clock.

    Args:
        noise_scale, norm_bound, failure_probability: R, B for every f_t, and δ, that any of the n bounds fails.
        num_bounds: n >= 1.
        gain: what stands for Ī_t. Others than the realised one are those of as many observations as count.
    """

    theorem = "Zhou and Shroff, CISS 2021, Lemmas 1 and 2; Deng et al., AISTATS 2022"
    assumes = (*SUBGAUSSIAN, enough_gain, *CHANGING)

    num_bounds: int = 1
    gain: InformationGain = field(default_factory=RealizedGain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        share = self.failure_probability / self.num_bounds
        return SelfNormalizedWidth(self.noise_scale, self.norm_bound, share, self.gain)(evidence)


@dataclass(frozen=True)
class FixedDesignWidth(SubGaussian, TheoremWidth):
    """The width where no point that is conditioned on was chosen in the light of another's reward; a constant.

        β = B + (R/√λ) √(2 ln(2 n/δ))

    It bounds the error at n pairs of a point and a set of observations at once, with no information gain in it. With
    w = (K + λI)⁻¹ k(x) the error of the posterior mean is the noise wᵀε, which is R ‖w‖-sub-Gaussian and
    ‖w‖² = k(x)ᵀ(K + λI)⁻²k(x) <= σ²(x)/λ, and a bias of at most B σ(x), because λV⁻¹ <= I.

    Source: the above, which is the argument of Auer (JMLR 2002) for ridge regression. LinUCB (Li et al., WWW 2010) has
    it with n = 1, λ = B = 1 and R = 1/2, for rewards in [0, 1]: α = 1 + √(ln(2/δ)/2).

    Assumes: ‖f‖_k <= B, noise R-sub-Gaussian and independent given the points of each set, the exact posterior of a
    function that stays: what a dictionary leaves out adds a bias, and a function that changed another.

    Args:
        noise_scale, norm_bound, failure_probability: R, B and δ, see ``TheoremWidth``.
        num_bounds: n >= 1.
    """

    theorem = "Auer, JMLR 2002, for ridge regression; Valko et al., UAI 2013"
    assumes = (*SUBGAUSSIAN, points_chosen_apart, *EXACT)

    num_bounds: int = 1

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β, the same in every round."""
        log_confidence = math.log(2.0 * self.num_bounds / self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * log_confidence / evidence.regularization).sqrt()


def _of_a_guess(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What the wrapped width assumes, with a first guess of at least ‖f − m‖ in place of B, and the exact posterior."""
    others = [each for each in width.width.assumes if each not in (bounded_norm, exact_posterior)]
    guess = said("a first guess >= ‖f − m‖", "unknown", f"given as an assumption, {width.width.norm_bound:g}.")
    of_width = (each for condition in others for each in condition(known, width.width))
    return (*guess, *of_width, *exact_posterior(known, width))


@dataclass(frozen=True)
class GuessAndDouble(TheoremWidth):
    """A theorem's width for an unknown norm bound B: its ``norm_bound`` is a guess, doubled while data contradict it.

    The guess in force is the least G = guess · 2ʲ, j >= 0, with

        ‖μ_t‖_k <= G + ρ_t,  ρ_t = (R/√λ) √(2 I_t + 2 ln(1/δ))

    so with probability 1 − δ no guess of at least B is ever doubled and G <= max(guess, 2B) in all rounds. Proof:
    μ_t = Φᵀ(K + λI)⁻¹Φ f + Φᵀ(K + λI)⁻¹ε, Φ evaluating at the played points. The first map has norm at most 1, so its
    part is at most B. The second part squared is εᵀ(K + λI)⁻¹K(K + λI)⁻¹ε <= εᵀK(K + λI)⁻¹ε / λ <= ρ_t², the last
    step with probability 1 − δ for all t by the self-normalised bound (``SelfNormalizedWidth``).

    If the first guess is at least B, the wrapped width holds as it does with that guess. A guess below B that the data
    do not contradict voids it and nothing tells, all the more as the guess chose the data. G has no state: it may fall
    again. For an approximate posterior the first map may exceed norm 1, and the proof does not hold.

    Source: ours, by the proof above.

    Args:
        width: a theorem's width with a ``norm_bound``, which is the first guess, and a ``failure_probability``. R is
            its ``noise_scale``, or √λ where it has none, as ``GPUCBWidth``, whose theorem bounds the noise by √λ.
    """

    assumes = (_of_a_guess,)

    width: TheoremWidth

    def __post_init__(self) -> None:
        known = is_dataclass(self.width) and isinstance(self.width, TheoremWidth)
        if not (known and hasattr(self.width, "norm_bound") and hasattr(self.width, "failure_probability")):
            raise InputError(
                "width must be a theorem's width with a norm_bound to double, such as SelfNormalizedWidth, "
                f"got {checks.describe(self.width)}. Scale the result: ScaledWidth(GuessAndDouble(...), factor)."
            )
        object.__setattr__(self, "theorem", self.width.theorem)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the wrapped width at the guess in force. Cost: that of the width and of the mean's norm."""
        return replace(cast(Any, self.width), norm_bound=self.guess(evidence))(evidence)

    def guess(self, evidence: Evidence) -> float:
        """Return G, the least guess · 2ʲ that the posterior does not contradict, in reward units."""
        width = cast(Any, self.width)
        noise_scale = getattr(width, "noise_scale", evidence.regularization.sqrt())
        radius = noise_radius(
            noise_scale, width.failure_probability, evidence.information_gain(), evidence.regularization
        )
        least = float(evidence.mean_norm() - radius)
        guess = float(width.norm_bound)
        while guess < least:
            guess *= 2.0
        return guess
