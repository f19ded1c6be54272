"""What follows of changes of rank one at each of many points, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def follow(
    first: int,
    stop: int,
    products: Array,
    columns: Array,
    last: Array,
    corners: Array,
    scales: Array,
    spans: Array,
    steps: Array,
    features: Array,
    size: int,
    mean: Array,
    variance: Array,
    spanned: Array,
) -> None:
    """Bring means (k, n), variances (n,) and what is spanned of them (n,) up to date, in place, rows first … stop − 1.

    Args:
        first: row.
        stop: the row after the last.
        products: of the rows of the changes with the features, (c + r, n); first those of the c new columns.
        columns: kernel values of the points of the new columns, (c, n).
        last: what each row has for the new columns, (c + r, c).
        corners: what the new columns are divided by, (c,).
        scales: by how much of the square of a product variances change, (r,).
        spans: by how much of it what is spanned changes, (r,).
        steps: by how much of a product means change, (k, r).
        features: (n, width), into whose columns from ``size`` on the new ones are written.
        size: of the features before.
        mean: (k, n).
        variance: (n,).
        spanned: (n,).
    """
    joins = columns.shape[0]
    new = np.empty(joins)
    for i in range(first, stop):
        for c in range(joins):
            p = columns[c, i] - products[c, i]
            for b in range(c):
                p -= last[c, b] * new[b]
            new[c] = p / corners[c]
            features[i, size + c] = new[c]
        for r in range(scales.shape[0]):
            p = products[joins + r, i]
            for c in range(joins):
                p += last[joins + r, c] * new[c]
            square = p * p
            variance[i] += scales[r] * square
            spanned[i] += spans[r] * square
            for k in range(steps.shape[0]):
                mean[k, i] += steps[k, r] * p
