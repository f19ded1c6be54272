"""A symmetric matrix and squares of rows, written as one, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def whole(base: Array, rows: Array, signs: Array, result: Array) -> None:
    """Write base + Σ sign rowᵀ row for rows (k, m) into the first m rows and columns of ``result``.

    Four rows at a time, for which a number of the result is read once. Of the base (m, m or more), which is symmetric,
    the part below the diagonal is read.
    """
    number, size = rows.shape
    for i in range(size):
        for j in range(i + 1):
            result[i, j] = base[i, j]
        for row in range(0, number - 3, 4):
            one, two, three, four = rows[row], rows[row + 1], rows[row + 2], rows[row + 3]
            a, b = signs[row] * one[i], signs[row + 1] * two[i]
            c, d = signs[row + 2] * three[i], signs[row + 3] * four[i]
            for j in range(i + 1):
                result[i, j] += a * one[j] + b * two[j] + c * three[j] + d * four[j]
        for row in range(number - number % 4, number):
            one = rows[row]
            a = signs[row] * one[i]
            for j in range(i + 1):
                result[i, j] += a * one[j]
        for j in range(i):
            result[j, i] = result[i, j]
