"""Ridge leverage scores, how much each point adds to what a dictionary spans, and dictionaries by them."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.posteriors.prediction import PredictionStrategy

#: Of so many points the leverage scores are computed exactly, which is cheap.
FEW_POINTS = 256

#: Fixed uniforms are drawn so many at a time; another number would be another sequence of draws.
_BLOCK = 1024

Resampling = Literal["fresh", "coupled", "growth"]


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    """Keep each played point independently with probability min(1, q̄ c τ), τ its ridge leverage score, c its plays.

    If no draw succeeds the likeliest point is kept.

    Source: Calandriello et al., COLT 2019, Fig. 1. Differs: Fig. 1 draws once for each play, with min(1, q̄ τ), which
    misses an arm that alone explains itself with probability e^−q̄ for ever; the theorem holds for the merged law as
    well, see the page of proofs. The fallback above, and resampling other than "fresh", which it does not cover.

    Args:
        oversampling: q̄ > 0. The theorem asks for ``theoretical_oversampling``, which keeps nearly every point; in
            practice 2 to 10.
        resampling: how the dictionary of a round depends on the last one. "fresh": not at all. "coupled": each point
            keeps one uniform for good, the i-th of the generator's sequence, and is in the dictionary while that is
            below its inclusion probability: for given scores the law of "fresh", and far fewer points come and go.
            The points must keep their order, or their ``numbers``, and each round must hand in an equal generator, as
            ``Bandit`` does. "growth": as "coupled", but points of the dictionary stay.

    Many plays told at once look as if each brought something new. Where they would make up more than twice the
    dictionary and 256 points, all points are scored recursively instead, given all of them.

    Cost of a selection: O(u) when the scores are known (in a bandit they are), else O(u m²).
    """

    oversampling: float = 3.0
    resampling: Resampling = "fresh"

    def __post_init__(self) -> None:
        checks.keep(self, oversampling=checks.positive)
        checks.one_of("resampling", self.resampling, get_args(Resampling))
        if self.resampling != "fresh":
            object.__setattr__(self, "is_coupled", True)

    def probabilities(self, played: PlayedPoints, generator: Generator | None = None) -> Tensor:
        """Return the probability (u,) with which the next dictionary holds each point, 1 for those that stay."""
        scores = played.leverage_scores
        if scores is None or self._is_stale(scores, played):
            scores = self._recursive_leverage_scores(played, generator)
        probabilities = self._inclusion_probabilities(scores, played.counts)
        stay = played.in_dictionary if self.resampling == "growth" else None
        return probabilities if stay is None else probabilities.masked_fill(stay, 1.0)

    def select(self, played: PlayedPoints, generator: Generator | None = None) -> Selection:
        """Draw the dictionary."""
        played.require_some()
        # Before scores are estimated, which may draw as well.
        uniforms = _uniforms_of(played, generator) if self.is_coupled else None
        probabilities = self.probabilities(played, generator)
        chosen = _drawn(probabilities, generator, uniforms)
        return Selection(played.points[..., chosen, :], probabilities[chosen], chosen)

    def _inclusion_probabilities(self, scores: Tensor, counts: Tensor) -> Tensor:
        """Return min(1, q̄ c τ), (u,)."""
        return (self.oversampling * counts * scores).clamp(0.0, 1.0)

    def _is_stale(self, scores: Tensor, played: PlayedPoints) -> bool:
        """Say whether so much is new to a posterior that a dictionary by its scores would be far too large."""
        new = played.counts if played.new_counts is None else played.new_counts
        if float(new.sum()) <= FEW_POINTS:  # no more can be wanted: not computed further in the rounds of a bandit
            return False
        size = 0.0 if played.in_dictionary is None else float(played.in_dictionary.sum())
        return float(self._inclusion_probabilities(scores, new).sum()) > FEW_POINTS + 2.0 * size

    def _recursive_leverage_scores(self, played: PlayedPoints, generator: Generator | None) -> Tensor:
        """Estimate the leverage scores of all points, (u,), given all of them, without ever forming their Gram matrix.

        A random subset of ``FEW_POINTS`` is its own dictionary; each doubling of the subset scores its points at the
        last dictionary, of at most ``max_size`` points, and resamples. Up to ``FEW_POINTS`` points scores are exact.

        Source: Musco & Musco, NeurIPS 2017, Alg. 3 (recursive halving). Differs: scores come from the DTC posterior, as
        in BKB, and the sampled points are not reweighted.
        """
        n, device = played.size, played.points.device
        order, size = torch.randperm(n, generator=generator, device="cpu").to(device), min(n, FEW_POINTS)
        level, dictionary = played.noise.expand(*played.noise.shape[:-1], n), order[:size][: played.max_size]
        while True:
            subset = order[:size]
            points, counts, noise = played.points[..., subset, :], played.counts[subset], level[..., subset]
            with torch.no_grad():
                Z, targets = played.points[..., dictionary, :], points.new_zeros(size)
                posterior, z = PredictionStrategy.nystrom(played.kernel, Z, points, targets, noise / counts)
                scores = (posterior.variance(posterior.at(points, z)) / noise).to(points)
            scores = scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores
            if size == n:
                return torch.empty_like(scores).scatter(0, subset, scores)
            probabilities = self._inclusion_probabilities(scores, counts)
            drawn = _drawn(probabilities, generator)
            likeliest = probabilities[drawn].argsort(descending=True, stable=True)[: played.max_size]
            dictionary, size = subset[drawn[likeliest]], min(n, 2 * size)


def theoretical_oversampling(failure_probability: float, horizon: int, accuracy: float = 0.5) -> float:
    """Return q̄ = 6 α ln(4T/δ) / ε² with α = (1 + ε) / (1 − ε): enough for BKB's theorem over T rounds.

    With probability 1 − δ variances are within a factor α of the exact ones. Source: Calandriello et al., COLT 2019,
    Theorem 1.
    """
    delta = checks.open_unit_interval("failure_probability", failure_probability)
    epsilon = checks.open_unit_interval("accuracy", accuracy)
    alpha = (1.0 + epsilon) / (1.0 - epsilon)
    return 6.0 * alpha * math.log(4.0 * checks.positive_integer("horizon", horizon) / delta) / epsilon**2


def guarantees_accuracy(
    rule: DictionaryRule | None, accuracy: float, failure_probability: float, num_rounds: int
) -> tuple[bool, str]:
    """Say whether BKB's theorem guarantees an accuracy ε of so many rounds' dictionaries, and what it needs."""
    needed = theoretical_oversampling(failure_probability, max(num_rounds, 1), accuracy)
    holds = isinstance(rule, RidgeLeverageSampling) and rule.resampling == "fresh" and rule.oversampling >= needed
    return holds, f"ridge leverage sampling, drawn afresh, with q̄ of at least {needed:.4g} by now"


def _drawn(probabilities: Tensor, generator: Generator | None, uniforms: Tensor | None = None) -> Tensor:
    """Return the indices (m,) of uniforms below their probabilities; the likeliest point if none is, so m >= 1."""
    if uniforms is None:
        uniforms = torch.rand(len(probabilities), generator=generator, dtype=torch.float64, device="cpu")
    chosen = (uniforms.to(probabilities.device) < probabilities).nonzero().squeeze(-1)
    return chosen if len(chosen) else probabilities.argmax().reshape(1)


def _uniforms_of(played: PlayedPoints, generator: Generator | None) -> Tensor:
    """Return the uniform that each point keeps for good, (u,).

    Whole blocks are drawn, since nothing promises that a shorter draw is the beginning of a longer one.
    """
    numbers = torch.arange(played.size) if played.numbers is None else played.numbers.cpu()
    blocks = range(-(-(int(numbers.max()) + 1) // _BLOCK))
    drawn = [torch.rand(_BLOCK, generator=generator, dtype=torch.float64, device="cpu") for _ in blocks]
    return (drawn[0] if len(drawn) == 1 else torch.cat(drawn))[numbers]
