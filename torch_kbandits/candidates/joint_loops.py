"""Actions beside a context, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def joined(contexts: Array, actions: Array) -> tuple[Array, float]:
    """Return actions (A, a) beside contexts, (1, c) or (A, c), as (A, c + a), and a sum that is finite only if all are.

    The sum may overflow where all are finite.
    """
    (number, width), columns, step, total = actions.shape, contexts.shape[1], int(contexts.shape[0] > 1), 0.0
    result = np.empty((number, columns + width), actions.dtype)
    for a in range(number):
        for c in range(columns):
            total += contexts[a * step, c]
            result[a, c] = contexts[a * step, c]
        for c in range(width):
            total += actions[a, c]
            result[a, columns + c] = actions[a, c]
    return result, total
