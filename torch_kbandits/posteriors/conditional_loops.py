"""What points observed at their posterior means take from variances, as loops. Points are rows, as memory has them."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled, compiled_within
from torch_kbandits.numerics.solve_loops import less_products, product, solve

Array = np.ndarray


@compiled_within
def cross(own: Array, inside: Array, roots: Array, values: Array, coordinates: Array, shares: Array) -> Array:
    """Return the covariances (N, k) of points and those observed; see ``Conditional.cross``.

    Args:
        own: (k, m).
        inside: (k, m), none if the residual is not learned.
        roots: (k,), likewise.
        values: kernel values (N, k) of points with those observed.
        coordinates: of the points, (N, m).
        shares: their own roots, (N,), none if the residual is not learned.
    """
    covariance = less_products(own, coordinates, values)
    if len(inside):
        residual = less_products(inside, coordinates, values)
        for a in range(len(values)):
            for i in range(len(own)):
                covariance[a, i] -= (1.0 - roots[i] * shares[a]) * residual[a, i]
    return covariance


@compiled
def taken(
    own: Array, inside: Array, roots: Array, factor: Array, values: Array, coordinates: Array, shares: Array
) -> Array:
    """Return ‖F‖² of points, (N,), given C (k, k or more); see ``cross`` and ``Conditional.taken``."""
    rows, total = cross(own, inside, roots, values, coordinates, shares), np.empty(len(values))
    solve(factor, rows)
    for a in range(len(rows)):
        total[a] = product(rows[a], rows[a])
    return total


@compiled
def bordered(
    own: Array,
    inside: Array,
    roots: Array,
    factor: Array,
    values: Array,
    coordinates: Array,
    shares: Array,
    noise: float,
) -> tuple[Array, float]:
    """Return the row (k,) that C gets where one point is observed besides k others, and the square of its diagonal.

    Arguments are those of ``taken`` for the point alone, N = 1, but that it is the last of those observed already.
    """
    covariance, k = cross(own, inside, roots, values, coordinates, shares), len(factor)
    across = covariance[:, :k].copy()
    solve(factor, across)
    return across[0], covariance[0, k] + noise - product(across[0], across[0])
