"""What follows of changes of rank one at each of many points, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled

Array = np.ndarray


@compiled
def follow(
    first: int,
    stop: int,
    products: Array,
    column: Array,
    corner: float,
    last: Array,
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
        products: of the rows of the changes with the features, (r, n); first that of the new column, if one joins.
        column: kernel values of the point of the new column, (n,); of no length if none joins.
        corner: what the new column is divided by.
        last: what each row has for the new column, (r,) without the column's own.
        scales: by how much of the square of a product variances change, (r,).
        spans: by how much of it what is spanned changes, (r,).
        steps: by how much of a product means change, (k, r).
        features: (n, width), into whose column ``size`` the new one is written.
        size: of the features before.
        mean: (k, n).
        variance: (n,).
        spanned: (n,).
    """
    joins = 1 if column.shape[0] else 0
    for i in range(first, stop):
        new = 0.0
        if joins:
            new = (column[i] - products[0, i]) / corner
            features[i, size] = new
        for r in range(scales.shape[0]):
            p = products[joins + r, i] + last[r] * new
            square = p * p
            variance[i] += scales[r] * square
            spanned[i] += spans[r] * square
            for k in range(steps.shape[0]):
                mean[k, i] += steps[k, r] * p
