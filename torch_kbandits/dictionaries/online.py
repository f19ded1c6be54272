"""Rules that decide about each point once, when it is played: kernel online row sampling, and what loses nothing."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import ConditionalVariances
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.observations import Places
from torch_kbandits.posteriors.posterior import LEAST_SHARE, non_negative

Array = NDArray[Any]

#: A point is spanned if what the dictionary leaves of its prior variance is at most this fraction of it.
SPANNED = {torch.float64: 1e-10, torch.float32: 1e-4}


class OnlineState(NamedTuple):
    """What an online rule knows of its dictionary Z, in the coordinates z of a posterior that is at it.

    That is what is left of N(0, I) if each point of Z is observed with noise variance μ/w, w its weight. Of a point x

        r(x) = k(x, x) − zᵀz + zᵀ cov z = k(x, x) − k_Z(x)ᵀ (K_ZZ + μ diag(1/w))⁻¹ k_Z(x)

    The weights are in the order of the posterior's dictionary; where μ, the noise, is 0, the points of Z are known.
    """

    gaussian: Gaussian
    weights: Array
    noise: float
    memory: dict[Any, Any]

    @classmethod
    def of(cls, posterior: DictionaryPosterior, weights: Array, noise: float) -> "OnlineState":
        """Return that of the dictionary of a posterior, computed afresh. Cost: O(m³)."""
        if noise == 0.0:
            gaussian = Gaussian(np.empty((0, posterior.size)), posterior.void.T @ posterior.void, 0.0)
        else:
            z = posterior.known.features.known[posterior.dictionary]
            gaussian = Gaussian.given(z, weights / noise, np.empty((0, len(weights))))
        return cls(gaussian, weights, noise, {})

    def variances(self, posterior: DictionaryPosterior, places: Places) -> ConditionalVariances:
        """Return r of known points, given their places (q,). Cost: O(q m²)."""
        z, prior, cov = posterior.known.features.known[places].T, posterior.known.prior[places], self.gaussian.cov
        known = z - (gaussian_loops.product(cov, z[:, 0])[:, None] if len(places) == 1 else cov @ z)

        def covariance(number: int) -> Array:
            points = posterior.told.points_at(places)
            return posterior.prior.between(points[number : number + 1], points)[0] - z[:, number] @ known

        return ConditionalVariances(non_negative(prior - np.einsum("mq,mq->q", z, known), prior), prior, covariance)

    def by_place(self, posterior: DictionaryPosterior) -> Array:
        """Return the weights of all known points, (u,), 0 for those that are not in the dictionary."""
        weights = np.zeros(len(posterior.told))
        weights[posterior.dictionary] = self.weights
        return weights

    def at_weights(self, posterior: DictionaryPosterior, weights: Array) -> tuple[DictionaryPosterior, "OnlineState"]:
        """Return the posterior at those known points whose weight, (u,), is above 0, and its state. Cost: O(m³)."""
        dictionary = np.flatnonzero(weights)
        after = posterior.at_dictionary(dictionary, learns_next=True)
        gaussian = self._followed(posterior, after, weights - self.by_place(posterior))
        weights = weights[dictionary]
        if gaussian is None:
            return after, self.of(after, weights, self.noise)._replace(memory=self.memory)
        return after, self._replace(gaussian=gaussian, weights=weights)

    def _followed(self, before: DictionaryPosterior, after: DictionaryPosterior, more: Array) -> Gaussian | None:
        """Return the Gaussian once weights have grown by some, (u,); None where it is to be computed afresh."""
        places, m, gaussian, nothing = np.flatnonzero(more), before.size, self.gaussian, np.empty(0)
        if self.noise == 0.0 or 2 * len(places) > m or not np.array_equal(after.white[:m, :m], before.white):
            return None
        for _ in range(after.size - m):
            gaussian = gaussian.extended(1.0, nothing)
        for place in places:
            move, factor = gaussian.observed(after.known.features.known[place], nothing, self.noise / more[place])
            if factor < LEAST_SHARE:
                return None
            gaussian = gaussian.moved(move, factor)
        return gaussian


class OnlineRule(DictionaryRule):
    """A rule that decides about each point once, when it is played, by what the dictionary leaves of its variance.

    The first point ever offered joins. A point that is drawn again, with probability p, gains the weight 1/p.
    """

    is_online = True

    @abstractmethod
    def probabilities(self, variance: Array, prior: Array, noise: float | Array) -> Array:
        """Return the probability (q,) with which each point is drawn if it is offered next.

        It is given r of ``OnlineState``, (..., q), k(x, x), (..., q), and μ, (q,) where plays differ in their noise.
        """

    @abstractmethod
    def projection_noise(self, noise: float) -> float:
        """Return μ, given λ, both in reward units squared."""

    def _drawn(
        self,
        left: ConditionalVariances,
        names: Array,
        uniforms: Array,
        noise: float,
        room: float,
        is_in: Any = None,
        weights: Array | None = None,
    ) -> tuple[Places, Array, bool]:
        """Draw of q points that are offered one after another, each scored with those before it drawn or not.

        They have r left, names (q,), equal for plays of one point, and uniforms (q,) below which a probability draws
        none; so many may join, where ``is_in`` says of a name whether its point is there, None if none is. Weights say
        how many plays of noise λ each is worth, (q,). Returned is which are drawn, (t,), with what probabilities, (t,),
        and whether there was room for the last.
        """
        drawn, probabilities, joined, first = list[int](), list[float](), set[int](), 0
        while first < len(uniforms) and len(joined) <= room:
            own = noise if weights is None else noise / weights[first:]
            found = self.probabilities(left.variance[..., first:], left.prior[..., first:], own)
            if is_in is None and not drawn:
                found[0] = 1.0
            hits = np.flatnonzero(uniforms[first:] < found)
            if not len(hits):
                break
            number, probability = first + int(hits[0]), float(found[hits[0]])
            drawn.append(number)
            probabilities.append(probability)
            if is_in is None or not is_in(names[number]):
                joined.add(int(names[number]))
            first = number + 1
            if first < len(uniforms) and len(joined) <= room:
                left.observe(number, noise * probability if weights is None else noise * probability / weights[number])
        return np.array(drawn, np.int64), np.array(probabilities), len(joined) <= room

    def offered(
        self,
        posterior: DictionaryPosterior,
        state: OnlineState,
        places: Places,
        uniforms: Array,
        room: float,
        worth: Array | None = None,
    ) -> tuple[DictionaryPosterior, OnlineState, tuple[int, float] | None]:
        """Return the posterior and the state once known points (q,) were offered, and the first without room.

        What each play is worth, (q,), is λ over its noise variance, 1 unless given.
        """
        is_in, left = posterior.has_in_dictionary if len(state.weights) else None, state.variances(posterior, places)
        drawn, probabilities, has_room = self._drawn(left, places, uniforms, state.noise, room, is_in, worth)
        if worth is not None:
            probabilities = probabilities / worth[drawn]
        refused = None if has_room else (int(drawn[-1]), float(probabilities[-1]))
        joining = drawn if has_room else drawn[:-1]
        if len(joining):
            weights = state.by_place(posterior)
            np.add.at(weights, places[joining], 1.0 / probabilities[: len(joining)])
            posterior, state = state.at_weights(posterior, weights)
        return posterior, state, refused

    def update(
        self,
        posterior: DictionaryPosterior,
        state: OnlineState,
        places: Places,
        uniforms: Array,
        worth: Array | None = None,
    ) -> tuple[DictionaryPosterior, OnlineState]:
        """Return a posterior at its dictionary, and its state, once known points (q,) were offered in this order."""
        return self.offered(posterior, state, places, uniforms, math.inf, worth)[:2]

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Offer all plays to an empty dictionary, in order of the points' first play, in double precision.

        The probability of a point is that of the play with which it joined.
        """
        played.require_some()
        noise, counts = self.projection_noise(float(played.noise.min())), played.counts.double().cpu().numpy()
        plays = np.repeat(np.arange(played.size), np.rint(counts).astype(np.int64))
        uniforms = torch.rand(len(plays), generator=generator, dtype=torch.float64, device="cpu").numpy()
        with torch.no_grad():
            left = ConditionalVariances.of(played.points[..., plays, :], played.kernel)
            drawn, joined, _ = self._drawn(left, plays, uniforms, noise, played.max_size or math.inf)
        rows, first = np.unique(plays[drawn], return_index=True)
        return Selection.rows(played, torch.from_numpy(rows), torch.from_numpy(joined[first]).to(played.points))


@dataclass(frozen=True)
class KORS(OnlineRule):
    """Offer each played point to the dictionary once for each play (kernel online row sampling).

    Points never leave it but when a memory forgot them; then all that count are offered again.

    A point s joins with probability p̃ = min(1, γ τ̃(s)), τ̃ an estimate of its ridge leverage score from the dictionary Z
    as it was before. With S of diagonal √w for Z and 1 for s, and Z* = Z ∪ {s}, it is

        τ̃(s) = (1 + ε)/μ · (k(s,s) − k_Z*(s)ᵀ S (Sᵀ K_Z*Z* S + μI)⁻¹ Sᵀ k_Z*(s)) = (1 + ε) r(s) / (r(s) + μ)

    with r of ``OnlineState``. A weight w is Σ 1/p̃ over the times that the point was drawn. The first point played joins
    with certainty. Where a play has a noise variance λ_s of its own, its μ is μ λ_s / λ, and it adds λ / (λ_s p̃) to w.
    With batch dimensions the members share their rows, by the largest of their τ̃.

    Source: Zenati et al., AISTATS 2022, Alg. 1 and 5 and (41); Calandriello et al., NeurIPS 2017. Differs: a point that
    is drawn again is there once, with the summed weight, which leaves all probabilities as they are. What a posterior
    takes for spanned, all but 1e-10 λ of it, counts as spanned, which makes up to 1e-5 of a score.

    The theorem asks for γ of ``theoretical_kors_oversampling``, which keeps nearly every point. At 1 nearly all
    deviations are within an eighth of the exact ones, with 2.5 to 6 times as many points as the effective dimension; at
    2 within a tenth, with nearly twice the points.

    Cost: O(m²) for each play of a bandit; O(u m²) time and O(u m) memory for a selection.
    """

    oversampling: float = 1.0  #: γ > 0.
    projection: float | None = None  #: μ > 0: directions below are dropped, in reward units squared; None for least λ.
    accuracy: float = 0.5  #: ε in (0, 1), which the theorem sets to 1/2.

    def __post_init__(self) -> None:
        checks.keep(self, oversampling=checks.positive, accuracy=checks.open_unit_interval)
        checks.keep(self, projection=checks.optional(checks.positive))

    def probabilities(self, variance: Array, prior: Array, noise: float | Array) -> Array:
        """Return min(1, γ τ̃), (q,)."""
        scores = (1.0 + self.accuracy) * variance / (variance + noise)
        if scores.ndim > 1:
            scores = scores.reshape(-1, scores.shape[-1]).max(0)
        return np.minimum(self.oversampling * scores, 1.0)

    def projection_noise(self, noise: float) -> float:
        """Return μ, given λ."""
        return noise if self.projection is None else self.projection


@dataclass(frozen=True)
class SpanningDictionary(OnlineRule):
    """Take each played point that the dictionary does not span: then the Nyström posterior is the exact one.

    For kernels of F features it has at most F points, so that the exact posterior costs O(F²) a round; for others all.
    """

    spans_all = True

    def probabilities(self, variance: Array, prior: Array, noise: float | Array) -> Array:
        """Return 1 for points that are not spanned, (q,), 0 for others."""
        outside = np.asarray(variance > SPANNED[torch.float64] * prior)
        return np.any(outside, axis=tuple(range(outside.ndim - 1))).astype(np.float64)

    def projection_noise(self, noise: float) -> float:
        """Return 0: there is nothing between spanned and not."""
        return 0.0


def theoretical_kors_oversampling(failure_probability: float, horizon: int) -> float:
    """Return γ = 12 ln(T/δ): with ε = 1/2 enough for KORS's theorem over T rounds, with probability 1 − δ.

    Then ‖(I − P) F^½‖² <= μ in every round, P the projection onto the dictionary and F the sum of φ(s)φ(s)ᵀ over the
    points played. Source: Zenati et al., AISTATS 2022, Proposition 4.1.
    """
    delta = checks.open_unit_interval("failure_probability", failure_probability)
    return 12.0 * math.log(checks.positive_integer("horizon", horizon) / delta)


def guarantees_projection(
    rule: DictionaryRule | None, error: float, regularization: float, failure_probability: float, num_rounds: int
) -> tuple[bool, str]:
    """Say whether EK-UCB's theorem guarantees a projection error of at most μ, and what it needs."""
    needed = theoretical_kors_oversampling(failure_probability, max(num_rounds, 1))
    holds = isinstance(rule, KORS) and rule.oversampling >= needed and (rule.projection or regularization) <= error
    return holds, f"KORS with γ of at least {needed:.4g} by now and its own μ of at most {error:g}"
