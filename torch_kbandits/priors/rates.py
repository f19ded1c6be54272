"""The one number of a memory, as a horizon in units of time, and how well memories predict."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries.base import PlayedPoints
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.errors import InputError
from torch_kbandits.memory import (
    BackToPrior,
    Discount,
    Exponential,
    Growth,
    Linear,
    Memory,
    Quadratic,
    Restart,
    SlidingWindow,
    UncertaintyInjection,
)
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.rows import distinct_in_order

#: Points of the dictionary through which memories predict.
_DICTIONARY = 128


def with_horizon(memory: Memory, horizon: float) -> Memory:
    """Return the memory with the number by which it forgets what is older than the horizon, fully or by and by.

    Args:
        memory: one that has a number.
        horizon: h > 0, in units of time, or of observations if the memory counts these; infinite to forget nothing. It
            is the size of a window and the period of restarts. A discount becomes e^(−1/h), ε 1 − e^(−2/h), a linear
            rate 1 / h and a quadratic one 1 / h².

    Raises:
        InputError: if the memory has no number that is known here.
    """
    match memory:
        case SlidingWindow(unit="observations"):
            return replace(memory, size=horizon if horizon == math.inf else max(round(horizon), 1))
        case SlidingWindow():
            return replace(memory, size=horizon)
        case Restart():
            return replace(memory, period=horizon)
        case BackToPrior():
            return replace(memory, forgetting=-math.expm1(-2.0 / horizon))
        case Discount():
            return replace(memory, discount=math.exp(-1.0 / horizon))
        case UncertaintyInjection(growth=growth):
            return replace(memory, growth=_grown(growth, horizon))
    raise InputError(
        f"The rate of {type(memory).__name__} cannot be learned: take BackToPrior, Discount, UncertaintyInjection, "
        "SlidingWindow or Restart, or leave learn_memory out."
    )


def _grown(growth: Growth, horizon: float) -> Growth:
    match growth:
        case Linear():
            value = 1.0 / horizon
        case Quadratic():
            value = horizon**-2
        case Exponential():
            value = math.exp(-1.0 / horizon)
        case _:
            raise InputError(
                f"The rate of {type(growth).__name__} cannot be learned: take Linear, Quadratic or Exponential, or "
                "leave learn_memory out."
            )
    return replace(growth, **{growth.parameter: value})


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
        ones = torch.ones(len(points), device=X.device)
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
