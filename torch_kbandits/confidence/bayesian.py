"""The widths for functions drawn from the prior: of GP-UCB, IRGP-UCB and TV-GP-UCB."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, TheoremWidth, Width
from torch_kbandits.confidence.guarantee import EXACT, drawn_from_the_prior, few_arms
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True)
class BayesianGPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem for a function drawn from the prior, which may be on space and time, on A arms.

        β_t = √(2 ln(A t² π² / (6δ))),  t = ``num_observations`` + 1

    Source: Srinivas et al., ICML 2010, Theorem 1 and Lemma 5.1.
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 1"
    assumes = (drawn_from_the_prior, few_arms, *EXACT)

    num_arms: int
    failure_probability: float

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        share = ((evidence.num_observations + 1) * math.pi) ** 2 / (6.0 * self.failure_probability)
        return evidence.regularization.new_tensor(math.sqrt(2.0 * math.log(self.num_arms * share)))


@dataclass(frozen=True)
class RandomizedWidth(TheoremWidth):
    """The random width of IRGP-UCB: its law does not change from round to round, so it never over-explores late.

        β_t = √ζ_t,  ζ_t = 2 ln(A/2) + Z_t,  Z_t ~ Exp(rate ½), a fresh draw in each round

    The Bayesian regret is bounded for a function drawn from the prior; no band holds with a stated probability.

    Source: Takeno, Inatsu & Karasuyama, ICML 2023; the constants by the proof on the page of proofs.

    Draws are addressed by (seed, number of observations), so that asking twice changes nothing. Where observations stop
    counting, as in a sliding window, the number and with it the draw would stay the same.
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
        """Return β_t."""
        generator = generator_for(self.seed, evidence.num_observations, "beta")
        uniform = torch.rand((), generator=generator, dtype=torch.float64, device="cpu")
        squared = 2.0 * math.log(self.num_arms / 2.0) - 2.0 * torch.log1p(-uniform)
        return squared.sqrt().to(evidence.regularization)

    def smallest(self, regularization: float) -> float:
        """Return the width of a draw Z = 0."""
        return math.sqrt(2.0 * math.log(self.num_arms / 2.0))


@dataclass(frozen=True)
class TVGPUCBWidth(Width):
    """The width of TV-GP-UCB's experiments, with no theorem behind it; that on A arms is ``BayesianGPUCBWidth``.

        β_t = √(c₁ ln(c₂ t)),  t = ``num_observations`` + 1

    Source: Bogunovic, Scarlett & Cevher, AISTATS 2016, experiments. Differs: it is 0 where c₂ t is at most 1, and the
    formula has no value: with c₂ = 0.4 in the first two rounds, which are greedy.

    """

    scale: float = 0.8  #: c₁ > 0.
    rate: float = 0.4  #: c₂ > 0.

    def __post_init__(self) -> None:
        checks.keep(self, scale=checks.positive, rate=checks.positive)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t."""
        logarithm = math.log(self.rate) + math.log(evidence.num_observations + 1)
        return evidence.regularization.new_tensor(math.sqrt(self.scale * max(logarithm, 0.0)))
