"""IRGP-UCB's random width."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    drawn_from_the_prior,
    exact_posterior,
    few_arms,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
)
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True)
class RandomizedWidth(TheoremWidth):
    """The random width of IRGP-UCB: its law does not change from round to round, so it never over-explores late.

        β_t = √ζ_t,  ζ_t = 2 ln(A/2) + Z_t,  Z_t ~ Exp(rate ½), a fresh draw in each round

    Its property is E[max_x f(x) | D] <= E_ζ[max_x μ(x) + √ζ σ(x)] for every data set D, from which the Bayesian regret
    bound follows; no band holds with a stated probability. Proof: by P(N > c) <= ½ exp(−c²/2) and a union bound, the
    1 − u quantile of max f given D is at most max_x μ(x) + √(2 ln(A/(2u))) σ(x); average over u uniform in (0, 1),
    where −2 ln u ~ Exp(rate ½).

    Our value b corresponds to ``UpperConfidenceBound(beta=b²)`` of BoTorch: ζ_t is the paper's own.

    Source: Takeno, Inatsu & Karasuyama, "Randomized Gaussian process upper confidence bound with tighter Bayesian
    regret bounds", ICML 2023. The constants are those of the proof above.

    Assumes: f is a draw from the model's prior, noise independent N(0, λ), the exact posterior, at most A arms.

    Args:
        num_arms: A >= 2.
        seed: addresses the draws by (seed, number of observations), so that asking twice changes nothing. Where
            observations stop counting, as in a sliding window, the number and with it the draw would stay the same.
    """

    theorem = "Takeno, Inatsu and Karasuyama, ICML 2023, of Bayesian regret"
    assumes = (drawn_from_the_prior, fixed_prior, rewards_at_once, few_arms, exact_posterior, nothing_forgotten)

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
