"""Kernel values by their formula, as loops.

A kernel is a sum of products of factors, one a row: its kind, whether a product begins with it, the number that this
product is multiplied by, what else the kind depends on, and a weight w for each column of points.
"""

import math

import numpy as np

from torch_kbandits.loops.compiled import compiled, compiled_within

Array = np.ndarray

#: Of many points so many at a time, which stay in the fastest memory.
_BLOCK = 1024

#: What is before the weights.
HEAD = 4

#: Of s = Σ w² (x − x')²: exp(−s/2), exp(−r), (1 + r) exp(−r) and (1 + r + r²/3) exp(−r) for r = √s,
#: (1 + s/2α)^−α. Then whether x and x' agree where w is not 0, Σ w x x', and Σ w min(x, x') / Σ w max(x, x').
SQUARED, EXPONENTIAL, MATERN, SMOOTH, RATIONAL, EQUAL, LINEAR, OVERLAP = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0

_LOG2E, _LN2 = math.log2(math.e), math.log(2.0)

#: Coefficients of the Taylor polynomial of e^x of degree 13, the highest first.
_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))


@compiled
def exponentials(numbers: Array) -> None:
    """Replace numbers (n,), at most 0, by their exponentials, to an error of rounding as a share of 1.

    In vector registers, which a call of the mathematical library for each does not fill: 2^t is 2^⌊t + ½⌋, an exponent
    of floating point, times e^x for |x| <= ½ ln 2, whose Taylor polynomial of degree 13 is exact to rounding.
    """
    for j in range(numbers.shape[0]):
        t = numbers[j] * _LOG2E
        whole = math.floor(t + 0.5)
        x = (t - whole) * _LN2
        p = _TAYLOR[0]
        for coefficient in _TAYLOR[1:]:
            p = p * x + coefficient
        exponent = (np.int64(whole) + np.int64(1023)) << np.int64(52)
        # Below the least exponent it is 0; what is not a number stays that.
        numbers[j] = 0.0 if t < -1020.0 else p * np.int64(exponent).view(np.float64)


@compiled_within
def fill(formula: Array, x: Array, columns: Array, row: Array) -> None:
    """Write the kernel of a point (d,) against the first m points of columns (d, M) into a row (m,)."""
    m = row.shape[0]
    s, product, polynomial = np.empty(m), np.empty(m), np.empty(m)
    row[:] = 0.0
    for t in range(formula.shape[0]):
        kind = formula[t, 0]
        s[:] = 0.0
        polynomial[:] = 0.0
        for c in range(x.shape[0]):
            weight, at = formula[t, HEAD + c], x[c]
            if weight == 0.0:
                continue
            if kind == LINEAR:
                for j in range(m):
                    s[j] += weight * at * columns[c, j]
            elif kind == EQUAL:
                for j in range(m):
                    s[j] += abs(at - columns[c, j])
            elif kind == OVERLAP:
                for j in range(m):
                    s[j] += weight * min(at, columns[c, j])
                    polynomial[j] += weight * max(at, columns[c, j])
            else:
                for j in range(m):
                    step = weight * (at - columns[c, j])
                    s[j] += step * step
        if kind == SQUARED:
            for j in range(m):
                s[j] *= -0.5
        elif kind == RATIONAL:
            alpha = formula[t, 3]
            for j in range(m):
                s[j] = -alpha * math.log1p(s[j] / (2.0 * alpha))
        elif kind == EQUAL:
            for j in range(m):
                s[j] = 1.0 if s[j] == 0.0 else 0.0
        elif kind == OVERLAP:
            for j in range(m):
                s[j] = s[j] / polynomial[j] if polynomial[j] > 0.0 else 1.0
        elif kind != LINEAR:
            for j in range(m):
                r = math.sqrt(s[j])
                s[j] = -r
                polynomial[j] = 1.0
                if kind == MATERN:
                    polynomial[j] += r
                elif kind == SMOOTH:
                    polynomial[j] += r + r * r / 3.0
        if kind <= RATIONAL:
            exponentials(s)
        if kind in (MATERN, SMOOTH):
            for j in range(m):
                s[j] *= polynomial[j]
        if formula[t, 1] == 1.0:
            if t > 0:
                for j in range(m):
                    row[j] += product[j]
            for j in range(m):
                product[j] = formula[t, 2] * s[j]
        else:
            for j in range(m):
                product[j] *= s[j]
    for j in range(m):
        row[j] += product[j]


@compiled
def values(first: int, stop: int, formula: Array, few: Array, many: Array, out: Array, is_wide: bool) -> None:
    """Write the kernel of a few points (f, d) against many (n, d), those of rows first … stop − 1, to out.

    That is (f, n) if it is wide, else (n, f). What is done for each row takes its time, so rows are of many points.
    """
    row, columns = np.empty(_BLOCK), np.empty((many.shape[1], _BLOCK))
    for start in range(first, stop, _BLOCK):
        size = min(_BLOCK, stop - start)
        for j in range(size):
            for c in range(many.shape[1]):
                columns[c, j] = many[start + j, c]
        for i in range(few.shape[0]):
            fill(formula, few[i], columns, row[:size])
            if is_wide:
                for j in range(size):
                    out[i, start + j] = row[j]
            else:
                for j in range(size):
                    out[start + j, i] = row[j]


@compiled
def variances(formula: Array, X: Array) -> Array:
    """Return the kernel of each of points X (n, d) with itself, (n,)."""
    result = np.empty(X.shape[0])
    for i in range(X.shape[0]):
        total, product = 0.0, 0.0
        for t in range(formula.shape[0]):
            factor = 1.0
            if formula[t, 0] == LINEAR:
                factor = 0.0
                for c in range(X.shape[1]):
                    factor += formula[t, HEAD + c] * X[i, c] * X[i, c]
            if formula[t, 1] == 1.0:
                total += product
                product = formula[t, 2] * factor
            else:
                product *= factor
        result[i] = total + product
    return result
