"""Scores of few candidates, and the best of them, as loops."""

import math

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def upper_confidence(mean: Array, variance: Array, beta: float, least: float) -> Array:
    """Return μ + β σ (A,), where variances count as at least so much."""
    scores = np.empty(mean.shape[0])
    for a in range(mean.shape[0]):
        scores[a] = mean[a] + beta * math.sqrt(max(variance[a], least))
    return scores


@compiled
def highest(scores: Array, beta: float, kernel_bound: float, share: float) -> tuple[int, float, bool]:
    """Return the position of the highest score (A,), the score, and whether no other is its equal but for rounding.

    That is a share of the larger of the score and of what β σ may be; see ``tie_width``.
    """
    best, number = scores[0], 0
    for a in range(1, scores.shape[0]):
        if scores[a] > best:
            best, number = scores[a], a
    least = best - share * max(abs(best), beta * math.sqrt(kernel_bound))
    near = 0
    for a in range(scores.shape[0]):
        if not scores[a] < least:
            near += 1
    return number, best, near == 1
