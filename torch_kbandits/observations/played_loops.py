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
