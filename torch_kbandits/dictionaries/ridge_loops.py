"""A dictionary by ridge leverage scores, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def probabilities(scores: Array, counts: Array, kept: Array, oversampling: float) -> Array:
    """Return min(1, q̄ c τ), (u,), and 1 for those of points (u,) that are kept, (u,) or (0,) if none is."""
    result = np.empty(len(scores))
    for i in range(len(scores)):
        value = oversampling * counts[i] * scores[i]
        value = 0.0 if value < 0.0 else value
        result[i] = 1.0 if value > 1.0 or (len(kept) and kept[i]) else value
    return result


@compiled
def included(uniforms: Array, chances: Array) -> Array:
    """Return the numbers of uniforms below their probabilities; that of the likeliest if none is, so at least one."""
    number, best = 0, 0
    chosen = np.empty(len(chances), np.int64)
    for i in range(len(chances)):
        if chances[i] > chances[best]:
            best = i
        if uniforms[i] < chances[i]:
            chosen[number] = i
            number += 1
    if number == 0:
        chosen[0], number = best, 1
    return chosen[:number]
