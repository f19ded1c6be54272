"""What happens to the posterior at many points, in one pass over their features, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


#: Points at a time, whose features stay in the nearest cache while rows are applied to them.
_BLOCK = 32


@compiled
def apply_rows(rows: Array, features: Array, first: int, last: int, size: int, products: Array) -> None:
    """Write rows (k, m') times the first ``size`` features of points ``first`` to ``last``, of (n, m), (k, …)."""
    number, zero = rows.shape[0], features.dtype.type(0)
    done = 0
    while done + 4 <= number:  # four at a time, for each of which a feature is read once
        for point in range(first, last):
            one, two, three, four = zero, zero, zero, zero
            for i in range(size):
                feature = features[point, i]
                one += rows[done, i] * feature
                two += rows[done + 1, i] * feature
                three += rows[done + 2, i] * feature
                four += rows[done + 3, i] * feature
            products[done, point - first] = one
            products[done + 1, point - first] = two
            products[done + 2, point - first] = three
            products[done + 3, point - first] = four
        done += 4
    if done + 3 == number:
        for point in range(first, last):
            one, two, three = zero, zero, zero
            for i in range(size):
                feature = features[point, i]
                one += rows[done, i] * feature
                two += rows[done + 1, i] * feature
                three += rows[done + 2, i] * feature
            products[done, point - first] = one
            products[done + 1, point - first] = two
            products[done + 2, point - first] = three
    elif done + 2 == number:
        for point in range(first, last):
            one, two = zero, zero
            for i in range(size):
                feature = features[point, i]
                one += rows[done, i] * feature
                two += rows[done + 1, i] * feature
            products[done, point - first] = one
            products[done + 1, point - first] = two
    elif done + 1 == number:
        for point in range(first, last):
            one = zero
            for i in range(size):
                one += rows[done, i] * features[point, i]
            products[done, point - first] = one


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
    products = np.empty((len(old_rows), _BLOCK), features.dtype)
    total, span = np.empty(_BLOCK, features.dtype), np.empty(_BLOCK, features.dtype)
    for start in range(first, last, _BLOCK):
        stop = min(start + _BLOCK, last)
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
