"""What SparQ-GP-UCB's theorem fixes: the width, how many questions the expert gets, and what is dropped."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.assumptions import CHANGING, bounded_norm, enough_gain
from torch_kbandits.confidence.base import Evidence, InformationGain, TheoremWidth
from torch_kbandits.confidence.gain import RealizedGain
from torch_kbandits.errors import InputError


@dataclass(frozen=True)
class SparQWidth(TheoremWidth):
    """The width of SparQ-GP-UCB's theorem, for observations that each have a noise variance of their own.

        β_t = B + √(2 ln(2 det(Σ + K)^½ / (δ det(Σ)^½))) = B + √(2 I_t + 2 ln(2/δ))

    over what is retained in round t: the expert's answers and the recent observations, Σ their noise variances, which
    stand for R and λ. Where all have λ it is ``SelfNormalizedWidth`` at R = √λ and δ/2.

    Source: Mauduit et al., 2025, Theorem 3.1, by the bound of Kirschner & Krause, COLT 2018, Lemma 7. The 2 leaves
    half of δ to the choice of the expert's questions. Differs: their lemma is for observations that only become more,
    while here others are retained in every round. So we claim the bound for each round apart; give δ/T for T at once.

    Assumes: ‖f_t‖_k <= B, the noise of observation s conditionally √λ_s-sub-Gaussian, the exact posterior of what is
    retained, answers for the current f_t. That recent rewards are those of a function that has moved is not covered.

    Args:
        norm_bound: B > 0, a bound on the RKHS norm of every f_t.
        failure_probability: δ in (0, 1).
        gain: what stands for I_t.
    """

    theorem = "Mauduit et al., 2025, Theorem 3.1"
    assumes = (bounded_norm, enough_gain, *CHANGING)

    norm_bound: float
    failure_probability: float
    gain: InformationGain = field(default_factory=RealizedGain)

    def __call__(self, evidence: Evidence) -> Tensor:
        """Return β_t. Cost: that of the gain."""
        return self.norm_bound + (2.0 * (self.gain(evidence) + math.log(2.0 / self.failure_probability))).sqrt()


def sparq_questions(round: int, factor: float = 6.0, dimension: int = 1) -> int:
    """Return how many questions SparQ-GP-UCB asks its expert in a round: factor · (ln t)^d, rounded up.

    None in round 1; ask no more than there are distinct past inputs.

    Source: Mauduit et al., 2025: 6 ln t in the experiments, where d = 1; O((ln t)^d) in Theorem 3.1.

    Args:
        round: t >= 1.
        factor: above 0.
        dimension: d >= 1.
    """
    round = checks.positive_integer("round", round)
    dimension = checks.positive_integer("dimension", dimension)
    factor, logarithm = checks.positive("factor", factor), math.log(math.log(round)) if round > 1 else -math.inf
    number = math.log(factor) + dimension * logarithm
    if number > math.log(checks.LARGEST_EXACT):
        raise InputError(f"factor and dimension must give at most {checks.LARGEST_EXACT:,} questions.")
    return math.ceil(factor * math.log(round) ** dimension)


def sparq_cutoff(round: int, regularization: float, g: Callable[[int], float] = math.log) -> float:
    """Return the noise variance λ g(t) above which SparQ-GP-UCB drops an observation in round t.

    With g = ln and the noise λ (a² + 1) at age a this drops all but the youngest: a fresh observation counts from
    round 3, one of age 1 from round 8, one of age 2 from round 149. Nothing is left but the expert's answers before.

    Source: Mauduit et al., 2025, Algorithm 1 and §3; the theorem allows any g(t) = o(t^¼).

    Args:
        round: t >= 1.
        regularization: λ > 0, in reward units squared.
        g: returns a finite number of at least 0 for a round.

    Returns:
        At least 0, in reward units squared; where it exceeds λ, the ``max_variance`` of
        ``UncertaintyInjectionLikelihood``.
    """
    round = checks.positive_integer("round", round)
    noise = checks.positive("regularization", regularization)
    if not callable(g):
        raise InputError(f"g must be a function of the round such as math.log, got {checks.describe(g)}.")
    return noise * checks.non_negative(f"g({round})", g(round))
