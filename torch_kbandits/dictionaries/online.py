"""Rules that decide about each point once, when it is played, and what they know of their dictionary."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import ConditionalVariances
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.posteriors.dictionary_posterior import DictionaryPosterior
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.observations import Places
from torch_kbandits.posteriors.posterior import LEAST_SHARE, non_negative

Array = NDArray[Any]


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
        """Return the posterior at those known points whose weight, (u,), is above 0, and its state.

        Cost: that of ``DictionaryPosterior.at_dictionary``, and O(m²) for each weight that changes; O(m³) at most.
        """
        dictionary = np.flatnonzero(weights)
        after = posterior.at_dictionary(dictionary, settles=False)
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
    def probabilities(self, variance: Array, prior: Array, noise: float) -> Array:
        """Return the probability (q,) with which each point is drawn if it is offered next.

        It is given r of ``OnlineState``, (..., q), k(x, x), (..., q), and μ.
        """

    @abstractmethod
    def projection_noise(self, noise: float) -> float:
        """Return μ, given λ, both in reward units squared."""

    def draw(
        self,
        left: ConditionalVariances,
        names: Array,
        uniforms: Array,
        noise: float,
        room: float = math.inf,
        in_dictionary: Callable[[int], bool] | None = None,
    ) -> tuple[Places, Array, bool]:
        """Draw of q points that are offered one after another, each scored with those before it drawn or not.

        Args:
            left: r of them.
            names: equal for plays of one point, (q,).
            uniforms: (q,) in [0, 1): a point is drawn if its probability is above its uniform.
            noise: μ.
            room: how many may join.
            in_dictionary: says of a name whether its point is in the dictionary; None if that is empty.

        Returns:
            Which are drawn, (t,), with what probabilities, (t,), and whether there was room for the last.
        """
        drawn, probabilities, joined, first = list[int](), list[float](), set[int](), 0
        while first < len(uniforms) and len(joined) <= room:
            found = self.probabilities(left.variance[..., first:], left.prior[..., first:], noise)
            if in_dictionary is None and not drawn:
                found[0] = 1.0
            hits = np.flatnonzero(uniforms[first:] < found)
            if not len(hits):
                break
            number, probability = first + int(hits[0]), float(found[hits[0]])
            drawn.append(number)
            probabilities.append(probability)
            if in_dictionary is None or not in_dictionary(names[number]):
                joined.add(int(names[number]))
            first = number + 1
            if first < len(uniforms) and len(joined) <= room:
                left.observe(number, noise * probability)
        return np.array(drawn, np.int64), np.array(probabilities), len(joined) <= room

    def offered(
        self, posterior: DictionaryPosterior, state: OnlineState, places: Places, uniforms: Array, room: float
    ) -> tuple[DictionaryPosterior, OnlineState, tuple[int, float] | None]:
        """Return the posterior and the state once known points (q,) were offered, while there is room for those drawn.

        Also the number of the first for which there was none, with its probability; None if there was.
        """
        in_dictionary = posterior.has_in_dictionary if len(state.weights) else None
        left = state.variances(posterior, places)
        drawn, probabilities, has_room = self.draw(left, places, uniforms, state.noise, room, in_dictionary)
        refused = None if has_room else (int(drawn[-1]), float(probabilities[-1]))
        joining = drawn if has_room else drawn[:-1]
        if len(joining):
            weights = state.by_place(posterior)
            np.add.at(weights, places[joining], 1.0 / probabilities[: len(joining)])
            posterior, state = state.at_weights(posterior, weights)
        return posterior, state, refused

    def update(
        self, posterior: DictionaryPosterior, state: OnlineState, places: Places, uniforms: Array
    ) -> tuple[DictionaryPosterior, OnlineState]:
        """Return a posterior at its dictionary, and its state, once known points (q,) were offered one after another.

        Cost: O(m²) for each point offered, and that of a dictionary that changes for each that is drawn.
        """
        return self.offered(posterior, state, places, uniforms, math.inf)[:2]

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Offer all plays to an empty dictionary, in order of the points' first play; see ``DictionaryRule.select``.

        The probability of a point is that of the play with which it joined. All is computed in double precision.
        """
        played.require_some()
        offered = np.repeat(np.arange(played.size), played.counts.round().long().cpu().numpy())
        uniforms = torch.rand(len(offered), generator=generator, dtype=torch.float64, device="cpu").numpy()
        noise, room = self.projection_noise(float(played.noise.min())), played.max_size or math.inf
        with torch.no_grad():
            left = ConditionalVariances.of(replace(played, points=played.points[..., offered, :]))
            drawn, probabilities, _ = self.draw(left, offered, uniforms, noise, room)
        rows, first = np.unique(offered[drawn], return_index=True)
        return Selection.rows(played, torch.from_numpy(rows), torch.from_numpy(probabilities[first]).to(played.points))
