"""The widths of theorems on functions of bounded RKHS norm, at exact posteriors and at those of a dictionary."""

import math
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence import guarantee as needs
from torch_kbandits.confidence.base import Evidence, InformationGain, SubGaussian, TheoremWidth
from torch_kbandits.confidence.gain import REALIZED
from torch_kbandits.confidence.guarantee import CHANGING, EXACT, SKETCHED, SUBGAUSSIAN, Assumption, Circumstances
from torch_kbandits.errors import InputError


@dataclass(frozen=True)
class GPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem, for noise bounded by √λ.

        β_t = √(2B² + 300 γ_{t−1} ln³(t/δ)),  t = ``num_observations`` + 1

    Source: Srinivas et al., ICML 2010, Theorem 3, as restated by Chowdhury & Gopalan, ICML 2017, §3.1. Differs: the
    original has γ_t. γ_{t−1} loses nothing, nor does the realised gain: by the self-normalised bound 2B² + 4 I_{t−1} +
    4 ln(1/δ) is enough of a square, and this one is above it once I_{t−1} >= 0.0042.
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 3"
    assumes = (needs.bounded_norm, needs.enough_gain, needs.small_noise, *EXACT)

    norm_bound: float
    failure_probability: float
    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        log_factor = math.log((evidence.num_observations + 1) / self.failure_probability) ** 3
        return (2.0 * self.norm_bound**2 + 300.0 * log_factor * self.gain(evidence)).sqrt()


@dataclass(frozen=True)
class IGPUCBWidth(SubGaussian, TheoremWidth):
    """The width of IGP-UCB's theorem, for λ >= 1.

        β_t = B + R √(2 (γ_{t−1} + 1 + ln(1/δ)))

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 1 and Theorem 2. Differs: they assume k(x, x) <= 1 and λ = 1 + 2/T
    for at most T rounds, which is not needed. Below 1, as in their experiments, take ``SelfNormalizedWidth``.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 2"
    assumes = (*SUBGAUSSIAN, needs.enough_gain, needs.large_regularization, *EXACT)

    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        exponent = self.gain(evidence) + 1.0 - math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * exponent).sqrt()


@dataclass(frozen=True)
class GPTSWidth(SubGaussian, TheoremWidth):
    """The factor on the posterior standard deviation from which GP-TS draws, N(μ, v_t² cov), for λ >= 1.

        v_t = B + R √(2 (γ_{t−1} + 1 + ln(2/δ)))

    It is IGP-UCB's width at δ/2, where δ is that of the regret bound.

    Source: Chowdhury & Gopalan, ICML 2017, Algorithm 2 and Lemma 6.
    """

    theorem = "Chowdhury and Gopalan, ICML 2017, Theorem 4"
    assumes = IGPUCBWidth.assumes

    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return v_t."""
        return IGPUCBWidth(self.noise_scale, self.norm_bound, self.failure_probability / 2.0, self.gain)(evidence)


# ---------------------------------------------------------------- the self-normalised bound


def noise_radius(noise_scale: Any, failure_probability: float, gain: Tensor, regularization: Tensor) -> Tensor:
    """Return (R/√λ) √(2 I + 2 ln(1/δ)), 0-dim: what the noise adds to the width.

    With probability 1 − δ it bounds √(εᵀK(K + λI)⁻¹ε / λ) after every number of observations, ε being their noise.
    """
    return noise_scale * (2.0 * (gain - math.log(failure_probability)) / regularization).sqrt()


@dataclass(frozen=True)
class SelfNormalizedWidth(SubGaussian, TheoremWidth):
    """The width of the self-normalised bound in separable Hilbert spaces, at any λ > 0 fixed before the run.

        β_t = B + (R/√λ) √(2 I_t + 2 ln(1/δ))

    Source: Whitehouse, Ramdas & Wu, "On the sublinear regret of GP-UCB", NeurIPS 2023, with their ρ our λ; the bound on
    the noise is in Abbasi-Yadkori's thesis (2012).
    """

    theorem = "Whitehouse, Ramdas and Wu, NeurIPS 2023; Abbasi-Yadkori, 2012"
    assumes = (*SUBGAUSSIAN, needs.enough_gain, *EXACT)

    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        radius = noise_radius(self.noise_scale, self.failure_probability, self.gain(evidence), evidence.regularization)
        return self.norm_bound + radius


@dataclass(frozen=True)
class MemoryWidth(SubGaussian, TheoremWidth):
    """The width of SW-GP-UCB, R-GP-UCB and W-GP-UCB: the self-normalised bound where observations stop counting.

        β_t = B + (R/√λ) √(2 Ī_t + 2 ln(n/δ))

    Ī_t is the information gain of the observations that count, each with the noise variance it counts with, which must
    follow from its age, and λ that of a fresh one. A set that loses observations, or whose weights fall, starts another
    bound: n is the rounds T for a sliding window or for ageing, the ⌈T/H⌉ blocks for a restart every H rounds. That old
    rewards are those of another function is not covered.

    Source: Zhou & Shroff, CISS 2021, Lemma 2 (n = T) and Lemma 1 (n = 1); Deng et al., AISTATS 2022, for weights; the
    proof is on the page of proofs. Differs: Zhou & Shroff have IGP-UCB's width in the algorithms, n = 1 for all blocks,
    and σ₀ = 0 at the start of one, a slip; Deng et al. a doubly weighted deviation and a gain, both at most ours.
    """

    theorem = "Zhou and Shroff, CISS 2021, Lemmas 1 and 2; Deng et al., AISTATS 2022"
    assumes = (*SUBGAUSSIAN, needs.enough_gain, *CHANGING)

    num_bounds: int = 1
    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        share = self.failure_probability / self.num_bounds
        return SelfNormalizedWidth(self.noise_scale, self.norm_bound, share, self.gain)(evidence)


@dataclass(frozen=True)
class SparQWidth(TheoremWidth):
    """The width of SparQ-GP-UCB's theorem, where the noise of observation s is conditionally √λ_s-sub-Gaussian.

        β_t = B + √(2 ln(2 det(Σ + K)^½ / (δ det(Σ)^½))) = B + √(2 I_t + 2 ln(2/δ))

    over the expert's answers and the recent observations, Σ their noise variances. That the function has moved since is
    not covered.

    Source: Mauduit et al., 2025, Theorem 3.1, by Lemma 7 of Kirschner & Krause, COLT 2018. Differs: as the lemma is for
    observations that only become more, we claim the bound for each round apart; give δ/T for T at once.
    """

    theorem = "Mauduit et al., 2025, Theorem 3.1"
    assumes = (needs.bounded_norm, needs.enough_gain, *CHANGING)

    norm_bound: float
    failure_probability: float
    gain: InformationGain = REALIZED

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        return self.norm_bound + (2.0 * (self.gain(evidence) + math.log(2.0 / self.failure_probability))).sqrt()


@dataclass(frozen=True)
class FixedDesignWidth(SubGaussian, TheoremWidth):
    """The width where no point that is conditioned on was chosen in the light of another's reward; a constant.

        β = B + (R/√λ) √(2 ln(2 n/δ))

    It bounds the error at n pairs of a point and a set of observations at once, with no information gain in it; sets
    that lose observations are others.

    Source: the argument of Auer (JMLR 2002) for ridge regression, see the page of proofs; Vakili et al., NeurIPS 2021,
    Theorem 1, for one side. LinUCB (Li et al., WWW 2010) has it with n = 1, λ = B = 1 and R = 1/2, for rewards in
    [0, 1]: α = 1 + √(ln(2/δ)/2).
    """

    theorem = "Auer, JMLR 2002, for ridge regression; Valko et al., UAI 2013; Vakili et al., NeurIPS 2021"
    assumes = (*SUBGAUSSIAN, needs.points_chosen_apart, *CHANGING)

    num_bounds: int = 1

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β, the same in every round."""
        log_confidence = math.log(2.0 * self.num_bounds / self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * log_confidence / evidence.regularization).sqrt()


def _of_a_guess(known: Circumstances, width: Any) -> tuple[Assumption, ...]:
    """What the wrapped width assumes, with a first guess of at least ‖f − m‖ in place of B, and the exact posterior."""
    others = [each for each in width.width.assumes if each not in (needs.bounded_norm, needs.exact_posterior)]
    sentence = f"given as an assumption, {width.width.norm_bound:g}."
    of_width = (each for condition in others for each in condition(known, width.width))
    return (
        *needs.said("a first guess >= ‖f − m‖", "unknown", sentence),
        *of_width,
        *needs.exact_posterior(known, width),
    )


@dataclass(frozen=True)
class GuessAndDouble(TheoremWidth):
    """A theorem's width for an unknown norm bound B: its ``norm_bound`` is a guess, doubled while data contradict it.

    The guess in force is the least G = guess · 2ʲ, j >= 0, with

        ‖μ_t‖_k <= G + (R/√λ) √(2 I_t + 2 ln(1/δ))

    With probability 1 − δ no guess of at least B is ever doubled, and G <= max(guess, 2B) in all rounds. A guess below
    B that the data do not contradict voids the theorem and nothing tells. G has no state: it may fall again.

    Source: ours, by the proof on the page of proofs. R is the ``noise_scale`` of the width, or √λ where it has none.
    """

    assumes = (_of_a_guess,)

    width: TheoremWidth  #: With a ``norm_bound``, which is the first guess, and a ``failure_probability``.

    def __post_init__(self) -> None:
        known = is_dataclass(self.width) and isinstance(self.width, TheoremWidth)
        if not (known and hasattr(self.width, "norm_bound") and hasattr(self.width, "failure_probability")):
            raise InputError(
                "width must be a theorem's width with a norm_bound to double, such as SelfNormalizedWidth, "
                f"got {checks.describe(self.width)}. Scale the result: ScaledWidth(GuessAndDouble(...), factor)."
            )
        if hasattr(self.width, "mixture"):
            name = type(self.width).__name__
            raise InputError(
                f"{name} bounds the noise together with f, not apart as doubling needs: SelfNormalizedWidth."
            )
        object.__setattr__(self, "theorem", self.width.theorem)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return the wrapped width at the guess in force."""
        return replace(cast(Any, self.width), norm_bound=self.guess(evidence))(evidence)

    def guess(self, evidence: Evidence) -> float:
        """Return G, the least guess · 2ʲ that the posterior does not contradict, in reward units."""
        width, level = cast(Any, self.width), evidence.regularization
        noise_scale = getattr(width, "noise_scale", level.sqrt())
        radius = noise_radius(noise_scale, width.failure_probability, evidence.information_gain(), level)
        least, guess = float(evidence.mean_norm() - radius), float(width.norm_bound)
        while guess < least:
            guess *= 2.0
        return guess


# ---------------------------------------------------------------- by the effective dimension, and at a dictionary


@dataclass(frozen=True)
class KUCBWidth(SubGaussian, TheoremWidth):
    """The width of K-UCB's lemma, with the effective dimension in place of the information gain, at any λ > 0.

        β_t = B + (R/√λ) √(2 ln(1/δ) + ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 3.1. Differs: noise of scale R rather than 1, and one δ for all rounds at
    once: 2 I_t <= ln(e + e t κ²/λ) d_eff, so it is at least ``SelfNormalizedWidth``.
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 3.1"
    assumes = (*SUBGAUSSIAN, *EXACT)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        exponent = _complexity(evidence) - 2.0 * math.log(self.failure_probability)
        return self.norm_bound + self.noise_scale * (exponent / evidence.regularization).sqrt()


@dataclass(frozen=True)
class EKUCBWidth(SubGaussian, TheoremWidth):
    """The width of EK-UCB's lemma, for a DTC posterior whose dictionary has ‖(I − P) F^½‖² <= μ, at any λ > 0.

        β_t = (1 + √(μ/λ)) B + (R/√λ) √(4 ln(1/δ) + 2 ln(e + e t κ²/λ) d_eff),  t = ``num_observations``

    Source: Zenati et al., AISTATS 2022, Lemma 4.1. Differs: noise of scale R rather than 1; μ is what the dictionary
    promises, where the lemma has the error itself; d_eff is Σ_s τ̃(x_s) of the DTC posterior, at least that of the exact
    one, which the lemma has, over 2 (1 + μ/λ); one δ for all rounds at once, by the self-normalised bound.
    """

    theorem = "Zenati et al., AISTATS 2022, Lemma 4.1"
    assumes = (*SUBGAUSSIAN, needs.small_projection, *SKETCHED)

    projection: float | None = None  #: μ > 0, in reward units squared; None for λ, as for ``KORS``.

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        level = evidence.regularization
        projection = level if self.projection is None else self.projection
        exponent = 2.0 * _complexity(evidence) - 4.0 * math.log(self.failure_probability)
        return (1.0 + (projection / level).sqrt()) * self.norm_bound + self.noise_scale * (exponent / level).sqrt()


def _complexity(evidence: Evidence) -> Tensor:
    """Return ln(e + e t κ²/λ) d_eff, 0-dim."""
    scaled_time = evidence.kernel_bound() * evidence.num_observations / evidence.regularization
    return (1.0 + scaled_time.log1p()) * evidence.effective_dimension()


@dataclass(frozen=True)
class BKBWidth(SubGaussian, TheoremWidth):
    """The width of BKB's theorem, for a DTC posterior whose dictionary is ε-accurate, at any λ > 0.

        β_t = (2R/√λ) √(α ℓ_t Σ_s τ̃_t(x_s) + ln(1/δ)) + (1 + 1/√(1−ε)) B

    with α = (1 + ε)/(1 − ε) and ℓ_t = max(ln(κ²t), ½(1 + ln(κ²t/λ + 1))).

    Source: Calandriello et al., COLT 2019, Theorem 2, whose ξ and F are our R and B. Differs: the paper's ℓ_t is
    ln(κ²t), which is negative for small t: until that is the larger we keep its Eq. (6), which holds for every t and λ.
    """

    theorem = "Calandriello et al., COLT 2019, Theorem 2"
    assumes = (*SUBGAUSSIAN, needs.accurate_dictionary, *SKETCHED)

    accuracy: float = 0.5  #: ε in (0, 1), as in ``theoretical_oversampling``.

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        alpha = (1.0 + self.accuracy) / (1.0 - self.accuracy)
        scaled_time = evidence.kernel_bound() * evidence.num_observations
        log_factor = torch.maximum(scaled_time.log(), 0.5 * (1.0 + (scaled_time / evidence.regularization).log1p()))
        exponent = alpha * log_factor * evidence.effective_dimension() - math.log(self.failure_probability)
        bias = (1.0 + (1.0 - self.accuracy) ** -0.5) * self.norm_bound
        return bias + 2.0 * self.noise_scale * (exponent / evidence.regularization).sqrt()


@dataclass(frozen=True)
class NystromWidth(SubGaussian, TheoremWidth):
    """The width that holds for a Nyström–DTC posterior at any dictionary, by what the dictionary leaves out.

        β_t = (1 + √ρ_t) B + (R/√λ) √(2 Ĩ_t + ρ_t + 2 ln(1/δ))

    ρ_t = Tr(K_t − K̃_t)/λ is what the dictionary does not span of the points played, and Ĩ_t + ρ_t/2 at least I_t. Both
    are read off the posterior, so nothing is assumed of the dictionary. It is for any λ > 0 in double precision, and
    DTC variances: under a cap ``CappedDictionary(..., learns_residual=False)``.

    Source: ours, with the proof on the page of proofs, by the steps of Calandriello et al., COLT 2019, Theorem 2, and
    Zenati et al., AISTATS 2022, Lemma 4.1.
    """

    theorem = "ours, by the steps of Calandriello et al., COLT 2019, Theorem 2"
    assumes = (*SUBGAUSSIAN, *SKETCHED)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        error = evidence.projection_error()
        gain = evidence.information_gain() + 0.5 * error
        radius = noise_radius(self.noise_scale, self.failure_probability, gain, evidence.regularization)
        return (1.0 + error.sqrt()) * self.norm_bound + radius
