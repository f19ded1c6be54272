"""What happens to all covariances of few arms, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def observed(
    covariance: Array, mean: Array, row: int, count: float, total: float, regularization: float
) -> tuple[Array, Array, float]:
    """Return covariance (n, n), mean (n,) and the growth of log det V after ``count`` rewards of a row."""
    noise, size = regularization / count, len(mean)
    spread = noise + covariance[row, row]
    step = (total / count - mean[row]) / spread
    after, moved = np.empty_like(covariance), np.empty_like(mean)
    for i in range(size):
        share = covariance[row, i] / spread
        moved[i] = mean[i] + covariance[row, i] * step
        for j in range(size):
            after[i, j] = covariance[i, j] - share * covariance[row, j]
    return after, moved, np.log1p(covariance[row, row] / noise)
