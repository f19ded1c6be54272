"""What follows of changes of rank one at each of many points, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray

#: Rows at a time, whose moments stay in the fastest memory.
_BLOCK = 512


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
        columns: kernel values of the points of the new columns, (c, n); the new ones are written there, too.
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
    joins, p = columns.shape[0], np.empty(_BLOCK)
    for start in range(first, stop, _BLOCK):
        end = min(start + _BLOCK, stop)
        for c in range(joins):
            for b in range(c):
                for i in range(start, end):
                    columns[c, i] -= last[c, b] * columns[b, i]
            for i in range(start, end):
                columns[c, i] = (columns[c, i] - products[c, i]) / corners[c]
                features[i, size + c] = columns[c, i]
        for r in range(scales.shape[0]):
            for i in range(start, end):
                p[i - start] = products[joins + r, i]
            for c in range(joins):
                if last[joins + r, c] != 0.0:
                    for i in range(start, end):
                        p[i - start] += last[joins + r, c] * columns[c, i]
            for i in range(start, end):
                variance[i] += scales[r] * (p[i - start] * p[i - start])
            if spans[r] != 0.0:
                for i in range(start, end):
                    spanned[i] += spans[r] * (p[i - start] * p[i - start])
            for k in range(steps.shape[0]):
                for i in range(start, end):
                    mean[k, i] += steps[k, r] * p[i - start]
