"""What happens to all covariances of few arms, as loops."""

import numpy as np

from torch_kbandits.acquisition.rule_loops import log_expected_improvement, upper_confidence
from torch_kbandits.numerics.compiled import compiled, compiled_within

Array = np.ndarray


@compiled_within
def _observe(
    covariance: Array, mean: Array, column: Array, row: int, count: float, total: float, noise: float
) -> float:
    """Condition on so many rewards of a row, with this sum, each of this noise; return by how much V's share grows.

    That is the factor of det V. The covariance (n, n) and the mean (n,) are written to; the column (n,) is of no use.
    """
    level, size = noise / count, len(mean)
    for j in range(size):
        column[j] = covariance[row, j]
    spread = level + column[row]
    step = (total / count - mean[row]) / spread
    for i in range(size):
        part = column[i] / spread
        mean[i] += column[i] * step
        for j in range(size):
            covariance[i, j] -= part * column[j]
    return spread / level


@compiled_within
def _growth(share: float) -> float:
    """Return by how much errors that rounding left may have grown as det V grew by a factor."""
    return 1.0 if share >= 1.0 else np.inf if share <= 0.0 else 1.0 / (share * share)


@compiled_within
def _are_finite(covariance: Array, mean: Array, variance: Array) -> bool:
    """Write variances (n,), at least 0; say whether they and the means (n,) are finite."""
    known = True
    for i in range(len(mean)):
        if not (np.isfinite(mean[i]) and np.isfinite(covariance[i, i])):
            known = False
        variance[i] = max(covariance[i, i], 0.0)
    return known


@compiled
def observed(
    covariance: Array, mean: Array, rows: Array, counts: Array, totals: Array, regularization: float
) -> tuple[Array, Array, Array, float, float]:
    """Return the posterior after rewards of rows (k,), so many of each, (k,), with these sums, (k,), one by one.

    A negative count takes back rewards, whose sum is negative then.

    Returns:
        The covariance (n, n), the variance (n,), at least 0, the mean (n,), the growth of log det V, and by how much
        errors of the covariance that rounding left may have grown: at least 1, NaN where a number is not finite.

    Cost: O(k n²).
    """
    after, moved, column = covariance.copy(), mean.copy(), np.empty_like(mean)
    gain, growth = 0.0, 1.0
    for k in range(len(rows)):
        share = _observe(after, moved, column, rows[k], counts[k], totals[k], regularization)
        gain += np.log(share)
        growth *= _growth(share)
    if not _are_finite(after, moved, column):
        growth = np.nan
    return after, column, moved, gain, growth


@compiled
def correction(covariance: Array, rows: Array, prior: Array, normals: Array, counts: Array, noise: float) -> Array:
    """Return −C D⁻¹ (g + ε), (n,), with the columns of rows (k,) of a covariance (n, n).

    Args:
        covariance: of all rows.
        rows: (k,).
        prior: g, a draw of the prior at the rows, (k,).
        normals: ε in units of its deviations, (k,).
        counts: how many rewards each row has, (k,): D is the noise over these.
        noise: of one reward.
    """
    result = np.zeros(len(covariance))
    for k in range(len(rows)):
        level = noise / counts[k]
        weight, column = (prior[k] + np.sqrt(level) * normals[k]) / level, covariance[rows[k]]
        for i in range(len(result)):
            result[i] -= weight * column[i]
    return result


@compiled
def observed_one(
    covariance: Array, mean: Array, row: int, count: float, total: float, regularization: float
) -> tuple[Array, Array, Array, float, float]:
    """Return the same after rewards of one row."""
    rows, counts, totals = np.empty(1, np.int64), np.empty(1), np.empty(1)
    rows[0], counts[0], totals[0] = row, count, total
    return observed(covariance, mean, rows, counts, totals, regularization)


#: By what the arm of a round is chosen: an upper confidence bound, improvement, a draw of the function, or beforehand.
UPPER_CONFIDENCE, EXPECTED_IMPROVEMENT, PROBABILITY_OF_IMPROVEMENT, DRAW, GIVEN = range(5)


@compiled
def played(
    believed: tuple[Array, Array, Array],
    prior: tuple[Array, Array],
    told: tuple[Array, Array, Array],
    counted: tuple[Array, Array],
    rewards: Array,
    choice: tuple[int, float, Array, Array, Array, Array],
    width: tuple[float, float, Array, Array],
    ties: tuple[Array, float, float],
    numbers: tuple[float, float, float, float, float],
    sizes: tuple[int, int],
    seen: Array,
) -> tuple[int, bool, float, float, int]:
    """Play rounds in a row: choose the arm of the highest score, and learn its reward, which is known beforehand.

    Args:
        believed: covariance (n, n), variances (n,) and means (n,); written to.
        prior: covariance (n, n) and means (n,).
        told: rows and rewards (w + r,) of what counts, in the order told, with room for what is told now; and how many
            of these stopped counting by the end of each round, (r,).
        counted: rows that count in the order of first play, (n,), and how often each row does, (n,); written to.
        rewards: of all arms in each round, (r, n). Where that of the one chosen is not finite rounds end before.
        choice: by what it is made; the margin of improvements; rows chosen beforehand (r,); draws of the prior (r, n),
            normals (r, u) and for each arm the first one that it equals, (n,).
        width: a, s, c and b of a width a + s √(c + b I), the latter two for each number of observations that count.
        ties: the order in which they are broken, (n,), the largest prior variance and the share that is rounding.
        numbers: log det V, wear, the noise of a reward, the least variance of a score, and the most wear.
        sizes: w, and u, of how many rows something counts.
        seen: the mean and variance at each choice, (r, 2); written to.

    Returns:
        How many rounds were played; whether the one after them failed when half of it was written; log det V; wear;
        and of how many rows something counts.
    """
    covariance, variance, mean = believed
    rows, values, gone = told
    order, counts = counted
    kind, margin, given, draws, normals, twins = choice
    log_det, wear, noise, least, most_wear = numbers
    before, size = sizes
    column, sums, first = np.empty_like(mean), np.empty_like(mean), 0
    for j in range(len(rewards)):
        last = before + j
        beta = width[0] + width[1] * np.sqrt(width[2][last - first] + width[3][last - first] * 0.5 * log_det)
        if kind == DRAW and size != normals.shape[1]:
            return j, False, log_det, wear, size
        if kind == GIVEN:
            row = given[j]
        else:
            if kind == DRAW:
                drawn = draws[j], normals[j], twins
                scores = _drawn(covariance, mean, beta, drawn, order, counts, size, noise)
            elif kind == UPPER_CONFIDENCE:
                scores = upper_confidence(mean, variance, beta, least)
            else:
                best = _best_of(mean, order, size)
                if kind == EXPECTED_IMPROVEMENT:
                    scores = log_expected_improvement(mean, variance, best, least)
                else:
                    scores = (mean - best - margin) / np.sqrt(np.maximum(variance, least))
            row = _highest_of(scores, ties[0], ties[2], beta * np.sqrt(ties[1]))
        reward = rewards[j, row] if row >= 0 else np.nan
        if not np.isfinite(reward):
            return j, False, log_det, wear, size
        seen[j, 0], seen[j, 1] = mean[row], variance[row]
        rows[last], values[last] = row, reward
        log_det += np.log(_observe(covariance, mean, column, row, 1.0, reward, noise))
        if not _are_finite(covariance, mean, variance):
            return j, True, log_det, wear, size
        if counts[row] == 0.0:
            order[size] = row
            size += 1
        counts[row] += 1.0
        if gone[j] == first:
            continue
        size = _counted(rows, values, gone[j], last + 1, order, counts, sums)
        taken = rows[first : gone[j]], values[first : gone[j]]
        log_det, wear = _taken_back(believed, taken, size, (log_det, wear), noise)
        if not wear <= most_wear:
            log_det, wear = _from_the_prior(believed, prior, counted, sums, size, noise), 0.0
        if not _are_finite(covariance, mean, variance):
            return j, True, log_det, wear, size
        first = gone[j]
    return len(rewards), False, log_det, wear, size


@compiled_within
def _best_of(mean: Array, order: Array, size: int) -> float:
    """Return the largest mean of a row that counts, 0 if none does."""
    best = float(mean[order[0]]) if size else 0.0
    for k in range(1, size):
        best = max(best, float(mean[order[k]]))
    return best


@compiled_within
def _drawn(
    covariance: Array,
    mean: Array,
    beta: float,
    drawn: tuple[Array, Array, Array],
    order: Array,
    counts: Array,
    size: int,
    noise: float,
) -> Array:
    """Return μ + β (f − μ), (n,), for a draw f that is made of one of the prior (n,), as by ``correction``."""
    prior, normals, twins = drawn
    deviation, scores = prior.copy(), mean.copy()
    for k in range(size):
        row = order[k]
        level = noise / counts[row]
        weight = (prior[row] + np.sqrt(level) * normals[k]) / level
        for i in range(len(mean)):
            deviation[i] -= weight * covariance[row, i]
    for i in range(len(mean)):
        scores[i] += beta * deviation[twins[i]]
    return scores


@compiled_within
def _taken_back(
    believed: tuple[Array, Array, Array],
    taken: tuple[Array, Array],
    size: int,
    state: tuple[float, float],
    noise: float,
) -> tuple[float, float]:
    """Take back rewards of rows (k,), those of a row together; return log det V and the wear after it.

    The wear is infinite where what counts is to be told afresh: as many rows lose a reward as count, of which there are
    so many, or a number is not finite.
    """
    covariance, variance, mean = believed
    rows, values = taken
    log_det, wear = state
    counts, sums, column = np.zeros(len(mean)), np.zeros(len(mean)), np.empty_like(mean)
    for k in range(len(rows)):
        size -= counts[rows[k]] == 0.0
        counts[rows[k]] += 1.0
        sums[rows[k]] += values[k]
    for k in range(len(rows) if size > 0 else 0):
        row = rows[k]
        if counts[row] == 0.0:
            continue
        share = _observe(covariance, mean, column, row, -float(counts[row]), -float(sums[row]), noise)
        counts[row] = 0.0
        log_det += np.log(share)
        growth = _growth(share)
        wear = wear if growth == 1.0 else (1.0 + wear) * growth
        if not _are_finite(covariance, mean, variance):
            return log_det, np.inf
    return log_det, wear if size > 0 else np.inf


@compiled_within
def _from_the_prior(
    believed: tuple[Array, Array, Array],
    prior: tuple[Array, Array],
    counted: tuple[Array, Array],
    sums: Array,
    size: int,
    noise: float,
) -> float:
    """Write the posterior of what counts, told afresh, of so many rows; return log det V."""
    covariance, _, mean = believed
    order, counts = counted
    log_det, column = 0.0, np.empty_like(mean)
    for i in range(len(mean)):
        mean[i] = prior[1][i]
        for j in range(len(mean)):
            covariance[i, j] = prior[0][i, j]
    for k in range(size):
        row = order[k]
        log_det += np.log(_observe(covariance, mean, column, row, float(counts[row]), float(sums[row]), noise))
    return log_det


@compiled_within
def _highest_of(scores: Array, ranks: Array, share: float, scale: float) -> int:
    """Return the row of the highest score, of equal ones but for rounding that of the largest rank; -1 without one."""
    best = scores[0]
    for i in range(1, len(scores)):
        best = max(best, scores[i])
    least, row = best - share * max(abs(best), scale), -1
    if np.isfinite(least):
        for i in range(len(scores)):
            if scores[i] >= least and (row < 0 or ranks[i] > ranks[row]):
                row = i
    return row


@compiled_within
def _counted(rows: Array, values: Array, first: int, last: int, order: Array, counts: Array, sums: Array) -> int:
    """Write which rows count, how often and with which sums, of what was told from the first to before the last."""
    size = 0
    for i in range(len(counts)):
        counts[i] = sums[i] = 0.0
    for k in range(first, last):
        row = rows[k]
        if counts[row] == 0.0:
            order[size] = row
            size += 1
        counts[row] += 1.0
        sums[row] += values[k]
    return size
