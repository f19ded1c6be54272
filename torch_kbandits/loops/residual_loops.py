"""A bet against predictions, as a loop over what is bet on."""

import math

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


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
        total = np.logaddexp(total, each)
    return np.logaddexp(math.log(left(number)), total - math.log(len(logs)))


@compiled
def bet(
    alternatives: Array, residuals: Array, groups: Array, known: tuple[int, Array, Array, int, Array], alarm: float
) -> tuple[int, Array, Array, int, Array, float, int]:
    """Return what is known then, ln M, and in which round it first was an alarm, −1 for none.

    Each of g groups has so many residuals, its round, and 1 if judged now, (g, 3). What is known is ``number``,
    ``logs``, ``starts``, ``num_held`` and ``held`` of ``Surprise``.
    """
    number, logs, starts, num_held, held = known
    logs, starts, held = logs.copy(), starts.copy(), held.copy()
    evidence, first, flagged = log_evidence(number, logs), 0, -1
    for g in range(len(groups)):
        count, now, is_judged = groups[g, 0], groups[g, 1], groups[g, 2] == 1
        num_held += count
        is_judged = is_judged and num_held > 0
        stake = math.log(left(number) - left(number + 1))
        for a in range(len(alternatives)):
            shift, deviation = alternatives[a, 0], alternatives[a, 1]
            for z in residuals[first : first + count]:
                ratio = 0.5 * (z * z - ((z - shift) / deviation) ** 2) - math.log(deviation)
                held[a] = np.logaddexp(held[a], ratio)
            if is_judged:
                if logs[a] <= stake:
                    starts[a] = now
                logs[a] = held[a] - math.log(num_held) + np.logaddexp(logs[a], stake)
                held[a] = -math.inf
        first += count
        if is_judged:
            number, num_held = number + 1, 0
            evidence = log_evidence(number, logs)
        if flagged < 0 and evidence >= alarm:
            flagged = now
    return number, logs, starts, num_held, held, evidence, flagged
