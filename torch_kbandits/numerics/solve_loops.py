"""Products, triangular solves and quadratic forms of vectors that are rows, as loops: four rows at a time."""

import numpy as np

from torch_kbandits.loops.compiled import compiled_within

Array = np.ndarray


@compiled_within
def product(left: Array, right: Array) -> float:
    """Return the sum of the products of numbers (m,)."""
    total = 0.0
    for i in range(left.shape[0]):
        total += left[i] * right[i]
    return total


#: Lines of a factor that are gone through at a time for all rows, so that they stay in cache.
_LINES = 32


@compiled_within
def solve(factor: Array, rows: Array) -> None:
    """Replace rows b (k, m) by L⁻¹b, for L lower triangular (m, m or more)."""
    k, m = rows.shape
    for start in range(0, m, _LINES):
        stop, a = min(start + _LINES, m), 0
        while a + 4 <= k:
            p, q, r, s = rows[a], rows[a + 1], rows[a + 2], rows[a + 3]
            for i in range(start, stop):
                line = factor[i]
                x, y, z, w = 0.0, 0.0, 0.0, 0.0
                for j in range(i):
                    entry = line[j]
                    x += entry * p[j]
                    y += entry * q[j]
                    z += entry * r[j]
                    w += entry * s[j]
                inverse = 1.0 / line[i]
                p[i] = (p[i] - x) * inverse
                q[i] = (q[i] - y) * inverse
                r[i] = (r[i] - z) * inverse
                s[i] = (s[i] - w) * inverse
            a += 4
        for b in range(a, k):
            p = rows[b]
            for i in range(start, stop):
                line = factor[i]
                x = 0.0
                for j in range(i):
                    x += line[j] * p[j]
                p[i] = (p[i] - x) / line[i]


@compiled_within
def quadratic(matrix: Array, rows: Array) -> Array:
    """Return bᵀMb for rows b (k, m) and a symmetric M (m, m), of which the lower half is read, (k,)."""
    k, m = rows.shape
    result = np.zeros(k)
    a = 0
    while a + 4 <= k:
        p, q, r, s = rows[a], rows[a + 1], rows[a + 2], rows[a + 3]
        for i in range(m):
            line = matrix[i]
            x, y, z, w = 0.0, 0.0, 0.0, 0.0
            for j in range(i):
                entry = line[j]
                x += entry * p[j]
                y += entry * q[j]
                z += entry * r[j]
                w += entry * s[j]
            result[a] += p[i] * (2.0 * x + line[i] * p[i])
            result[a + 1] += q[i] * (2.0 * y + line[i] * q[i])
            result[a + 2] += r[i] * (2.0 * z + line[i] * r[i])
            result[a + 3] += s[i] * (2.0 * w + line[i] * s[i])
        a += 4
    for b in range(a, k):
        p = rows[b]
        for i in range(m):
            line = matrix[i]
            x = 0.0
            for j in range(i):
                x += line[j] * p[j]
            result[b] += p[i] * (2.0 * x + line[i] * p[i])
    return result
