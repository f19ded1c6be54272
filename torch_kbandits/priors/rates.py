"""How well memories predict."""

import math
from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.rows import distinct_in_order

#: Points of the dictionary through which memories predict.
_DICTIONARY = 128


def predictive_densities(
    kernel: Kernel,
    regularization: float,
    memories: Sequence[Memory],
    X: Tensor,
    Y: Tensor,
    times: Tensor,
    predicted: Tensor,
) -> Tensor:
    """Return how well memories predict: the sum of the log densities of some rewards, each given those before it.

    The posterior is the Nyström–DTC one with a dictionary of at most 128 points, which is the exact one where these
    span the others.

    Args:
        kernel: the prior covariance of the points.
        regularization: λ > 0, the noise variance of a fresh reward.
        memories: G of them, without a prior on time.
        X: points (n, d), in the order of their times.
        Y: rewards (n,) less their mean.
        times: when each was made, (n,).
        predicted: which of them are predicted, (p,).

    Returns:
        (G,), in nats.

    Cost: O(G p u m²), u distinct points and m <= 128 of them in the dictionary.
    """
    with torch.no_grad():
        points, places = distinct_in_order(X)
        ones = torch.ones(len(points), dtype=torch.float64, device=X.device)
        Z = points[greedy_pivots(PlayedPoints(points, kernel, ones, ones), _DICTIONARY, 1e-8)]
        factor = jittered_cholesky(gram(kernel, Z), for_solving=True)
        embedding = torch.linalg.solve_triangular(factor, gram(kernel, Z, points), upper=False)
        left = (prior_variance(kernel, points) - embedding.square().sum(0)).clamp_min(0.0)
        here = places[predicted]
        z, least = embedding[:, here].mT, left[here] + regularization
        eye = torch.eye(len(Z), dtype=X.dtype, device=X.device)
        scores = []
        for memory in memories:
            weights = Y.new_zeros(len(predicted), len(Y))
            for row, s in zip(weights, predicted.tolist(), strict=True):
                row[:s] = 1.0 / memory.noise(times[:s], float(times[s]), regularization)
            none = Y.new_zeros(len(predicted), len(points))
            total, sums = none.index_add(1, places, weights), none.index_add(1, places, weights * Y)
            precision = jittered_cholesky(eye + (embedding * total.unsqueeze(-2)) @ embedding.mT)
            both = torch.stack([sums @ embedding.mT, z], dim=-1)
            moment, whitened = torch.linalg.solve_triangular(precision, both, upper=False).unbind(-1)
            variance = least + whitened.square().sum(-1)
            error = Y[predicted] - (moment * whitened).sum(-1)
            scores.append(-0.5 * (error.square() / variance + variance.log() + math.log(2.0 * math.pi)).sum())
        return torch.stack(scores)
