"""What happens at the played points, in one pass over their features, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled
from torch_kbandits.tables.panel_loops import BLOCK, apply_rows

Array = np.ndarray


@compiled
def follow(features: Array, rows: Array, signs: Array, before: Array, after: Array) -> None:
    """Write variances (n,) after squares of rows (k, m) of these signs (k,) changed those before, (n,)."""
    products = np.empty((len(rows), BLOCK))
    for start in range(0, len(before), BLOCK):
        stop = min(start + BLOCK, len(before))
        apply_rows(rows, features, start, stop, rows.shape[1], products)
        for point in range(stop - start):
            total = before[start + point]
            for i in range(len(rows)):
                total += signs[i] * products[i, point] * products[i, point]
            after[start + point] = total


@compiled
def join(
    features: Array,
    own: Array,
    corner: float,
    values: Array,
    weights: Array,
    moments: Array,
    new: Array,
    cross: Array,
) -> tuple[float, float]:
    """Write the coordinate that a spanning point adds to n points, and add to its column of M.

    Args:
        features: of the points, (n, m or more).
        own: the coordinates of the spanning point, (m,).
        corner: what the others leave of its deviation.
        values: its kernel values with the points, (n,).
        weights: the summed 1/λ of each, (n,).
        moments: the summed y/λ of each, (n,).
        new: becomes the new coordinate of each, (n,).
        cross: to which Σ weight feature new is added, (m,).

    Returns:
        Σ weight new² and Σ moment new.
    """
    size, below, moment = len(own), 0.0, 0.0
    for point in range(len(values)):
        total = 0.0
        for j in range(size):
            total += own[j] * features[point, j]
        value = (values[point] - total) / corner
        new[point] = value
        below += weights[point] * value * value
        moment += moments[point] * value
        weighted = weights[point] * value
        for j in range(size):
            cross[j] += weighted * features[point, j]
    return below, moment
