"""What single points change in a DTC posterior, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray

#: A symmetric matrix, base + Σ sign rowᵀ row: its base (m, m), the rows (k, m) and their signs (k,).
Changed = tuple[Array, Array, Array]


@compiled
def times(matrix: Changed, vector: Array) -> Array:
    """Return a matrix times a vector (m,)."""
    (base, rows, signs), size = matrix, len(vector)
    product = np.empty(size)
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += base[i, j] * vector[j]
        product[i] = total
    for row in range(len(signs)):
        total = 0.0
        for j in range(size):
            total += rows[row, j] * vector[j]
        total *= signs[row]
        for j in range(size):
            product[j] += total * rows[row, j]
    return product


@compiled
def inside(complement: Array, vector: Array) -> Array:
    """Return what orthonormal rows (r, m) leave of a vector (m,)."""
    left = vector.copy()
    for row in range(len(complement)):
        total = 0.0
        for j in range(len(vector)):
            total += complement[row, j] * vector[j]
        for j in range(len(vector)):
            left[j] -= total * complement[row, j]
    return left


@compiled
def solved(inverse: Changed, precision: Changed, complement: Array, vector: Array) -> tuple[Array, float]:
    """Return K⁻¹ times a vector (m,), refined once, and which share of the vector K⁻¹ as it is loses."""
    solution = inside(complement, times(inverse, vector))
    residual = vector - inside(complement, times(precision, solution))
    lost = np.sqrt(np.sum(residual * residual) / max(np.sum(vector * vector), 1e-300))
    return solution + inside(complement, times(inverse, residual)), lost


@compiled
def with_row(matrix: Changed, row: Array, sign: float, most: int) -> Changed:
    """Return a matrix changed by one more row (m,), written out if there are more than so many."""
    base, rows, signs = matrix
    number, size = rows.shape
    if number < most:
        more, kinds = np.empty((number + 1, size)), np.empty(number + 1)
        more[:number], kinds[:number] = rows, signs
        more[number], kinds[number] = row, sign
        return base, more, kinds
    whole = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            whole[i, j] = base[i, j] + sign * row[i] * row[j]
    for k in range(number):
        for i in range(size):
            factor = signs[k] * rows[k, i]
            for j in range(size):
                whole[i, j] += factor * rows[k, j]
    return whole, rows[:0], signs[:0]


@compiled
def rewarded(
    inverse: Changed, precision: Changed, complement: Array, point: Array, weight: float, sign: float, most: int
) -> tuple[Changed, Changed, Array, float]:
    """Return K⁻¹ and M after rewards of a point of coordinates (m,) came, or went, the row of K⁻¹, and a share.

    That is by which factor det K grows; where it is not positive nothing of the rest holds.
    """
    seen = inside(complement, point)
    solution = times(inverse, seen) if sign > 0.0 else solved(inverse, precision, complement, seen)[0]
    explained = 0.0
    for j in range(len(point)):
        explained += solution[j] * seen[j]
    corner = 1.0 / weight + sign * explained
    row = solution / np.sqrt(max(corner, 1e-300))
    after = with_row(precision, np.sqrt(weight) * point, sign, most)
    return with_row(inverse, row, -sign, most), after, row, corner * weight
