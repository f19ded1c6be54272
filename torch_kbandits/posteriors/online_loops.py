"""What single points change in a DTC posterior, as loops."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled, compiled_within
from torch_kbandits.numerics.solve_loops import product

Array = np.ndarray

#: A symmetric matrix, base + Σ sign rowᵀ row: base (m, m or more), rows (k, m) and signs (k,); see ``Tracked``.
Matrix = tuple[Array, Array, Array]

#: Keeps roots of what rounding made negative finite; whoever gets such a share takes nothing else.
_TINY = 1e-300


@compiled
def times(matrix: Matrix, vector: Array) -> Array:
    """Return a matrix times a vector (m,)."""
    (base, rows, signs), size = matrix, len(vector)
    result = np.empty(size)
    for i in range(size):
        total = 0.0
        for j in range(size):
            total += base[i, j] * vector[j]
        result[i] = total
    for row in range(len(signs)):
        total = 0.0
        for j in range(size):
            total += rows[row, j] * vector[j]
        total *= signs[row]
        for j in range(size):
            result[j] += total * rows[row, j]
    return result


@compiled
def reduction(inverse: Matrix, point: Array) -> float:
    """Return zᵀK⁻¹z − zᵀz for a point of coordinates z (m,)."""
    return product(point, times(inverse, point)) - product(point, point)


@compiled_within
def inside(complement: Array, vector: Array) -> Array:
    """Return what orthonormal rows (r, m) leave of a vector (m,)."""
    left = vector.copy()
    for row in range(len(complement)):
        total = product(complement[row], vector)
        for j in range(len(vector)):
            left[j] -= total * complement[row, j]
    return left


@compiled
def moments(inverse: Matrix, complement: Array, weights: Array, point: Array) -> tuple[float, float, float]:
    """Return wᵀz, ``reduction`` and zᵀPz for weights w (m,) and a point of coordinates z (m,)."""
    return product(weights, point), reduction(inverse, point), product(point, inside(complement, point))


@compiled_within
def solved(inverse: Matrix, precision: Matrix, complement: Array, vector: Array) -> tuple[Array, float]:
    """Return K⁻¹ times a vector (m,), refined once, and which share of the vector K⁻¹ as it is loses."""
    solution = inside(complement, times(inverse, vector))
    residual = inside(complement, times(precision, solution))
    for j in range(len(vector)):
        residual[j] = vector[j] - residual[j]
    lost = np.sqrt(product(residual, residual) / max(product(vector, vector), _TINY))
    step = inside(complement, times(inverse, residual))
    for j in range(len(vector)):
        step[j] += solution[j]
    return step, lost


@compiled
def weights_of(inverse: Matrix, precision: Matrix, complement: Array, moment: Array) -> Array:
    """Return the weights (m,) of the mean; see ``OnlineDTC.weights_of``."""
    return solved(inverse, precision, complement, inside(complement, moment))[0]


@compiled
def taken_back(
    inverse: Matrix, precision: Matrix, complement: Array, point: Array, weight: float
) -> tuple[Array, Array, float]:
    """Return what rewards of a point of coordinates (m,) that go change; see ``rewarded``."""
    seen = inside(complement, point)
    return rewarded(solved(inverse, precision, complement, seen)[0], seen, point, weight, -1.0)


@compiled_within
def rewarded(solution: Array, seen: Array, point: Array, weight: float, sign: float) -> tuple[Array, Array, float]:
    """Return what rewards of a point of coordinates (m,) that come, or go, change.

    Args:
        solution: K⁻¹ times what is seen.
        seen: what is left of the point inside, (m,).
        point: its coordinates.
        weight: the summed 1/λ of its rewards.
        sign: −1 where they go.

    Returns:
        Rows of K⁻¹ and of M, (1, m) each, and the factor by which det K grows; only if that is positive the rest holds.
    """
    corner = 1.0 / weight + sign * product(solution, seen)
    size = len(point)
    row, told = np.empty((1, size)), np.empty((1, size))
    scale, root = 1.0 / np.sqrt(max(corner, _TINY)), np.sqrt(weight)
    for j in range(size):
        row[0, j], told[0, j] = scale * solution[j], root * point[j]
    return row, told, corner * weight


@compiled
def told(
    inverse: Matrix,
    precision: Matrix,
    complement: Array,
    moment: Array,
    weights: Array,
    point: Array,
    weight: float,
    reward: float,
) -> tuple[Array, Array, Array, Array, float, float]:
    """Return what is known after rewards of a point.

    Args:
        inverse: K⁻¹.
        precision: M.
        complement: Nᵀ (r, m).
        moment: Σ z_s y_s / λ_s, (m,).
        weights: those of the mean, (m,).
        point: its coordinates z (m,).
        weight: the summed 1/λ of its rewards.
        reward: the summed y/λ.

    Returns:
        The rows that K⁻¹ and M have apart from their bases, (k + 1, m) each; the moment; the weights, refined once; the
        factor by which det K grows; and a number that is finite only if all of these are.
    """
    seen = inside(complement, point)
    row, new, share = rewarded(times(inverse, seen), seen, point, weight, 1.0)
    fallen, came, size = row[0], new[0], len(point)
    sums, guess = np.empty(size), np.empty(size)
    # The solution for the reward is known; what drift there is in it and in the old weights is cleared as it came.
    unexpected = (reward - weight * product(point, weights)) / (weight * np.sqrt(max(share, _TINY) / weight))
    for j in range(size):
        sums[j] = moment[j] + reward * point[j]
        guess[j] = weights[j] + unexpected * fallen[j]
    rest, along = times(precision, guess), weight * product(point, guess)
    for j in range(size):
        rest[j] = sums[j] - rest[j] - along * point[j]
    left = inside(complement, rest)
    step, along = times(inverse, left), product(fallen, left)
    for j in range(size):
        step[j] += guess[j] - along * fallen[j]
    after = inside(complement, step)
    return extended(inverse[1], fallen), extended(precision[1], came), sums, after, share, total(after) + total(fallen)


@compiled_within
def extended(rows: Array, row: Array) -> Array:
    """Return rows (k, m) and one more (m,)."""
    number, size = rows.shape
    result = np.empty((number + 1, size))
    for j in range(size):
        for i in range(number):
            result[i, j] = rows[i, j]
        result[number, j] = row[j]
    return result


@compiled_within
def total(vector: Array) -> float:
    """Return the sum of the sizes of numbers (m,)."""
    result = 0.0
    for i in range(len(vector)):
        result += abs(vector[i])
    return result


@compiled
def grown(
    inverse: Matrix, precision: Matrix, complement: Array, weights: Array, cross: Array, below: float, moment: float
) -> tuple[Array, Array, Array, float]:
    """Return what is known once a spanning point joined while no other is left out.

    Args:
        inverse: K⁻¹ without it.
        precision: M without it.
        complement: (0, m).
        weights: those of the mean, (m,), without it.
        cross: its column of M, (m,).
        below: its diagonal entry there.
        moment: Σ f_s y_s / λ_s for its coordinate f.

    Returns:
        The rows that K⁻¹ and M have apart from their bases, (k + 1, m + 1) and (k, m + 1), the weights (m + 1,), of
        which rounding is not cleared, and the factor by which det K grows.
    """
    size, solution = len(cross), solved(inverse, precision, complement, cross)[0]
    share = below - product(cross, solution)
    risen, scale = np.empty(size + 1), 1.0 / np.sqrt(max(share, _TINY))
    for j in range(size):
        risen[j] = -scale * solution[j]
    risen[size] = scale
    after, step = np.empty(size + 1), (moment - product(cross, weights)) * risen[size]
    for j in range(size):
        after[j] = weights[j] + step * risen[j]
    after[size] = step * risen[size]
    return extended(widened(inverse[1]), risen), widened(precision[1]), after, share


@compiled_within
def widened(rows: Array) -> Array:
    """Return rows (k, m) with a 0 at the end of each."""
    number, size = rows.shape
    result = np.empty((number, size + 1))
    for i in range(number):
        for j in range(size):
            result[i, j] = rows[i, j]
        result[i, size] = 0.0
    return result


@compiled
def returned(
    inverse: Matrix, precision: Matrix, complement: Array, moment: Array, weights: Array, point: Array
) -> tuple[Array, Array, Array, float, float]:
    """Return what a spanning point of coordinates (m,) changes that was left out and comes back.

    Returns:
        Rows (2, m) of K⁻¹: the direction that it alone spans, which comes off, and what comes on; what only the others
        that are left out span, (r − 1, m); the weights of the mean; the factor by which det K grows; and the share that
        was lost.
    """
    number, size = complement.shape
    along = np.empty(number)
    for row in range(number):
        along[row] = product(complement[row], point)
    # The reflection that takes `along` to a multiple of the first unit vector takes the others to the rest.
    norm = np.sqrt(product(along, along))
    along[0] += norm if along[0] >= 0.0 else -norm
    scale = 2.0 / max(product(along, along), _TINY)
    mixed = np.zeros(size)
    for row in range(number):
        for j in range(size):
            mixed[j] += along[row] * complement[row, j]
    rest, rows = np.empty((number - 1, size)), np.empty((2, size))
    for j in range(size):
        rows[0, j] = complement[0, j] - scale * along[0] * mixed[j]
    for row in range(number - 1):
        for j in range(size):
            rest[row, j] = complement[row + 1, j] - scale * along[row + 1] * mixed[j]
    column = times(precision, rows[0])
    seen = inside(complement, column)
    solution, lost = solved(inverse, precision, complement, seen)
    share = product(rows[0], column) - product(seen, solution)
    scale, after = 1.0 / np.sqrt(max(share, _TINY)), np.empty(size)
    step = scale * (product(rows[0], moment) - product(seen, weights))
    for j in range(size):
        rows[1, j] = scale * (rows[0, j] - solution[j])
        after[j] = weights[j] + step * rows[1, j]
    return rows, rest, after, share, lost


@compiled
def left(
    inverse: Matrix, precision: Matrix, complement: Array, weights: Array, factor: Array, position: int
) -> tuple[Array, Array, Array, float, float]:
    """Return what a spanning point changes that leaves, given L (m, m or more).

    Returns:
        Rows (2, m) of K⁻¹: what comes off, and the direction that it alone spans, which comes on; what only those that
        are left out span, (r + 1, m); the weights of the mean; the factor by which det K grows; and the share that was
        lost.
    """
    size = complement.shape[1]
    direction = np.zeros(size)
    direction[position] = 1.0 / factor[position, position]
    for i in range(position + 1, size):
        total = 0.0
        for j in range(position, i):
            total += factor[i, j] * direction[j]
        direction[i] = -total / factor[i, i]
    for _ in range(2):  # the second time for what rounding leaves of the first
        direction = inside(complement, normed(direction))
    direction = normed(direction)
    solution, lost = solved(inverse, precision, complement, direction)
    share = product(direction, solution)
    rows, more, after = np.empty((2, size)), extended(complement, direction), np.empty(size)
    scale = 1.0 / np.sqrt(max(share, _TINY))
    step = scale * product(direction, weights)
    for j in range(size):
        rows[0, j], rows[1, j] = scale * solution[j], direction[j]
        after[j] = weights[j] - step * rows[0, j]
    return rows, more, inside(more, after), share, lost


@compiled_within
def normed(vector: Array) -> Array:
    """Return a multiple of a vector (m,) whose length is 1."""
    result, length = np.empty(len(vector)), np.sqrt(product(vector, vector))
    for j in range(len(vector)):
        result[j] = vector[j] / length
    return result
