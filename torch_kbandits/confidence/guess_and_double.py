"""Widths for an unknown norm."""

from dataclasses import dataclass, is_dataclass, replace
from typing import Any, cast

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.confidence.base import Evidence, TheoremWidth
from torch_kbandits.confidence.guarantee import Circumstances, Hypothesis, bounded_norm, exact_posterior, said
from torch_kbandits.confidence.self_normalized import noise_radius
from torch_kbandits.errors import InputError


def _of_a_guess(known: Circumstances, width: Any) -> tuple[Hypothesis, ...]:
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

    What remains of the theorem: if the first guess is at least B, the wrapped width holds as it does with that guess. A
    guess below B that the data do not contradict voids it and nothing tells, all the more as the guess chose the data.
    G is a value without state, what the current posterior contradicts: it may fall again where a running maximum would
    not. For an approximate posterior the first map may exceed norm 1, and the proof does not hold.

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
