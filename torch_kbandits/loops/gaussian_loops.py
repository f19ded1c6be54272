"""Changes of rank one of a covariance, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def add_outer(matrix: Array, row: Array, scale: float, out: Array) -> None:
    """Write a matrix (m, m) and scale times the outer product of a row (m,) with itself to another, (m, m).

    NumPy's memory is used again: what loops allocate themselves the system clears page by page, which takes longer.
    """
    size = row.shape[0]
    for i in range(size):
        part = scale * row[i]
        for j in range(size):
            out[i, j] = matrix[i, j] + part * row[j]


@compiled
def moved(mean: Array, cov: Array, row: Array, scale: float, step: Array, new_mean: Array, new_cov: Array) -> None:
    """Write a mean (k, m) and step (k,) row, and a covariance and scale row rowᵀ, to others; see ``Move``."""
    for k in range(step.shape[0]):
        for j in range(row.shape[0]):
            new_mean[k, j] = mean[k, j] + step[k] * row[j]
    add_outer(cov, row, scale, new_cov)


@compiled
def observed(mean: Array, cov: Array, z: Array, row: Array, at: Array) -> float:
    """Write cov z to a row (m,) and mean z to at (k,), and return zᵀ cov z."""
    total = 0.0
    at[:] = 0.0
    for i in range(z.shape[0]):
        part = 0.0
        for j in range(z.shape[0]):
            part += cov[i, j] * z[j]
        row[i] = part
        total += z[i] * part
        for k in range(at.shape[0]):
            at[k] += mean[k, i] * z[i]
    return total


@compiled
def count(places: Array, more: Array, values: Array, counts: Array, sums: Array) -> None:
    """Add to counts (u,) and sums (k, u) what is told of places (q,), or downdated; what is nothing is zero."""
    for q in range(places.shape[0]):
        place = places[q]
        counts[place] += more[q]
        is_gone = counts[place] <= 1e-12 * max(abs(more[q]), 1e-300)
        if is_gone:
            counts[place] = 0.0
        for k in range(sums.shape[0]):
            sums[k, place] = 0.0 if is_gone else sums[k, place] + values[k, q]


@compiled
def product(matrix: Array, vector: Array) -> Array:
    """Return a matrix (n, m) times a vector (m,): on one thread, since for few numbers others are waited for."""
    out = np.empty(matrix.shape[0])
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total
    return out


@compiled
def lower_inverse(factor: Array) -> Array:
    """Return the inverse of a lower triangular matrix (m, m)."""
    size = factor.shape[0]
    out = np.zeros((size, size))
    for i in range(size):
        out[i, i] = 1.0 / factor[i, i]
        for k in range(i):
            part = factor[i, k] * out[i, i]
            for j in range(k + 1):
                out[i, j] -= part * out[k, j]
    return out
