"""Changes of rank one of a covariance, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def with_outer(matrix: Array, row: Array, scale: float) -> Array:
    """Return a matrix (m, m) and scale times the outer product of a row (m,) with itself."""
    size = row.shape[0]
    out = np.empty((size, size))
    for i in range(size):
        part = scale * row[i]
        for j in range(size):
            out[i, j] = matrix[i, j] + part * row[j]
    return out


@compiled
def add_outer(matrix: Array, row: Array, scale: float) -> None:
    """Add scale times the outer product of a row (m,) with itself to a matrix (m, m)."""
    for i in range(row.shape[0]):
        part = scale * row[i]
        for j in range(row.shape[0]):
            matrix[i, j] += part * row[j]
