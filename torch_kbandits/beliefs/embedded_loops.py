"""Points in the coordinates of a posterior, with what it says of them, as a loop."""

import numpy as np

from torch_kbandits.acquisition.rule_loops import highest_upper_confidence
from torch_kbandits.numerics import formula_loops, solve_loops
from torch_kbandits.numerics.compiled import compiled
from torch_kbandits.numerics.solve_loops import product

Array = np.ndarray


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
) -> tuple[Array, Array, Array, Array, Array, float]:
    """Return kernel values (k, m), prior variances (k,), coordinates z (k, m), means wᵀz and variances (k,) of points.

    Of negative variances 0 is returned, and last the lowest of all as a share of the prior one, at most 0.

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
    """
    values, prior = known, known_prior
    if len(formula):
        values, prior = formula_loops.values(formula, X, Z), formula_loops.variances(formula, X)
        if is_single:
            values, prior = values.astype(np.float32).astype(np.float64), prior.astype(np.float32).astype(np.float64)
    rows = values.copy()
    solve_loops.solve(factor, rows)
    variance = solve_loops.quadratic(inverse, rows)
    mean, worst = np.empty(len(rows)), 0.0
    for a in range(len(rows)):
        row = rows[a]
        variance[a] += prior[a] - product(row, row)
        mean[a] = product(weights, row)
        for t in range(len(signs)):
            variance[a] += signs[t] * product(changed[t], row) ** 2
        if variance[a] < 0.0:
            worst, variance[a] = min(worst, variance[a] / prior[a] if prior[a] > 0.0 else -np.inf), 0.0
    if is_single:
        variance = variance.astype(np.float32).astype(np.float64)
    return values, prior, rows, mean, variance, worst


@compiled
def chosen(
    formula: Array,
    X: Array,
    Z: Array,
    factor: Array,
    inverse: Array,
    changed: Array,
    signs: Array,
    weights: Array,
    beta: float,
    least: float,
    kernel_bound: float,
    share: float,
) -> tuple[int, bool, float, Array, Array, Array, Array, Array]:
    """Return the row of the highest upper confidence bound, and whether no other is its equal but for rounding.

    After these the lowest variance as a share of the prior one, at most 0, and what ``embedded`` returns before it, of
    points in double precision and a kernel that has a formula. Other arguments as for ``highest_upper_confidence``.
    """
    none, nothing = np.zeros((0, 0)), np.zeros(0)
    is_single = len(formula) == 0  # which is False; by that name it would be compiled for as another type
    known = embedded(formula, X, Z, is_single, none, nothing, factor, inverse, changed, signs, weights)
    values, prior, rows, mean, variance, worst = known
    row, _, is_alone = highest_upper_confidence(mean, variance, beta, least, kernel_bound, share)
    return row, is_alone, worst, values, prior, rows, mean, variance
