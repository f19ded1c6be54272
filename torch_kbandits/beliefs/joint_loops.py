"""The variances of points where others are pending, as a loop."""

import numpy as np

from torch_kbandits.numerics import formula_loops
from torch_kbandits.numerics.compiled import compiled
from torch_kbandits.posteriors import conditional_loops

Array = np.ndarray


@compiled
def variance_given(
    formula: Array,
    X: Array,
    P: Array,
    is_single: bool,
    own: Array,
    inside: Array,
    roots: Array,
    factor: Array,
    coordinates: Array,
    shares: Array,
    variance: Array,
) -> Array:
    """Return variances (N,) given points pending; see ``conditional_loops.taken`` for what is not said here.

    Args:
        formula: of the kernel.
        X: the points, (N, d).
        P: the pending points, (k, d).
        is_single: whether kernel values are rounded to single precision, that of the points.
        own: of the pending points, (k, m).
        inside: of these, (k, m), or none.
        roots: of these, (k,), or none.
        factor: C.
        coordinates: of the points, (N, m).
        shares: of the points, (N,), or none.
        variance: of the points without anything pending, (N,).
    """
    values = formula_loops.values(formula, X, P)
    if is_single:
        values = values.astype(np.float32).astype(np.float64)
    left = variance - conditional_loops.taken(own, inside, roots, factor, values, coordinates, shares)
    for a in range(len(left)):
        left[a] = max(left[a], 0.0)
    return left
