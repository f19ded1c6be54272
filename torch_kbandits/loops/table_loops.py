"""Products of changes of rank one with features, and what follows of them at each of many points, as loops.

They are as fast as BLAS here, and their threads do not wait for each other where another process has a core.
"""

import numpy as np

from torch_kbandits.loops.compiled import compiled, compiled_within

Array = np.ndarray
Arrays = tuple[Array, ...]

#: Points at a time, whose moments stay in the fastest memory.
_BLOCK = 512

#: The same where there are as many products as coordinates.
_FEW = 64


@compiled_within
def extents(rows: Array) -> Array:
    """Return before which column all further ones of four rows each are zero, (⌈r / 4⌉,), at least 1."""
    number, size = rows.shape
    ends = np.ones((number + 3) // 4, np.int64)
    for r in range(number):
        j = size - 1
        while j >= ends[r // 4] and rows[r, j] == 0.0:
            j -= 1
        ends[r // 4] = max(ends[r // 4], j + 1)
    return ends


@compiled_within
def multiply(first: int, stop: int, rows: Array, ends: Array, features: Array, out: Array, shift: int) -> None:
    """Write products of rows (r, m) with features first … stop − 1 to columns of out, (r, …), from first − shift on.

    Four rows at a time share what is read of the features (n, M), of which the first m columns count, and only those
    before the ``extents`` of the rows: so a triangular matrix takes half of the time.
    """
    number, r = rows.shape[0], 0
    while r + 4 <= number:
        size = ends[r // 4]
        for i in range(first, stop):
            value = features[i, 0]  # sums in the dtype of the features
            a, b, c, d = rows[r, 0] * value, rows[r + 1, 0] * value, rows[r + 2, 0] * value, rows[r + 3, 0] * value
            for j in range(1, size):
                value = features[i, j]
                a += rows[r, j] * value
                b += rows[r + 1, j] * value
                c += rows[r + 2, j] * value
                d += rows[r + 3, j] * value
            out[r, i - shift], out[r + 1, i - shift], out[r + 2, i - shift], out[r + 3, i - shift] = a, b, c, d
        r += 4
    while r < number:
        for i in range(first, stop):
            a = rows[r, 0] * features[i, 0]
            for j in range(1, ends[r // 4]):
                a += rows[r, j] * features[i, j]
            out[r, i - shift] = a
        r += 1


@compiled
def products(first: int, stop: int, rows: Array, features: Array, out: Array) -> None:
    """Write products of rows (r, m), m > 0, with features (n, M) to out (r, n), those of points first … stop − 1."""
    ends = extents(rows)
    for start in range(first, stop, _BLOCK):
        multiply(start, min(start + _BLOCK, stop), rows, ends, features, out, 0)


@compiled
def follow(first: int, stop: int, rows: Array, update: Arrays, features: Array, moments: Arrays) -> None:
    """Bring means (k, n), variances (n,) and what is spanned of them (n,) up to date, in place, rows first … stop − 1.

    Rows (c + r, m) are those of c new columns and r changes, in the dtype of the features (n, M), of which the first m
    columns are known, and the next c are written. The update is kernel values of the points of the new columns, (c, n),
    what each row has for these, (c + r, c), what they are divided by, (c,), and what is added to variances and to what
    is spanned, times the square of a product, and to means, times the product, (r, 2 + k).
    """
    columns, last, corners, changes = update
    mean, variance, spanned = moments
    number, size, joins = rows.shape[0], rows.shape[1], columns.shape[0]
    p, new, ends = np.zeros((number, _BLOCK)), np.empty((joins, _BLOCK)), extents(rows)
    for start in range(first, stop, _BLOCK):
        end = min(start + _BLOCK, stop)
        if size:
            multiply(start, end, rows, ends, features, p, start)
        else:
            p.fill(0.0)
        for c in range(joins):
            for i in range(start, end):
                new[c, i - start] = columns[c, i] - p[c, i - start]
            for b in range(c):
                for i in range(end - start):
                    new[c, i] -= last[c, b] * new[b, i]
            for i in range(start, end):
                new[c, i - start] /= corners[c]
                features[i, size + c] = new[c, i - start]
        for r in range(changes.shape[0]):
            for c in range(joins):
                if last[joins + r, c] != 0.0:
                    for i in range(end - start):
                        p[joins + r, i] += last[joins + r, c] * new[c, i]
            for i in range(start, end):
                square = p[joins + r, i - start] * p[joins + r, i - start]
                variance[i] += changes[r, 0] * square
                spanned[i] += changes[r, 1] * square
            for k in range(mean.shape[0]):
                for i in range(start, end):
                    mean[k, i] += changes[r, 2 + k] * p[joins + r, i - start]


@compiled
def refit(first: int, stop: int, rows: Array, features: Array, prior: Array, moments: Arrays) -> None:
    """Compute variances (n,) and what is spanned of them (n,) afresh, and add to means (k, n), rows first … stop − 1.

    Rows (m + k + r, m) are a matrix with the quadratic form of cov, means of w, and ``void``.
    """
    mean, variance, spanned = moments
    number, size, k = rows.shape[0], rows.shape[1], mean.shape[0]
    p, ends = np.zeros((number, _FEW)), extents(rows)
    for start in range(first, stop, _FEW):
        end = min(start + _FEW, stop)
        if size:
            multiply(start, end, rows, ends, features, p, start)
        for i in range(start, end):
            inside, left = 0.0, 0.0
            for j in range(size):
                value = features[i, j]
                inside += value * value
                left += p[j, i - start] * value
            variance[i], spanned[i] = prior[i] - inside + left, inside
        for row in range(k):
            for i in range(start, end):
                mean[row, i] += p[size + row, i - start]
        for row in range(size + k, number):
            for i in range(start, end):
                spanned[i] -= p[row, i - start] * p[row, i - start]
