"""GP-UCB's width for functions drawn from the prior."""

import math
from dataclasses import dataclass

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    drawn_from_the_prior,
    exact_posterior,
    few_arms,
    fixed_prior,
    nothing_forgotten,
    rewards_at_once,
)


@dataclass(frozen=True)
class BayesianGPUCBWidth(TheoremWidth):
    """The width of GP-UCB's theorem for a function drawn from the prior, on a finite set of arms.

        β_t = √(2 ln(A t² π² / (6δ))),  t = ``num_observations`` + 1

    A union bound over arms and rounds; Σ 6/(π²t²) = 1. Our value b corresponds to ``UpperConfidenceBound(beta=b²)`` of
    BoTorch, which is the paper's own β_t.

    Source: Srinivas et al., ICML 2010, Theorem 1 and Lemma 5.1.

    Assumes: f is a draw from the model's prior, noise independent N(0, λ), the exact posterior, at most A arms
    fixed before the run. The prior may be on space and time, as TV-GP-UCB's: the union bound is over the A arms at the
    time of each round. Every round must add an observation that counts; a window would stop the clock.

    Args:
        num_arms: A >= 1.
        failure_probability: δ in (0, 1).
    """

    theorem = "Srinivas et al., ICML 2010, Theorem 1"
    assumes = (drawn_from_the_prior, fixed_prior, rewards_at_once, few_arms, exact_posterior, nothing_forgotten)

    num_arms: int
    failure_probability: float

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: O(1)."""
        share = ((evidence.num_observations + 1) * math.pi) ** 2 / (6.0 * self.failure_probability)
        return evidence.regularization.new_tensor(math.sqrt(2.0 * math.log(self.num_arms * share)))
