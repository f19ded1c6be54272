"""What each point was played for, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def totals(places: Array, amounts: Array, values: Array) -> tuple[Array, Array, Array]:
    """Return what observations (n,) of points come to, in the order in which points first appear.

    Args:
        places: which point each is of, at least 0.
        amounts: what each counts.
        values: its value.

    Returns:
        The places (k,) that appear, the sum of the amounts of each, (k,), and that of the values times the amounts.

    Cost: O(n).
    """
    size = 0
    for place in places:
        size = max(size, place + 1)
    numbers, number = np.full(size, -1), 0
    order, counts, sums = np.empty(size, np.int64), np.zeros(size), np.zeros(size)
    for i in range(len(places)):
        place = places[i]
        if numbers[place] < 0:
            numbers[place], order[number] = number, place
            number += 1
        counts[numbers[place]] += amounts[i]
        sums[numbers[place]] += amounts[i] * values[i]
    return order[:number].copy(), counts[:number].copy(), sums[:number].copy()


@compiled
def parted(
    places: Array, before: Array, weights: Array, values: Array
) -> tuple[Array, Array, tuple[Array, Array, Array], tuple[Array, Array, Array], bool]:
    """Return which of observations (n,) are left once they have other weights, and what that comes to.

    Args:
        places: which point each is of, at least 0.
        before: what each counted until now.
        weights: what each counts, 0 for those that are gone.
        values: its value.

    Returns:
        Numbers of those left, (k,); the places (k,) of these from now on, in the order in which points appear; what is
        left of each point, by the old places, and what is gone, see ``totals``; and whether what is left counts as
        before.

    Cost: O(n).
    """
    kept, gone = np.flatnonzero(weights > 0.0), np.flatnonzero(~(weights > 0.0))
    left = totals(places[kept], weights[kept], values[kept])
    taken = totals(places[gone], before[gone], values[gone])
    moved = np.zeros(places.max() + 1 if len(places) else 0, np.int64)
    for number in range(len(left[0])):
        moved[left[0][number]] = number
    return kept, moved[places[kept]], left, taken, bool(np.all(weights[kept] == before[kept]))
