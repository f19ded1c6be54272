"""A Kalman filter over few arms whose function goes back to the prior, as loops."""

import numpy as np

from torch_kbandits.loops.compiled import compiled, compiled_within

Array = np.ndarray


@compiled
def predicted(prior: Array, covariance: Array, deviation: Array, elapsed: float, rate: float) -> tuple[Array, Array]:
    """Return the means less the prior ones and the variances, at least 0, of all arms later, each (n,).

    Args:
        prior: covariance, (n, n).
        covariance: of the last reward's time, (n, n).
        deviation: the means then, less the prior ones, (n,).
        elapsed: the time since then.
        rate: by which the logarithm of a correlation falls in a unit of time, at most 0.

    Cost: O(n).
    """
    left, kept, fresh = np.exp(rate * elapsed), np.exp(2.0 * rate * elapsed), -np.expm1(2.0 * rate * elapsed)
    means, variances = np.empty_like(deviation), np.empty_like(deviation)
    for i in range(len(deviation)):
        means[i] = left * deviation[i]
        variances[i] = max(kept * covariance[i, i] + fresh * prior[i, i], 0.0)
    return means, variances


@compiled
def filtered(
    prior: Array,
    covariance: Array,
    deviation: Array,
    clock: float,
    rate: float,
    noise: float,
    times: Array,
    rows: Array,
    rests: Array,
) -> tuple[Array, Array, float]:
    """Return the covariance and the means less the prior ones after rewards, and the growth of log det V.

    Args:
        prior: covariance, (n, n).
        covariance: at the clock, (n, n).
        deviation: the means then, less the prior ones, (n,).
        clock: minus infinity before any reward.
        rate: see ``predicted``.
        noise: λ.
        times: of the rewards, (k,), in order, none before the clock.
        rows: their arms, (k,).
        rests: the rewards less their prior means, (k,).

    Cost: O(k n²).
    """
    after, moved, column, gain = covariance.copy(), deviation.copy(), np.empty_like(deviation), 0.0
    for k in range(len(rows)):
        elapsed = times[k] - clock if clock > -np.inf else 0.0
        spread, _ = _observe(prior, after, moved, column, elapsed, rate, noise, rows[k], rests[k])
        gain += np.log(spread / noise)
        clock = times[k]
    return after, moved, gain


@compiled
def smoothed(
    prior: Array,
    covariance: Array,
    deviation: Array,
    clock: float,
    rate: float,
    noise: float,
    times: Array,
    rows: Array,
    rests: Array,
    asked: Array,
    places: Array,
) -> tuple[Array, Array]:
    """Return the means less the prior ones and the variances, at least 0, of arms at times asked about, each (q,).

    Each stands beside the arms from its time on, as a further one that does not change.

    Args:
        prior: as all that follow it what ``filtered`` takes.
        covariance: at the clock, (n, n).
        deviation: the means then, less the prior ones, (n,).
        clock: minus infinity before any reward.
        rate: see ``predicted``.
        noise: λ.
        times: of the rewards, (k,).
        rows: their arms, (k,).
        rests: the rewards less their prior means, (k,).
        asked: times, (q,), in order, none before the clock; some may be before rewards.
        places: the arms asked about, (q,).

    Cost: O(k (n² + q n) + q).
    """
    size, number = len(deviation), len(asked)
    means, variances, known = np.empty(number), np.empty(number), 0
    after, moved, column, across = covariance, deviation, np.empty_like(deviation), np.empty((0, 0))
    if len(rows):
        after, moved, across = covariance.copy(), deviation.copy(), np.empty((number, size))
    for k in range(len(rows) + 1):
        is_last = k == len(rows)
        elapsed = 0.0 if is_last or clock == -np.inf else times[k] - clock
        across[:known] *= np.exp(rate * elapsed)
        while known < number and (is_last or asked[known] <= times[k]):
            row, ago = places[known], asked[known] - clock if clock > -np.inf else 0.0
            kept, fresh = np.exp(2.0 * rate * ago), -np.expm1(2.0 * rate * ago)
            means[known] = np.exp(rate * ago) * moved[row]
            variances[known] = kept * after[row, row] + fresh * prior[row, row]
            if not is_last:
                left = np.exp(rate * (times[k] - asked[known]))
                for j in range(size):
                    across[known, j] = left * (kept * after[row, j] + fresh * prior[row, j])
            known += 1
        if is_last:
            break
        spread, step = _observe(prior, after, moved, column, elapsed, rate, noise, rows[k], rests[k])
        for q in range(known):
            shared = across[q, rows[k]]
            means[q] += shared * step
            variances[q] -= shared * shared / spread
            for j in range(size):
                across[q, j] -= shared / spread * column[j]
        clock = times[k]
    for q in range(number):
        variances[q] = max(variances[q], 0.0)
    return means, variances


@compiled_within
def _observe(
    prior: Array,
    covariance: Array,
    deviation: Array,
    column: Array,
    elapsed: float,
    rate: float,
    noise: float,
    row: int,
    rest: float,
) -> tuple[float, float]:
    """Move covariance and means on by some time, in place, and condition them on a reward of a row then.

    The covariances of the row before the reward are written to a column (n,).

    Returns:
        The variance that the reward was predicted with, and by how much of it the reward was off.
    """
    left, kept, fresh = np.exp(rate * elapsed), np.exp(2.0 * rate * elapsed), -np.expm1(2.0 * rate * elapsed)
    for j in range(len(column)):
        column[j] = kept * covariance[row, j] + fresh * prior[row, j]
    spread = column[row] + noise
    step = (rest - left * deviation[row]) / spread
    for i in range(len(column)):
        part = column[i] / spread
        deviation[i] = left * deviation[i] + column[i] * step
        for j in range(len(column)):
            covariance[i, j] = kept * covariance[i, j] + fresh * prior[i, j] - part * column[j]
    return spread, step
