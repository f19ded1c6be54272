"""What points observed at their posterior means take from the variances of many arms, in one pass, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled, compiled_within
from torch_kbandits.tables.panel_loops import apply_rows

Array = np.ndarray

#: Arms at a time: many, for of each row that is known a stretch is read.
_BLOCK = 4096


@compiled_within
def subtract(factors: Array, rows: Array, first: int, row: Array) -> None:
    """Subtract rows (k, A), of each as many numbers as there are from a first one on, times factors (k or more,).

    Eight rows at a time, so that what is left is not written for each.
    """
    k, last = len(rows), first + len(row)
    for j in range(0, k - 7, 8):
        a, b, c, d = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        e, f, g, h = factors[j + 4], factors[j + 5], factors[j + 6], factors[j + 7]
        p, q, r, s = rows[j, first:last], rows[j + 1, first:last], rows[j + 2, first:last], rows[j + 3, first:last]
        t, u, v, w = rows[j + 4, first:last], rows[j + 5, first:last], rows[j + 6, first:last], rows[j + 7, first:last]
        for i in range(len(row)):
            left = a * p[i] + b * q[i] + c * r[i] + d * s[i]
            row[i] -= left + e * t[i] + f * u[i] + g * v[i] + h * w[i]
    for j in range(k - k % 8, k):
        one, x = rows[j, first:last], factors[j]
        for i in range(len(row)):
            row[i] -= x * one[i]


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
    products = np.empty((number, _BLOCK), features.dtype)
    residuals, one = np.empty((len(inside), _BLOCK), features.dtype), features.dtype.type(1)
    for start in range(first, last, _BLOCK):
        stop = min(start + _BLOCK, last)
        count, arm = stop - start, start + shift
        apply_rows(own, features, start, stop, size, products)
        apply_rows(inside, features, start, stop, size, residuals)
        for a in range(count):
            taken[arm + a] = before[arm + a]
        for i in range(number):
            row = rows[i, arm : arm + count]
            for a in range(count):
                row[a] = values[i, start + a] - products[i, a]
            if len(inside):
                for a in range(count):
                    share = one - roots[i] * shares[arm + a]
                    row[a] -= share * (values[i, start + a] - residuals[i, a])
            subtract(factor[i], known, arm, row)
            for j in range(i):
                entry = factor[i, k + j]
                for a in range(count):
                    row[a] -= entry * rows[j, arm + a]
            corner = factor[i, k + i]
            for a in range(count):
                row[a] /= corner
                taken[arm + a] += row[a] * row[a]
