"""Ridge leverage scores, how much each point adds to what a dictionary spans, and dictionaries by them."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.posteriors.dtc import DTCFactors

#: Of so many points the leverage scores are computed exactly, which is cheap.
FEW_POINTS = 256

#: Kept uniforms are drawn so many at a time; another number would be another sequence of draws.
_BLOCK = 1024

Resampling = Literal["fresh", "coupled", "never"]


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    """Keep each played point independently with probability min(1, q̄ τ), τ its ridge leverage score.

    A point played c times has c chances, 1 − (1 − p)^c. If no draw succeeds the likeliest point is kept, so that the
    dictionary is never empty.

    Source: Calandriello et al., COLT 2019, Fig. 1. Differs: the fallback above; the resampling other than "fresh".
    BKB's theorem draws each round's dictionary independently of those before. "coupled" and "never" give that up, so
    the theorem does not cover them.

    Args:
        oversampling: q̄ > 0. The theorem asks for ``theoretical_oversampling``, which keeps nearly every point; in
            practice 2 to 10 (at 1 directions go missing and regret grows severalfold).
        resampling: how the dictionary of a round depends on the last one.
            "fresh": not at all; every selection draws anew for all points.
            "coupled": each point keeps one uniform for good, the i-th point the i-th of the generator's sequence, and
            is in the dictionary while that is below its inclusion probability. For given scores the inclusion
            probabilities are those of "fresh", and far fewer points come and go. From the second round on the scores
            depend on the uniforms too, by way of the last dictionary. (They are lower inside it than outside, so a
            point whose uniform lies between may come and go in every round.) The points must keep their order, or their
            ``numbers``, and each round must hand in an equal generator, as ``Bandit`` does.
            "never": points of the dictionary stay. The others have as many chances as they were played since it was
            chosen. Where it is not known what was there and what is new, all points are new.

    Many plays told at once look as if each brought something new, since the scores are those before any of them. Where
    the new plays would make up more than twice the dictionary and 256 points, all points are scored recursively
    instead, given all of them; so the dictionary is about as large as if they had come in parts. In a batch of BBKB
    Σ τ <= C − 1 but for its last play, so that no more than q̄ (C − 1) + 1 of its points are wanted: while that is at
    most 256 it is learned as the paper says, and beyond that by scores within a constant of those.

    Cost of a selection: O(u) when the scores are known (in a bandit they are), else that of
    ``recursive_leverage_scores``, O(u m²).
    """

    oversampling: float = 3.0
    resampling: Resampling = "fresh"

    def __post_init__(self) -> None:
        checks.keep(self, oversampling=checks.positive)
        checks.one_of("resampling", self.resampling, get_args(Resampling))
        object.__setattr__(self, "is_coupled", self.resampling == "coupled")

    def probabilities(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Tensor:
        """Return the probability (u,) in [0, 1] with which the next dictionary holds each played point.

        If points never leave, it is 1 for those that are there.
        """
        if self.resampling != "never":
            return self._chances(played, played.counts, generator)
        counts = played.counts if played.new_counts is None else played.new_counts
        joining = self._chances(played, counts, generator)
        return joining if played.in_dictionary is None else joining.masked_fill(played.in_dictionary, 1.0)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Draw the dictionary; see ``DictionaryRule.select``."""
        played.require_some()
        # Before scores are estimated, which may draw as well.
        uniforms = _uniforms_of(played, generator) if self.is_coupled else None
        probabilities = self.probabilities(played, generator)
        chosen = draw(probabilities, generator) if uniforms is None else included(uniforms, probabilities)
        return Selection.rows(played, chosen, probabilities[chosen])

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points without replacement, in proportion to their scores (probabilities: the clipped ones)."""
        played.require_some()
        probabilities = self._chances(played, played.counts, generator)
        weights = probabilities.double().clamp_min(torch.finfo(torch.float64).tiny).cpu()
        chosen = torch.multinomial(weights, min(size, played.size), generator=generator).to(probabilities.device)
        return Selection.rows(played, chosen, probabilities[chosen])

    def _chances(self, played: PlayedPoints, counts: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the probability (u,) that at least one of ``counts`` draws of each point succeeds."""
        known = played.leverage_scores
        if known is None or self._is_stale(known, played):
            known = recursive_leverage_scores(played, self.oversampling, generator)
        return inclusion_probabilities(known, counts, self.oversampling)

    def _is_stale(self, scores: Tensor, played: PlayedPoints) -> bool:
        """Say whether so much is new to a posterior that a dictionary by its scores would be far too large."""
        new = played.counts if played.new_counts is None else played.new_counts
        if float(new.sum()) <= FEW_POINTS:  # no more can be wanted: not looked at further in the rounds of a bandit
            return False
        held = 0.0 if played.in_dictionary is None else float(played.in_dictionary.sum())
        wanted = float(inclusion_probabilities(scores, new, self.oversampling).sum())
        return wanted > FEW_POINTS + 2.0 * held


def _uniforms_of(played: PlayedPoints, generator: torch.Generator | None) -> Tensor:
    """Return the uniform that each point keeps for good, (u,)."""
    if played.numbers is None:
        return kept_uniforms(played.size, generator)
    numbers = played.numbers.cpu()
    return kept_uniforms(int(numbers.max()) + 1, generator)[numbers]


def theoretical_oversampling(failure_probability: float, horizon: int, accuracy: float = 0.5) -> float:
    """Return q̄ = 6 α ln(4T/δ) / ε² with α = (1 + ε) / (1 − ε): enough for BKB's theorem over T rounds.

    Source: Calandriello et al., COLT 2019, Theorem 1.

    Args:
        failure_probability: δ in (0, 1).
        horizon: T, the number of rounds.
        accuracy: ε in (0, 1): the variances are within a factor α of the exact ones.
    """
    delta = checks.open_unit_interval("failure_probability", failure_probability)
    epsilon = checks.open_unit_interval("accuracy", accuracy)
    alpha = (1.0 + epsilon) / (1.0 - epsilon)
    return 6.0 * alpha * math.log(4.0 * checks.positive_integer("horizon", horizon) / delta) / epsilon**2


def leverage_scores(points: Tensor, noise: Tensor, counts: Tensor, kernel: Kernel, dictionary: Tensor) -> Tensor:
    """Return the ridge leverage scores of played points by the DTC posterior at a dictionary.

    Source: Calandriello et al., COLT 2019, §3.2: τ(x) = σ²(x) / λ.

    Args:
        points: (..., u, d), each observed ``counts`` times.
        noise: noise variance of one observation, (..., u) or broadcastable to it.
        counts: (u,).
        kernel: the prior covariance.
        dictionary: (..., m, d).

    Returns:
        (u,) in [0, ∞); with batch dimensions the largest over them, so that each member gets at least its due.

    Cost: O(u m²) time, O(u m) memory.
    """
    with torch.no_grad():
        cross_gram = gram(kernel, dictionary, points)
        targets = cross_gram.new_zeros(cross_gram.shape[-1])
        factors = DTCFactors.fit(gram(kernel, dictionary), cross_gram, targets, (noise / counts).to(cross_gram))
        variance = factors.variance(prior_variance(kernel, points), factors.embed(cross_gram))
        scores = variance / noise
    return scores.flatten(end_dim=-2).amax(0) if scores.dim() > 1 else scores


def recursive_leverage_scores(played: PlayedPoints, oversampling: float, generator: torch.Generator | None) -> Tensor:
    """Estimate the leverage scores of all points, given all of them, without ever forming their Gram matrix.

    A random subset of ``FEW_POINTS`` is its own dictionary; each doubling of the subset scores its points at the last
    dictionary and resamples. Up to ``FEW_POINTS`` points the scores are exact.

    Source: Musco & Musco, NeurIPS 2017, Alg. 3 (recursive halving). Differs: scores come from the DTC posterior, as in
    BKB, and the sampled points are not reweighted. No dictionary on the way is larger than ``played.max_size``: the
    likeliest points are kept.

    Returns:
        (u,).

    Cost: O(u m²) time, O(u m) memory, with m the largest dictionary on the way.
    """
    n = played.size
    device = played.points.device
    order = torch.randperm(n, generator=generator, device="cpu").to(device)
    noise = played.noise.expand(*played.noise.shape[:-1], n)
    size = min(n, FEW_POINTS)
    dictionary = order[:size][: played.max_size]
    while True:
        subset = order[:size]
        scores = leverage_scores(
            played.points[..., subset, :],
            noise[..., subset],
            played.counts[subset],
            played.kernel,
            played.points[..., dictionary, :],
        )
        if size == n:
            return torch.empty_like(scores).scatter(0, subset, scores)
        probabilities = inclusion_probabilities(scores, played.counts[subset], oversampling)
        drawn = draw(probabilities, generator)
        likeliest = probabilities[drawn].argsort(descending=True, stable=True)[: played.max_size]
        dictionary = subset[drawn[likeliest]]
        size = min(n, 2 * size)


def inclusion_probabilities(scores: Tensor, counts: Tensor, oversampling: float) -> Tensor:
    """Return 1 − (1 − p)^c with p = min(1, q̄ τ): a point played c >= 0 times has c chances. Shapes (u,)."""
    once = (oversampling * scores).clamp(0.0, 1.0)
    return -torch.expm1(torch.special.xlog1py(counts, -once))


def draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return the indices (m,) of independent Bernoulli draws; the likeliest point if none succeeds, so m >= 1."""
    return included(
        torch.rand(len(probabilities), generator=generator, dtype=torch.float64, device="cpu"), probabilities
    )


def included(uniforms: Tensor, probabilities: Tensor) -> Tensor:
    """Return the indices (m,) of uniforms below their probabilities; the likeliest point if none is, so m >= 1."""
    chosen = (uniforms.to(probabilities.device) < probabilities).nonzero().squeeze(-1)
    return chosen if len(chosen) else probabilities.argmax().reshape(1)


def kept_uniforms(number: int, generator: torch.Generator | None) -> Tensor:
    """Return the first uniforms (number,) of a sequence that the generator determines, however many are asked for.

    Whole blocks are drawn, since nothing promises that a shorter draw is the beginning of a longer one.
    """
    blocks = -(-number // _BLOCK)
    return torch.cat(
        [torch.rand(_BLOCK, generator=generator, dtype=torch.float64, device="cpu") for _ in range(blocks)]
    )[:number]
