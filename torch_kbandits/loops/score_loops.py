"""Scores of few candidates, as loops."""

import math

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def upper_confidence(mean: Array, variance: Array, beta: float, least: float) -> Array:
    """Return μ + β σ (A,), where variances count as at least so much."""
    scores = np.empty(mean.shape[0])
    for a in range(mean.shape[0]):
        scores[a] = mean[a] + beta * math.sqrt(max(variance[a], least))
    return scores


@compiled
def log_expected_improvement(mean: Array, variance: Array, best: float, least: float) -> Array:
    """Return log EI over a value (A,), where variances count as at least so much.

    With u = (μ − best)/σ it is log σ + log(φ(u) + u Φ(u)). Below −1 the sum is φ(u) (1 − e^w), e^w = |u| Φ(u)/φ(u), so
    that it does not cancel; below −20 its asymptotic series, u⁻² Σ_k (−1)^k (2k + 1)!! u^(−2k).

    Source: Ament et al., NeurIPS 2023, appendix A.1. Differs: the series.
    """
    scores, constant = np.empty(mean.shape[0]), 0.5 * math.log(2.0 * math.pi)
    for a in range(mean.shape[0]):
        deviation = math.sqrt(max(variance[a], least))
        u = (mean[a] - best) / deviation
        log_density = -0.5 * u * u - constant
        if u > -1.0:
            value = math.log(math.exp(log_density) + u * 0.5 * math.erfc(-u * math.sqrt(0.5)))
        elif u > -20.0:
            w = math.log(-0.5 * u * math.erfc(-u * math.sqrt(0.5))) - log_density
            value = log_density + (math.log(-math.expm1(w)) if w > -math.log(2.0) else math.log1p(-math.exp(w)))
        else:
            total, term = 1.0, 1.0
            for k in range(1, 9):
                term *= -(2 * k + 1) / (u * u)
                total += term
            value = log_density + math.log(total) - 2.0 * math.log(-u)
        scores[a] = value + math.log(deviation)
    return scores
