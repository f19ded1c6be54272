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
