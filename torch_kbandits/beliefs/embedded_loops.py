"""Points in the coordinates of a posterior, with what it says of them, as a loop."""

from typing import Any

import numpy as np

from torch_kbandits.acquisition.rule_loops import highest
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
    beta: float,
    least: float,
    kernel_bound: float,
    share: float,
) -> tuple[Array, Array, Array, Array, Array, float, int, bool]:
    """Return kernel values (k, m), prior variances (k,), coordinates z (k, m), means wᵀz and variances (k,) of points.

    Of negative variances 0 is returned, and next the lowest of all as a share of the prior one, at most 0. Last the row
    of the highest upper confidence bound, and whether no other is its equal but for rounding; also where nobody asks,
    since it takes less than a second loop takes to compile.

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
        beta: as all that follow it what ``rule_loops.highest_upper_confidence`` takes.
        least: a variance.
        kernel_bound: likewise.
        share: of rounding.
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
    mean, scores, worst = np.empty(number), np.empty(number), 0.0
    for a in range(number):
        row = rows[a]
        variance[a] += prior[a] - product(row, row)
        mean[a] = product(weights, row)
        for t in range(len(signs)):
            variance[a] += signs[t] * product(changed[t], row) ** 2
        if variance[a] < 0.0:
            worst, variance[a] = min(worst, variance[a] / prior[a] if prior[a] > 0.0 else -np.inf), 0.0
        if is_single:
            variance[a] = np.float32(variance[a])
        scores[a] = mean[a] + beta * np.sqrt(max(variance[a], least))
    row, is_alone = 0, False
    if number:
        row, _, is_alone = highest(scores, beta, kernel_bound, share)
    return values, prior, rows, mean, variance, worst, row, is_alone


def chosen(
    formula: Array, X: Array, Z: Array, factor: Array, inverse: Array, changed: Array, signs: Array, *rest: Any
) -> tuple[int, bool, float, Array, Array, Array, Array, Array]:
    """Return the row of the highest upper confidence bound, and whether no other is its equal but for rounding.

    After these the lowest variance as a share of the prior one, at most 0, and what ``embedded`` returns before it, of
    points in double precision and a kernel that has a formula. It takes the arguments of ``embedded`` but for three.
    """
    found = embedded(formula, X, Z, False, NOTHING, NONE, factor, inverse, changed, signs, *rest)
    values, prior, rows, mean, variance, worst, row, is_alone = found
    return row, is_alone, worst, values, prior, rows, mean, variance
