"""Ridge leverage scores: how much each point adds to what a dictionary spans."""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.posteriors.dtc import DTCFactors

#: Of so many points the leverage scores are computed exactly, which is cheap.
FEW_POINTS = 256

#: Kept uniforms are drawn so many at a time; another number would be another sequence of draws.
_BLOCK = 1024


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
