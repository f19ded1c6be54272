"""A bet against predictions, as a loop over what is bet on."""

import math

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def log_sum_of_two(one: float, other: float) -> float:
    """Return ln(e^x + e^y)."""
    low, high = min(one, other), max(one, other)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


@compiled
def left(number: int) -> float:
    """Return the sum of the stakes after the t-th; see ``Surprise``."""
    return 1.0 if number == 0 else 0.5 / (1.0 + math.log(number))


@compiled
def log_evidence(number: int, logs: Array) -> float:
    """Return ln M_t, in nats, from ln R_t of each alternative (a,); 0 before any residual."""
    if number == 0:
        return 0.0
    total = -math.inf
    for each in logs:
        total = log_sum_of_two(total, each)
    return log_sum_of_two(math.log(left(number)), total - math.log(len(logs)))


@compiled
def bet(
    alternatives: Array,
    residuals: Array,
    is_learned: bool,
    now: int,
    number: int,
    logs: Array,
    starts: Array,
    num_held: int,
    held: Array,
) -> tuple[Array, Array, Array, float]:
    """Return ln R, since when it was made, what is held, and ln M; see ``Surprise``.

    Args:
        alternatives: shift and deviation of each, (a, 2).
        residuals: (k,).
        is_learned: whether what is held is judged now.
        now: the round.
        number: how many factors there were.
        logs: ln R of each, (a,).
        starts: (a,).
        num_held: how many residuals were held.
        held: ln of the sum of their likelihood ratios under each, (a,).
    """
    waiting, is_judged = num_held + len(residuals), is_learned and num_held + len(residuals) > 0
    logs, starts, held = logs.copy(), starts.copy(), held.copy()
    stake = math.log(left(number) - left(number + 1))
    for a in range(len(alternatives)):
        shift, deviation = alternatives[a, 0], alternatives[a, 1]
        for z in residuals:
            ratio = 0.5 * (z * z - ((z - shift) / deviation) ** 2) - math.log(deviation)
            held[a] = log_sum_of_two(held[a], ratio)
        if is_judged:
            if logs[a] <= stake:
                starts[a] = now
            logs[a] = held[a] - math.log(waiting) + log_sum_of_two(logs[a], stake)
            held[a] = -math.inf
    return logs, starts, held, log_evidence(number + 1 if is_judged else number, logs)
