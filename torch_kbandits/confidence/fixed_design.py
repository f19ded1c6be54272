"""The width for designs that were fixed beforehand."""

import math
from dataclasses import dataclass

from torch import Tensor

from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import (
    bounded_noise,
    bounded_norm,
    exact_posterior,
    fixed_prior,
    nothing_forgotten,
    points_chosen_apart,
    rewards_at_once,
)


@dataclass(frozen=True)
class FixedDesignWidth(TheoremWidth):
    """The width where no point that is conditioned on was chosen in the light of another's reward; a constant.

        β = B + (R/√λ) √(2 ln(2 n/δ))

    It bounds the error at n pairs of a point and a set of observations at once, with no information gain in it. With
    w = (K + λI)⁻¹ k(x) the error of the posterior mean is the noise wᵀε, which is R ‖w‖-sub-Gaussian and
    ‖w‖² = k(x)ᵀ(K + λI)⁻²k(x) <= σ²(x)/λ, and a bias of at most B σ(x), because λV⁻¹ <= I.

    Source: the above, which is the argument of Auer (JMLR 2002) for ridge regression. LinUCB (Li et al., WWW 2010) has
    it with n = 1, λ = B = 1 and R = 1/2, for rewards in [0, 1]: α = 1 + √(ln(2/δ)/2).

    Assumes: ‖f‖_k <= B, noise R-sub-Gaussian and independent given the points of each set, the exact posterior of a
    function that stays. With a dictionary or a memory it is the same number, of which the proof says nothing: what a
    dictionary leaves out adds a bias, and a function that changed another.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        num_bounds: n >= 1.
    """

    theorem = "Auer, JMLR 2002, for ridge regression; Valko et al., UAI 2013"
    assumes = (
        bounded_norm,
        bounded_noise,
        fixed_prior,
        rewards_at_once,
        points_chosen_apart,
        exact_posterior,
        nothing_forgotten,
    )

    noise_scale: float
    norm_bound: float
    failure_probability: float
    num_bounds: int = 1

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β, the same in every round."""
        log_confidence = math.log(2.0 * self.num_bounds / self.failure_probability)
        return self.norm_bound + self.noise_scale * (2.0 * log_confidence / evidence.regularization).sqrt()
