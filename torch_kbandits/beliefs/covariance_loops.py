"""What happens to all covariances of few arms, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def observed(
    covariance: Array, mean: Array, rows: Array, counts: Array, totals: Array, regularization: float
) -> tuple[Array, Array, Array, float, float]:
    """Return the posterior after rewards of rows (k,), so many of each, (k,), with these sums, (k,), one by one.

    A negative count takes back rewards, whose sum is negative then.

    Returns:
        The covariance (n, n), the variance (n,), at least 0, the mean (n,), the growth of log det V, and by how much
        errors of the covariance that rounding left may have grown: at least 1, NaN where a number is not finite.

    Cost: O(k n²).
    """
    after, moved, size = covariance.copy(), mean.copy(), len(mean)
    column, gain, growth = np.empty_like(mean), 0.0, 1.0
    for k in range(len(rows)):
        row, noise = rows[k], regularization / counts[k]
        for j in range(size):
            column[j] = after[row, j]
        spread = noise + column[row]
        step = (totals[k] / counts[k] - moved[row]) / spread
        for i in range(size):
            part = column[i] / spread
            moved[i] += column[i] * step
            for j in range(size):
                after[i, j] -= part * column[j]
        share = spread / noise
        gain += np.log(share)
        if share < 1.0:
            growth = np.inf if share <= 0.0 else growth / (share * share)
    for i in range(size):
        if not (np.isfinite(moved[i]) and np.isfinite(after[i, i])):
            growth = np.nan
        column[i] = max(after[i, i], 0.0)
    return after, column, moved, gain, growth


@compiled
def correction(covariance: Array, rows: Array, prior: Array, normals: Array, counts: Array, noise: float) -> Array:
    """Return −C D⁻¹ (g + ε), (n,), with the columns of rows (k,) of a covariance (n, n).

    Args:
        covariance: of all rows.
        rows: (k,).
        prior: g, a draw of the prior at the rows, (k,).
        normals: ε in units of its deviations, (k,).
        counts: how many rewards each row has, (k,): D is the noise over these.
        noise: of one reward.
    """
    result = np.zeros(len(covariance))
    for k in range(len(rows)):
        level = noise / counts[k]
        weight, column = (prior[k] + np.sqrt(level) * normals[k]) / level, covariance[rows[k]]
        for i in range(len(result)):
            result[i] -= weight * column[i]
    return result


@compiled
def observed_one(
    covariance: Array, mean: Array, row: int, count: float, total: float, regularization: float
) -> tuple[Array, Array, Array, float, float]:
    """Return the same after rewards of one row."""
    rows, counts, totals = np.empty(1, np.int64), np.empty(1), np.empty(1)
    rows[0], counts[0], totals[0] = row, count, total
    return observed(covariance, mean, rows, counts, totals, regularization)
