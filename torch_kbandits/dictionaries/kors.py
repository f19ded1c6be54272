"""Dictionaries by kernel online row sampling."""

import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.online_sample import OnlineSample
from torch_kbandits.dictionaries.ridge_leverage import inclusion_probabilities
from torch_kbandits.numerics.gram import gram, prior_variance


@dataclass(frozen=True)
class KORS(DictionaryRule):
    """Offer each played point to the dictionary once for each play (kernel online row sampling).

    Points never leave it but when a memory forgot them, and then what counts is offered again; see ``PosteriorBelief``.

    A point joins with probability min(1, γ τ̃), τ̃ an estimate of its ridge leverage score from the dictionary as it
    was before; see ``OnlineSample``. The first point played joins with certainty.

    Source: Zenati et al., AISTATS 2022, Alg. 1 and 5. Differs: a point that is drawn again is held once, with the
    summed weight, which leaves all probabilities as they are. Plays of one point that are learned together, and those
    offered because the dictionary is not known, are offered one after another when the first of them is due.

    Where ``PlayedPoints`` knows what is in the dictionary, with which weights, and what is new, only the new plays are
    offered; else all are, to an empty one.

    Args:
        oversampling: γ > 0. The theorem asks for ``theoretical_kors_oversampling``, which keeps nearly every point. In
            practice 1: on 1,500 uniform points in 2 and 6 dimensions nearly all posterior deviations were within an
            eighth of the exact ones (the worst at 1.25 times), with 2.5 to 6 times as many points as the effective
            dimension. At 2 they were within a tenth, with nearly twice the points; at 0.3 up to 2.3 times.
        projection: μ > 0, the scale below which directions are dropped, in reward units squared; None for the noise
            variance (the smallest one where it differs), which balances regret and time.
        accuracy: ε in (0, 1), which the theorem sets to 1/2.

    Cost of a selection: O(m²) for each play offered, O(m³) once.
    """

    oversampling: float = 1.0
    projection: float | None = None
    accuracy: float = 0.5

    is_online = True

    def __post_init__(self) -> None:
        checks.keep(
            self,
            oversampling=checks.positive,
            projection=checks.optional(checks.positive),
            accuracy=checks.open_unit_interval,
        )

    def online_sample(self, kernel: Kernel, noise: float, points: Tensor, weights: Tensor) -> OnlineSample:
        """Return the dictionary to which plays are offered; see ``OnlineRule``."""
        projection = noise if self.projection is None else self.projection
        return OnlineSample.from_points(points, weights, kernel, projection, self.accuracy, self.oversampling)

    def offered(
        self, sample: OnlineSample, points: Tensor, uniforms: Tensor, cross: Tensor | None, prior: Tensor | None
    ) -> OnlineSample:
        """Return the dictionary once points (k, d) were offered to it one after another; see ``OnlineRule``."""
        return sample.after(points, uniforms, cross, prior)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Offer the plays in order of the points' first play; see ``DictionaryRule.select``.

        The probability of a point that is there already is 1; else it is that of the play with which it joined.
        """
        played.require_some()
        with torch.no_grad():
            held, sample, counts = self._known(played)
            offered = torch.arange(played.size, device=counts.device).repeat_interleave(counts.round().long())
            uniforms = torch.rand(len(offered), generator=generator, dtype=torch.float64, device="cpu")
            most = None if played.max_size is None else played.max_size + 1
            offer = sample.offered(played.points[..., offered, :], uniforms, most=most)
        joined = offer.joined.to(offered.device)
        rows = torch.cat([held, offered[joined]])
        probabilities = torch.cat([torch.ones_like(sample.weights), offer.probabilities[joined]])
        return Selection.rows(played, rows, probabilities.to(played.points), offer.sample.weights)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points one after another in proportion to their probability of joining those drawn before.

        A point played c times is one point of c times the score, min(1, γ c τ̃). Points drawn have weight 1, and the
        probabilities returned are those of joining an empty dictionary. Cost: O(u m²) time, O(u m) memory.
        """
        played.require_some()
        projection, _, _ = self._settings(played)
        counts = played.counts.double()
        with torch.no_grad():
            residual = prior_variance(played.kernel, played.points).double()
            first = self._chances(residual, counts, projection)
            shares = first.clone()
            rows = residual.new_zeros(*residual.shape[:-1], min(size, played.size), played.size)
            drawn: list[int] = []
            for k in range(rows.shape[-2]):
                shares = shares.clamp_min(torch.finfo(torch.float64).tiny)
                shares[drawn] = 0.0
                pivot = int(torch.multinomial(shares.cpu(), 1, generator=generator))
                column = gram(played.kernel, played.points[..., [pivot], :], played.points).double().squeeze(-2)
                explained = (rows[..., :k, pivot].unsqueeze(-2) @ rows[..., :k, :]).squeeze(-2)
                rows[..., k, :] = (column - explained) / (residual[..., pivot, None] + projection).sqrt()
                residual = (residual - rows[..., k, :].square()).clamp_min(0.0)
                shares = self._chances(residual, counts, projection)
                drawn.append(pivot)
        chosen = torch.tensor(drawn, device=played.points.device)
        return Selection.rows(played, chosen, first[chosen].to(played.points))

    def _known(self, played: PlayedPoints) -> tuple[Tensor, OnlineSample, Tensor]:
        """Return the rows of the dictionary, the dictionary, and how often each point is to be offered to it."""
        settings, points = self._settings(played), played.points
        if played.in_dictionary is not None and played.weights is not None and played.new_counts is not None:
            held = played.in_dictionary.nonzero().squeeze(-1)
            if len(held):
                sample = OnlineSample.from_points(points[..., held, :], played.weights[held], played.kernel, *settings)
                return held, sample, played.new_counts
        nothing = torch.zeros(0, dtype=torch.long, device=points.device)
        return nothing, OnlineSample.empty(played.kernel, *settings, points), played.counts

    def _settings(self, played: PlayedPoints) -> tuple[float, float, float]:
        """Return μ, ε and γ."""
        projection = float(played.noise.min()) if self.projection is None else self.projection
        return projection, self.accuracy, self.oversampling

    def _chances(self, residual: Tensor, counts: Tensor, projection: float) -> Tensor:
        """Return min(1, γ c τ̃), (u,), from r (..., u)."""
        scores = (1.0 + self.accuracy) * residual / (residual + projection)
        return inclusion_probabilities(scores.reshape(-1, len(counts)).amax(0), counts, self.oversampling)


def theoretical_kors_oversampling(failure_probability: float, horizon: int) -> float:
    """Return γ = 12 ln(T/δ): with ε = 1/2 enough for KORS's theorem over T rounds.

    With probability 1 − δ then ‖(I − P) F^½‖² <= μ in every round, P the projection onto the dictionary and F the sum
    of φ(s)φ(s)ᵀ over the points played.

    Source: Zenati et al., AISTATS 2022, Proposition 4.1.

    Args:
        failure_probability: δ in (0, 1).
        horizon: T, the number of rounds.
    """
    delta = checks.open_unit_interval("failure_probability", failure_probability)
    return 12.0 * math.log(checks.positive_integer("horizon", horizon) / delta)
