"""What points observed at their posterior means take from the variances of many arms, in one pass, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled
from torch_kbandits.tables.panel_loops import BLOCK, apply_rows

Array = np.ndarray


@compiled
def take(
    first: int,
    last: int,
    shift: int,
    features: Array,
    values: Array,
    own: Array,
    inside: Array,
    roots: Array,
    factor: Array,
    shares: Array,
    known: Array,
    before: Array,
    rows: Array,
    taken: Array,
) -> None:
    """Write what j more points take from arms ``first`` to ``last``, besides k others; see ``Conditional``.

    Args:
        first: number of an arm among those whose features these are.
        last: number after that of the last one.
        shift: number of the first of these among all A arms.
        features: (n, m or more).
        values: kernel values of the points and these arms, (j, n).
        own: z − K⁻¹z of the points, (j, m).
        inside: Πz of the points, (j, m), none if the residual is not learned.
        roots: r of the points, (j,), likewise.
        factor: their rows of C, (j, k + j).
        shares: r of all arms, (A,), none if the residual is not learned.
        known: F of the k others at all arms, (k, A).
        before: what they take, (A,).
        rows: becomes F of the points, (j, A).
        taken: becomes what all take, (A,).
    """
    number, size, k = len(own), own.shape[1], len(known)
    products = np.empty((number, BLOCK), features.dtype)
    residuals, one = np.empty((len(inside), BLOCK), features.dtype), features.dtype.type(1)
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        count, arm = stop - start, start + shift
        apply_rows(own, features, start, stop, size, products)
        apply_rows(inside, features, start, stop, size, residuals)
        taken[arm : arm + count] = before[arm : arm + count]
        for i in range(number):
            row = rows[i, arm : arm + count]
            for a in range(count):
                row[a] = values[i, start + a] - products[i, a]
            if len(inside):
                for a in range(count):
                    share = one - roots[i] * shares[arm + a]
                    row[a] -= share * (values[i, start + a] - residuals[i, a])
            for j in range(k):
                entry = factor[i, j]
                for a in range(count):
                    row[a] -= entry * known[j, arm + a]
            for j in range(i):
                entry = factor[i, k + j]
                for a in range(count):
                    row[a] -= entry * rows[j, arm + a]
            corner = factor[i, k + i]
            for a in range(count):
                row[a] /= corner
                taken[arm + a] += row[a] * row[a]
