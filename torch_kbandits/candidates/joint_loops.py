"""Actions beside a context, as a loop."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def joined(contexts: Array, actions: Array) -> tuple[Array, float]:
    """Return actions (A, a) beside contexts, (1, c) or (A, c), as (A, c + a), and the largest without its sign.

    It is infinite if one is NaN.
    """
    (number, width), columns, step, largest = actions.shape, contexts.shape[1], int(contexts.shape[0] > 1), 0.0
    result = np.empty((number, columns + width), actions.dtype)
    for a in range(number):
        for c in range(columns):
            result[a, c] = contexts[a * step, c]
        for c in range(width):
            result[a, columns + c] = actions[a, c]
        for c in range(columns + width):
            if not abs(result[a, c]) <= largest:
                largest = np.inf if result[a, c] != result[a, c] else abs(result[a, c])
    return result, largest
