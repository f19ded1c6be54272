"""A point offered to an online sample, as a loop."""

import numpy as np

from torch_kbandits.loops.compiled import compiled
from torch_kbandits.numerics import solve_loops

Array = np.ndarray


@compiled
def scored(
    cross: Array,
    prior: Array,
    factor: Array,
    projection: float,
    accuracy: float,
    oversampling: float,
    tolerance: float,
) -> tuple[Array, float, float]:
    """Return L⁻¹ k_Z(x) (m,), what it leaves of k(x, x), and the probability with which a point is taken.

    Args:
        cross: k_Z(x), (1, m), m >= 1.
        prior: k(x, x), (1,).
        factor: L (m, m).
        projection: μ.
        accuracy: ε.
        oversampling: γ.
        tolerance: negative where the sample is random; see ``OnlineSample``.
    """
    rows = cross.copy()
    solve_loops.solve(factor, rows)
    residual = prior[0]
    for i in range(rows.shape[1]):
        residual -= rows[0, i] * rows[0, i]
    left = max(residual, 0.0)
    if tolerance >= 0.0:
        chance = 1.0 if left > tolerance * prior[0] else 0.0
    else:
        chance = min(oversampling * (1.0 + accuracy) * left / (left + projection), 1.0)
    return rows[0], residual, chance


@compiled
def bordered(factor: Array, row: Array, corner: float) -> Array:
    """Return a lower triangular factor (m, m) with a row (m,) and the corner below."""
    m = row.shape[0]
    result = np.empty((m + 1, m + 1))
    for i in range(m):
        for j in range(m):
            result[i, j] = factor[i, j]
        result[i, m], result[m, i] = 0.0, row[i]
    result[m, m] = corner
    return result


@compiled
def gained(inverse: Array, cross: Array, prior: float) -> tuple[int, float]:
    """Return which point of a sample a new one is best exchanged for, and by which factor det K_ZZ grows then.

    Args:
        inverse: K_ZZ⁻¹ (m, m), m >= 1.
        cross: k_Z(x) of the new point, (m,).
        prior: k(x, x).
    """
    solved = np.empty(len(cross))
    residual = prior
    for i in range(len(cross)):
        solved[i] = solve_loops.product(inverse[i], cross)
        residual -= cross[i] * solved[i]
    residual, best, gain = max(residual, 0.0), 0, -1.0
    for i in range(len(cross)):
        grown = inverse[i, i] * residual + solved[i] * solved[i]
        if grown > gain:
            best, gain = i, grown
    return best, gain
