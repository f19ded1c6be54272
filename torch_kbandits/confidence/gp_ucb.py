"""The widths of GP-UCB and of its relatives for functions drawn from the prior."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.assumptions import (
    EXACT,
    bounded_norm,
    drawn_from_the_prior,
    enough_gain,
    few_arms,
    small_noise,
)
from torch_kbandits.confidence.base import Evidence, InformationGain, TheoremWidth, Width
from torch_kbandits.confidence.gain import RealizedGain
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True)
class GPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem for functions of bounded RKHS norm.

        β_t = √(2B² + 300 γ_{t−1} ln³(t/δ)),  t = ``num_observations`` + 1

    Source: Srinivas et al., ICML 2010, Theorem 3, as restated by Chowdhury & Gopalan, ICML 2017, §3.1. Differs: the
    original has γ_t where the restatement, and we, have γ_{t−1}. That loses nothing, nor does the realised gain: at
    R = √λ a squared multiplier of 2B² + 4 I_{t−1} + 4 ln(1/δ) is enough by the self-normalised bound, and this one is
    above it once I_{t−1} is at least 0.0042, from the first point on if k(x, x) >= 0.01 λ there.

    Assumes: ‖f‖_k <= B, noise of conditional mean 0 bounded by √λ, the exact posterior; all rounds at once.

    Args:
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: what stands for γ_{t−1}.
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 3"
    assumes = (bounded_norm, enough_gain, small_noise, *EXACT)

    norm_bound: float
    failure_probability: float
    gain: InformationGain = field(default_factory=RealizedGain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        log_factor = math.log((evidence.num_observations + 1) / self.failure_probability) ** 3
        return (2.0 * self.norm_bound**2 + 300.0 * log_factor * self.gain(evidence)).sqrt()


@dataclass(frozen=True)
class BayesianGPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem for a function drawn from the prior, on a finite set of arms.

        β_t = √(2 ln(A t² π² / (6δ))),  t = ``num_observations`` + 1

    A union bound over arms and rounds; Σ 6/(π²t²) = 1.

    Source: Srinivas et al., ICML 2010, Theorem 1 and Lemma 5.1.

    Assumes: f is a draw from the model's prior, which may be on space and time, noise independent N(0, λ), the exact
    posterior, at most A arms fixed before the run, and an observation that counts in every round.

    Args:
        num_arms: A >= 1.
        failure_probability: δ in (0, 1).
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 1"
    assumes = (drawn_from_the_prior, few_arms, *EXACT)

    num_arms: int
    failure_probability: float

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: O(1)."""
        share = ((evidence.num_observations + 1) * math.pi) ** 2 / (6.0 * self.failure_probability)
        return evidence.regularization.new_tensor(math.sqrt(2.0 * math.log(self.num_arms * share)))


@dataclass(frozen=True)
class RandomizedWidth(TheoremWidth):
    """The random width of IRGP-UCB: its law does not change from round to round, so it never over-explores late.

        β_t = √ζ_t,  ζ_t = 2 ln(A/2) + Z_t,  Z_t ~ Exp(rate ½), a fresh draw in each round

    Its property is E[max_x f(x) | D] <= E_ζ[max_x μ(x) + √ζ σ(x)] for every data set D, from which the Bayesian regret
    bound follows; no band holds with a stated probability. Proof: by P(N > c) <= ½ exp(−c²/2) and a union bound, the
    1 − u quantile of max f given D is at most max_x μ(x) + √(2 ln(A/(2u))) σ(x); average over u uniform in (0, 1),
    where −2 ln u ~ Exp(rate ½).

    Source: Takeno, Inatsu & Karasuyama, "Randomized Gaussian process upper confidence bound with tighter Bayesian
    regret bounds", ICML 2023. The constants are those of the proof above.

    Assumes: f is a draw from the model's prior, noise independent N(0, λ), the exact posterior, at most A arms.

    Args:
        num_arms: A >= 2.
        seed: addresses the draws by (seed, number of observations), so that asking twice changes nothing. Where
            observations stop counting, as in a sliding window, the number and with it the draw would stay the same.
    """

    theorem = "Takeno, Inatsu and Karasuyama, ICML 2023, of Bayesian regret"
    assumes = (drawn_from_the_prior, few_arms, *EXACT)

    num_arms: int
    seed: int

    def __post_init__(self) -> None:
        checks.keep(self, num_arms=checks.positive_integer, seed=checks.whole_number)
        if self.num_arms < 2:
            raise InputError("num_arms must be at least 2: with one arm there is nothing to explore.")

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: O(1)."""
        generator = generator_for(self.seed, evidence.num_observations, "beta")
        uniform = torch.rand((), generator=generator, dtype=torch.float64, device="cpu")
        squared = 2.0 * math.log(self.num_arms / 2.0) - 2.0 * torch.log1p(-uniform)
        return squared.sqrt().to(evidence.regularization)

    def smallest(self, regularization: float) -> float:
        """Return the width of a draw Z = 0."""
        return math.sqrt(2.0 * math.log(self.num_arms / 2.0))


@dataclass(frozen=True)
class TVGPUCBWidth(Width):
    """The width of TV-GP-UCB's experiments, with no theorem behind it.

        β_t = √(c₁ ln(c₂ t)),  t = ``num_observations`` + 1

    and 0 where c₂ t is at most 1: with c₂ = 0.4 in the first two rounds, which are greedy. A c₂ above 1 has none.

    The theorem for a function drawn from a prior on space and time, such as a kernel on space times
    ``ForgettingKernel``, is on A arms ``BayesianGPUCBWidth``.

    Source: Bogunovic, Scarlett & Cevher, AISTATS 2016, experiments. Differs: the value 0 at small t, where the
    formula has none.

    Args:
        scale: c₁ > 0.
        rate: c₂ > 0.
    """

    scale: float = 0.8
    rate: float = 0.4

    def __post_init__(self) -> None:
        checks.keep(self, scale=checks.positive, rate=checks.positive)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: O(1)."""
        logarithm = math.log(self.rate) + math.log(evidence.num_observations + 1)
        return evidence.regularization.new_tensor(math.sqrt(self.scale * max(logarithm, 0.0)))
