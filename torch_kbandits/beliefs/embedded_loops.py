"""Points in the coordinates of a posterior, with what it says of them, as a loop."""

import numpy as np

from torch_kbandits.numerics import formula_loops, solve_loops
from torch_kbandits.numerics.compiled import compiled
from torch_kbandits.numerics.solve_loops import product

Array = np.ndarray

#: Kernel values and prior variances where a formula says them.
NOTHING, NONE = np.zeros((0, 0)), np.zeros(0)


@compiled
def embedded(
    formula: Array,
    X: Array,
    Z: Array,
    is_single: bool,
    known: Array,
    known_prior: Array,
    factor: Array,
    inverse: Array,
    changed: Array,
    signs: Array,
    weights: Array,
    outside: Array,
) -> tuple[Array, Array, Array, Array, Array, Array, float]:
    """Return kernel values (k, m), prior variances (k,), coordinates z (k, m), zᵀPz, wᵀz and variances (k,) of points.

    P projects on what the dictionary spans. Of negative variances 0 is returned, and last the lowest of all as a share
    of the prior one, at most 0.

    Args:
        formula: of the kernel, none if it has no formula: then its values are given.
        X: the points, (k, d).
        Z: the spanning points, (m, d).
        is_single: whether kernel values are rounded to single precision, that of the points.
        known: kernel values, (k, m), if there is no formula.
        known_prior: (k,), likewise.
        factor: L (m, m).
        inverse: K⁻¹ (m, m), but for what some rows changed of it, Σ sign rowᵀ row.
        changed: these rows, (r, m).
        signs: (r,).
        weights: w (m,).
        outside: Nᵀ (r, m), what only spanning points span that are not in the dictionary.
    """
    values, prior, (number, size) = known, known_prior, (len(X), len(Z))
    if len(formula):
        values, prior = formula_loops.values(formula, X, Z), formula_loops.variances(formula, X)
    rows = np.empty((number, size))
    for a in range(number):
        if is_single and len(formula):
            prior[a] = np.float32(prior[a])
            for j in range(size):
                values[a, j] = np.float32(values[a, j])
        for j in range(size):
            rows[a, j] = values[a, j]
    solve_loops.solve(factor, rows)
    variance = solve_loops.quadratic(inverse, rows)
    mean, spanned, worst = np.empty(number), np.empty(number), 0.0
    for a in range(number):
        row = rows[a]
        spanned[a] = product(row, row)
        variance[a] += prior[a] - spanned[a]
        for t in range(len(outside)):
            spanned[a] -= product(outside[t], row) ** 2
        mean[a] = product(weights, row)
        for t in range(len(signs)):
            variance[a] += signs[t] * product(changed[t], row) ** 2
        if variance[a] < 0.0:
            worst, variance[a] = min(worst, variance[a] / prior[a] if prior[a] > 0.0 else -np.inf), 0.0
        if is_single:
            variance[a] = np.float32(variance[a])
    return values, prior, rows, spanned, mean, variance, worst
