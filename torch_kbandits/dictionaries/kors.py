"""Dictionaries by kernel online row sampling, and those that lose nothing."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import ConditionalVariances, GreedyDictionary
from torch_kbandits.dictionaries.online import OnlineRule

Array = NDArray[Any]

#: A point is spanned if what the dictionary leaves of its prior variance is at most this fraction of it.
SPANNED = {torch.float64: 1e-10, torch.float32: 1e-4}


@dataclass(frozen=True)
class KORS(OnlineRule):
    """Offer each played point to the dictionary once for each play (kernel online row sampling).

    Points never leave it but when a memory forgot them; then all that count are offered again.

    A point s joins with probability p̃ = min(1, γ τ̃(s)), τ̃ an estimate of its ridge leverage score from the dictionary Z
    as it was before. With S of diagonal √w for Z and 1 for s, and Z* = Z ∪ {s}, it is

        τ̃(s) = (1 + ε)/μ · (k(s,s) − k_Z*(s)ᵀ S (Sᵀ K_Z*Z* S + μI)⁻¹ Sᵀ k_Z*(s)) = (1 + ε) r(s) / (r(s) + μ)

    with r of ``OnlineState``. A weight w is Σ 1/p̃ over the times that the point was drawn. The first point played joins
    with certainty. With batch dimensions the members share their rows, by the largest of their τ̃.

    Source: Zenati et al., AISTATS 2022, Alg. 1 and 5 and (41); Calandriello et al., NeurIPS 2017. Differs: a point that
    is drawn again is there once, with the summed weight, which leaves all probabilities as they are. Plays of one point
    that are learned together are offered one after another when the first of them is due. What a posterior takes for
    spanned, all but 1e-10 λ of it, counts as what is spanned of it, which makes up to 1e-5 of a score.

    Args:
        oversampling: γ > 0. The theorem asks for ``theoretical_kors_oversampling``, which keeps nearly every point. In
            practice 1: nearly all posterior deviations are within an eighth of the exact ones, with 2.5 to 6 times as
            many points as the effective dimension; at 2 within a tenth, with nearly twice the points.
        projection: μ > 0, the scale below which directions are dropped, in reward units squared; None for the noise
            variance (the smallest one where it differs), which balances regret and time.
        accuracy: ε in (0, 1), which the theorem sets to 1/2.

    Cost: O(m²) for each play of a bandit; O(u m²) time and O(u m) memory for a selection.
    """

    oversampling: float = 1.0
    projection: float | None = None
    accuracy: float = 0.5

    def __post_init__(self) -> None:
        checks.keep(self, oversampling=checks.positive, accuracy=checks.open_unit_interval)
        checks.keep(self, projection=checks.optional(checks.positive))

    def probabilities(self, variance: Array, prior: Array, noise: float) -> Array:
        """Return min(1, γ τ̃), (q,); see ``OnlineRule.probabilities``."""
        return self._merged_probabilities(variance, 1.0, noise)

    def projection_noise(self, noise: float) -> float:
        """Return μ, given λ."""
        return noise if self.projection is None else self.projection

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points one after another in proportion to their probability of joining those drawn before.

        A point played c times is one point of c times the score, min(1, γ c τ̃). Points drawn have weight 1, and the
        probabilities returned are those of joining an empty dictionary. Cost: O(u m²) time, O(u m) memory.
        """
        played.require_some()
        noise, counts = self.projection_noise(float(played.noise.min())), played.counts.double().cpu().numpy()
        drawn: list[int] = []
        with torch.no_grad():
            left = ConditionalVariances.of(played)
            first = self._merged_probabilities(left.variance, counts, noise)
            while len(drawn) < min(size, played.size):
                shares = np.maximum(self._merged_probabilities(left.variance, counts, noise), np.finfo(np.float64).tiny)
                shares[drawn] = 0.0
                pivot = int(torch.multinomial(torch.from_numpy(shares), 1, generator=generator))
                drawn.append(pivot)
                left.observe(pivot, noise)
        return Selection.rows(played, torch.tensor(drawn), torch.from_numpy(first[drawn]).to(played.points))

    def _merged_probabilities(self, variance: Array, counts: Any, noise: float) -> Array:
        """Return min(1, γ c τ̃), (q,), from r (..., q)."""
        scores = (1.0 + self.accuracy) * variance / (variance + noise)
        if scores.ndim > 1:
            scores = scores.reshape(-1, scores.shape[-1]).max(0)
        return np.minimum(self.oversampling * counts * scores, 1.0)


@dataclass(frozen=True)
class SpanningDictionary(OnlineRule):
    """Take each played point that the dictionary does not span: then the Nyström posterior is the exact one.

    For kernels of F features it has at most F points, so that the exact posterior costs O(F²) a round; for others all.
    """

    def probabilities(self, variance: Array, prior: Array, noise: float) -> Array:
        """Return 1 for points that are not spanned, (q,), 0 for others; see ``OnlineRule.probabilities``."""
        outside = variance > SPANNED[torch.float64] * prior
        return outside.reshape(-1, outside.shape[-1]).max(0).astype(np.float64)

    def projection_noise(self, noise: float) -> float:
        """Return 0: there is nothing between spanned and not."""
        return 0.0

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Take ``size`` points, each time the one that those taken before span least; see ``GreedyDictionary``."""
        return GreedyDictionary(size).select_sized(played, size, generator)


def theoretical_kors_oversampling(failure_probability: float, horizon: int) -> float:
    """Return γ = 12 ln(T/δ): with ε = 1/2 enough for KORS's theorem over T rounds, with probability 1 − δ.

    Then ‖(I − P) F^½‖² <= μ in every round, P the projection onto the dictionary and F the sum of φ(s)φ(s)ᵀ over the
    points played. Source: Zenati et al., AISTATS 2022, Proposition 4.1.
    """
    delta = checks.open_unit_interval("failure_probability", failure_probability)
    return 12.0 * math.log(checks.positive_integer("horizon", horizon) / delta)
