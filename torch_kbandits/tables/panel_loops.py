"""What happens to the posterior at many points, in one pass over their features, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def apply_rows(rows: Array, features: Array, size: int, products: Array) -> None:
    """Write rows (k, m') times the first ``size`` features (m,) of a point into products (k,)."""
    number, zero = len(rows), features.dtype.type(0)
    done = 0
    while done + 3 <= number:  # three at a time, for each of which a feature is read once
        one, two, three = rows[done], rows[done + 1], rows[done + 2]
        first, second, third = zero, zero, zero
        for i in range(size):
            first += one[i] * features[i]
            second += two[i] * features[i]
            third += three[i] * features[i]
        products[done], products[done + 1], products[done + 2] = first, second, third
        done += 3
    if done + 2 == number:
        one, two = rows[done], rows[done + 1]
        first, second = zero, zero
        for i in range(size):
            first += one[i] * features[i]
            second += two[i] * features[i]
        products[done], products[done + 1] = first, second
    elif done + 1 == number:
        one, first = rows[done], zero
        for i in range(size):
            first += one[i] * features[i]
        products[done] = first


@compiled
def follow(
    first: int,
    last: int,
    features: Array,
    own: Array,
    corner: Array,
    values: Array,
    rows: Array,
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
        own: (a, m).
        corner: (a, a).
        values: kernel values of the new spanning points, (a, n).
        rows: those of the squares and after them the weights, (k + 1, m + a).
        signs: (k,).
        spans: (k,).
        expected: prior means, (n,), or (0,) if they are zero.
        before: variances, (n,).
        spanned_before: what the dictionary spanned, (n,), or (0,) if nobody asks.
        mean: becomes the means, (n,).
        variance: becomes the variances, (n,).
        spanned: becomes what the dictionary spans, (n,), or (0,).
    """
    added, known = own.shape
    number, size = len(signs), rows.shape[1]
    zero = features.dtype.type(0)
    new, products = np.empty(added, features.dtype), np.empty(number + 1, features.dtype)
    for point in range(first, last):
        own_features = features[point]
        total, span = before[point], zero
        if added:
            apply_rows(own, own_features, known, new)
            for i in range(added):
                value = values[i, point] - new[i]
                for j in range(i):
                    value -= corner[i, j] * own_features[known + j]
                value /= corner[i, i]
                own_features[known + i] = value
                total -= value * value
                span += value * value
        apply_rows(rows, own_features, size, products)
        for i in range(number):
            square = products[i] * products[i]
            total += signs[i] * square
            span += spans[i] * square
        variance[point] = total
        mean[point] = products[number] if len(expected) == 0 else expected[point] + products[number]
        if len(spanned):
            spanned[point] = spanned_before[point] + span
