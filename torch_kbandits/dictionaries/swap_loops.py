"""Determinants after one candidate takes the place of a point, as a loop."""

import numpy as np

from torch_kbandits.numerics import solve_loops
from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


#: Rows that are solved for at a time.
TOGETHER = 32


@compiled
def parts_of_one(gram: Array) -> tuple[Array, Array, float, bool]:
    """Return what ``factors_of_one`` is made of: the diagonal of K_ZZ⁻¹, K_ZZ⁻¹k (m,), and k(x, x) − kᵀK_ZZ⁻¹k.

    And whether a Cholesky factor of K_ZZ exists; only then the rest holds. So many rows at a time, first of the factor,
    below which that of the candidate stands, then of the transpose of its inverse.

    Args:
        gram: K (m + 1, m + 1), that of the candidate last.
    """
    size = gram.shape[0] - 1
    factor, left = np.zeros((size + 1, size + 1)), 0.0
    leaving, seen = np.empty(size), np.empty(size)
    for first in range(0, size + 1, TOGETHER):
        last = min(first + TOGETHER, size + 1)
        rows = gram[first:last, :first].copy()
        solve_loops.solve(factor, rows)
        for i in range(first, last):
            for j in range(first):
                factor[i, j] = rows[i - first, j]
            for j in range(first, i + 1):
                total = gram[i, j]
                for k in range(j):
                    total -= factor[i, k] * factor[j, k]
                if j < i:
                    factor[i, j] = total / factor[j, j]
                elif i == size:
                    left = total
                elif total > 0.0:
                    factor[i, i] = np.sqrt(total)
                else:
                    return leaving, seen, left, False
    whitened = factor[size]
    for first in range(0, size, TOGETHER):
        last = min(first + TOGETHER, size)
        rows = np.zeros((last - first, size))
        for i in range(first, last):
            rows[i - first, i] = 1.0
        solve_loops.solve(factor, rows, first)
        for i in range(first, last):
            norm, along = 0.0, 0.0
            for k in range(first, size):
                entry = rows[i - first, k]
                norm += entry * entry
                along += entry * whitened[k]
            leaving[i], seen[i] = norm, along
    return leaving, seen, left, True
