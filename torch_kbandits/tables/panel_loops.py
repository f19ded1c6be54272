"""What happens to the posterior at many points, in one pass over their features, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


#: Points at a time, whose products with rows stay in cache.
BLOCK = 512


@compiled
def apply_rows(rows: Array, features: Array, first: int, last: int, size: int, products: Array) -> None:
    """Write rows (k, m') times the first ``size`` features of points ``first`` to ``last``, of (n, m), (k, …).

    Four points at a time, which do not wait for one another: one of each quarter, so that all four lie in pages of
    their own, as whatever fetches memory ahead expects. Two rows at a time, for which a feature is read once. Where the
    quarters end the last point is done again, so that rounding depends on no border.
    """
    number, end, quarter, zero = len(rows), last - first - 1, (last - first + 3) // 4, features.dtype.type(0)
    for p in range(quarter):
        q, r, s = min(p + quarter, end), min(p + 2 * quarter, end), min(p + 3 * quarter, end)
        one, two, three, four = features[first + p], features[first + q], features[first + r], features[first + s]
        for row in range(0, number - 1, 2):
            left, right = rows[row], rows[row + 1]
            a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
            for i in range(size):
                a += left[i] * one[i]
                b += left[i] * two[i]
                c += left[i] * three[i]
                d += left[i] * four[i]
                e += right[i] * one[i]
                f += right[i] * two[i]
                g += right[i] * three[i]
                h += right[i] * four[i]
            products[row, p], products[row, q], products[row, r], products[row, s] = a, b, c, d
            below = row + 1
            products[below, p], products[below, q], products[below, r], products[below, s] = e, f, g, h
        if number % 2:
            left, row = rows[number - 1], number - 1
            a, b, c, d = zero, zero, zero, zero
            for i in range(size):
                a += left[i] * one[i]
                b += left[i] * two[i]
                c += left[i] * three[i]
                d += left[i] * four[i]
            products[row, p], products[row, q], products[row, r], products[row, s] = a, b, c, d


@compiled
def follow(
    first: int,
    last: int,
    features: Array,
    values: Array,
    corner: Array,
    old_rows: Array,
    new_rows: Array,
    signs: Array,
    spans: Array,
    expected: Array,
    before: Array,
    spanned_before: Array,
    mean: Array,
    variance: Array,
    spanned: Array,
) -> None:
    """Bring points ``first`` to ``last`` up to date with a change; see ``Panel.following``.

    Args:
        first: number of a point.
        last: number after that of the last one.
        features: (n, width); m of each point are known and the next a are written.
        values: kernel values of the new spanning points, (a, n).
        corner: (a, a).
        old_rows: their coordinates in the old ones, and the rows of the squares and the weights there, (a + k + 1, m).
        new_rows: these rows and weights in the new coordinates, (k + 1, a).
        signs: (k,).
        spans: (k,).
        expected: prior means, (n,), or (0,) if they are zero.
        before: variances, (n,).
        spanned_before: what the dictionary spanned, (n,), or (0,) if nobody asks.
        mean: becomes the means, (n,).
        variance: becomes the variances, (n,).
        spanned: becomes what the dictionary spans, (n,), or (0,).
    """
    added, number, known = len(corner), len(signs), old_rows.shape[1]
    zero = features.dtype.type(0)
    products = np.empty((len(old_rows), BLOCK), features.dtype)
    total, span = np.empty(BLOCK, features.dtype), np.empty(BLOCK, features.dtype)
    for start in range(first, last, BLOCK):
        stop = min(start + BLOCK, last)
        count = stop - start
        for point in range(count):
            total[point], span[point] = before[start + point], zero
        apply_rows(old_rows, features, start, stop, known, products)
        for i in range(added):
            for point in range(count):
                value = values[i, start + point] - products[i, point]
                for j in range(i):
                    value -= corner[i, j] * products[j, point]
                value /= corner[i, i]
                products[i, point] = value
                features[start + point, known + i] = value
                total[point] -= value * value
                span[point] += value * value
            for j in range(number + 1):
                for point in range(count):
                    products[added + j, point] += new_rows[j, i] * products[i, point]
        for i in range(number):
            for point in range(count):
                square = products[added + i, point] * products[added + i, point]
                total[point] += signs[i] * square
                span[point] += spans[i] * square
        for point in range(count):
            variance[start + point] = total[point]
            mean[start + point] = products[added + number, point]
        if len(expected):
            for point in range(start, stop):
                mean[point] += expected[point]
        if len(spanned):
            for point in range(count):
                spanned[start + point] = spanned_before[start + point] + span[point]


@compiled
def bounds(mean: Array, variance: Array, distance: float, rise: float) -> tuple[Array, Array]:
    """Return means (n,) and so many deviations, and variances (n,) times so much, where none counts as negative."""
    upper, most = np.empty_like(mean), np.empty_like(variance)
    for point in range(len(mean)):
        left = max(variance[point], 0.0)
        upper[point], most[point] = mean[point] + distance * np.sqrt(left), rise * left
    return upper, most
