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

#: Fixed uniforms are drawn so many at a time; another number would be another sequence of draws.
_BLOCK = 1024

Resampling = Literal["fresh", "coupled", "growth"]


@dataclass(frozen=True)
class RidgeLeverageSampling(DictionaryRule):
    """Keep each played point independently with probability min(1, q̄ c τ), τ its ridge leverage score, c its plays.

    An arm played c times is one point √c φ(x). If no draw succeeds the likeliest point is kept, so that the dictionary
    is never empty.

    Source: Calandriello et al., COLT 2019, Fig. 1. Differs: repeated plays, below; the fallback above; the resampling
    other than "fresh". BKB's theorem draws each round's dictionary independently of those before. "coupled" and
    "growth" give that up, so the theorem does not cover them.

    Repeated plays: Fig. 1 draws once for each play, with min(1, q̄ τ), so an arm played c times is missed with
    probability (1 − q̄ τ)^c. Where it alone explains itself, τ = 1/(c + λ/k), that stays near e^−q̄ for ever, and an arm
    that matters is lost in one round of e^q̄. Merged it is kept for certain once q̄ c τ >= 1. Never is it kept with less:
    min(1, q̄ c τ) >= 1 − (1 − min(1, q̄ τ))^c. The theorem holds for the merged law, with the same q̄ and bounds:

    - Merge the plays of each arm into ψ_i = √c_i φ(x_i). Then Σ_i ψ_i ψ_iᵀ = Σ_s φ_s φ_sᵀ =: F, so the posterior is
      that of one observation an arm, the mean of its rewards, of noise λ/c_i.
    - Its leverage scores are ψ_iᵀ (F + λ)⁻¹ ψ_i = c_i τ_i <= 1, and Σ c_i τ_i = Σ_s τ(x_s) = d_eff. So at most
      Σ p_i <= q̄ Σ c_i τ̃_i points are expected, the bound that holds for draws by plays.
    - With v_i = (F + λ)^−½ ψ_i and z_i = 1 where i is kept, the theorem's event is a bound on the norm of
      Σ_i (1 − z_i / p_i) v_i v_iᵀ, a sum of independent terms of mean 0. A term with p_i = 1 is 0. Any other has norm
      at most ‖v_i‖² / p_i = c_i τ_i / (q̄ c_i τ̃_i) <= α/q̄, by the accuracy α of the round before, and the variances add
      up to at most α/q̄ as well. These are the two numbers on which the concentration in the paper's appendix rests,
      and there are no more terms than plays. What is spanned does not depend on the weights 1/p_i.

    Args:
        oversampling: q̄ > 0. The theorem asks for ``theoretical_oversampling``, which keeps nearly every point; in
            practice 2 to 10.
        resampling: how the dictionary of a round depends on the last one.
            "fresh": not at all; every selection draws anew for all points.
            "coupled": each point keeps one uniform for good, the i-th point the i-th of the generator's sequence, and
            is in the dictionary while that is below its inclusion probability. For given scores the inclusion
            probabilities are those of "fresh", and far fewer points come and go. From the second round on the scores
            depend on the uniforms too, by way of the last dictionary. (They are lower inside it than outside, so a
            point whose uniform lies between may come and go in every round.) The points must keep their order, or their
            ``numbers``, and each round must hand in an equal generator, as ``Bandit`` does.
            "growth": as "coupled", but points of the dictionary stay. So a point is there once its uniform was below
            its inclusion probability in any round. For given scores the probability of that is the largest of its
            inclusion probabilities so far, no less than that of "fresh", and a point surely joins once q̄ c τ >= 1.

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
        if self.resampling != "fresh":
            object.__setattr__(self, "is_coupled", True)

    def probabilities(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Tensor:
        """Return the probability (u,) in [0, 1] with which the next dictionary holds each played point.

        If points never leave, it is 1 for those that are there.
        """
        return self._chances(played, generator, played.in_dictionary if self.resampling == "growth" else None)

    def select(self, played: PlayedPoints, generator: torch.Generator | None = None) -> Selection:
        """Draw the dictionary; see ``DictionaryRule.select``."""
        played.require_some()
        # Before scores are estimated, which may draw as well.
        uniforms = _uniforms_of(played, generator) if self.is_coupled else None
        probabilities = self.probabilities(played, generator)
        chosen = draw(probabilities, generator) if uniforms is None else included(uniforms, probabilities)
        # They are in order: no need to sort.
        return Selection(played.points[..., chosen, :], probabilities[chosen], chosen)

    def select_sized(self, played: PlayedPoints, size: int, generator: torch.Generator | None = None) -> Selection:
        """Draw ``size`` points without replacement, in proportion to their scores (probabilities: the clipped ones)."""
        played.require_some()
        probabilities = self._chances(played, generator)
        weights = probabilities.double().clamp_min(torch.finfo(torch.float64).tiny).cpu()
        chosen = torch.multinomial(weights, min(size, played.size), generator=generator)
        return Selection.rows(played, chosen, probabilities[chosen.to(probabilities.device)])

    def _chances(self, played: PlayedPoints, generator: torch.Generator | None, kept: Tensor | None = None) -> Tensor:
        """Return min(1, q̄ c τ), (u,), and 1 for the points that are kept, (u,) bool."""
        scores, counts = played.leverage_scores, played.counts
        if scores is None or self._is_stale(scores, played):
            scores = recursive_leverage_scores(played, self.oversampling, generator)
        chances = inclusion_probabilities(scores, counts, self.oversampling)
        return chances if kept is None else chances.masked_fill(kept, 1.0)

    def _is_stale(self, scores: Tensor, played: PlayedPoints) -> bool:
        """Say whether so much is new to a posterior that a dictionary by its scores would be far too large."""
        if played.most_new is not None and played.most_new <= FEW_POINTS:
            return False
        new = played.counts if played.new_counts is None else played.new_counts
        if float(new.sum()) <= FEW_POINTS:  # no more can be wanted: not looked at further in the rounds of a bandit
            return False
        held = 0.0 if played.in_dictionary is None else float(played.in_dictionary.sum())
        wanted = float(inclusion_probabilities(scores, new, self.oversampling).sum())
        return wanted > FEW_POINTS + 2.0 * held


def _uniforms_of(played: PlayedPoints, generator: torch.Generator | None) -> Tensor:
    """Return the uniform that each point keeps for good, (u,)."""
    if played.numbers is None:
        return fixed_uniforms(played.size, generator)
    numbers = played.numbers.cpu()
    return fixed_uniforms(int(numbers.max()) + 1, generator)[numbers]


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
    """Return the ridge leverage scores of one play of each point, by the DTC posterior at a dictionary.

    Source: Calandriello et al., COLT 2019, §3.2: τ(x) = σ²(x) / λ.

    Args:
        points: (..., u, d), each observed ``counts`` times.
        noise: noise variance of one observation, (..., u) or broadcastable to it.
        counts: (u,).
        kernel: the prior covariance.
        dictionary: (..., m, d).

    Returns:
        (u,) in [0, ∞), and c τ <= 1 where the dictionary holds the point; with batch dimensions the largest over them,
        so that each member gets at least its due.

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
    """Return min(1, q̄ c τ): a point played c >= 0 times is one point of c times the score. Shapes (u,)."""
    return (oversampling * counts * scores).clamp(0.0, 1.0)


def draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return the indices (m,) of independent Bernoulli draws; the likeliest point if none succeeds, so m >= 1."""
    return included(
        torch.rand(len(probabilities), generator=generator, dtype=torch.float64, device="cpu"), probabilities
    )


def included(uniforms: Tensor, probabilities: Tensor) -> Tensor:
    """Return the indices (m,) of uniforms below their probabilities; the likeliest point if none is, so m >= 1."""
    chosen = (uniforms.to(probabilities.device) < probabilities).nonzero().squeeze(-1)
    return chosen if len(chosen) else probabilities.argmax().reshape(1)


def fixed_uniforms(number: int, generator: torch.Generator | None) -> Tensor:
    """Return the first uniforms (number,) of a sequence that the generator determines, however many are asked for.

    Whole blocks are drawn, since nothing promises that a shorter draw is the beginning of a longer one.
    """
    count = -(-number // _BLOCK)
    blocks = [torch.rand(_BLOCK, generator=generator, dtype=torch.float64, device="cpu") for _ in range(count)]
    return (blocks[0] if count == 1 else torch.cat(blocks))[:number]
