"""The variance whose residual is learned, as a loop."""

import numpy as np

from torch_kbandits.numerics.compiled import compiled

Array = np.ndarray


@compiled
def learned(
    first: int,
    last: int,
    prior: Array,
    spanned: Array,
    variance: Array,
    rounding: float,
    reach: float,
    tiny: float,
    result: Array,
) -> None:
    """Write the variances of points ``first`` to ``last``; see ``residual_share``."""
    for i in range(first, last):
        residual = prior[i] - spanned[i]
        residual = 0.0 if residual < 0.0 else residual
        left = variance[i] - residual
        left = 0.0 if left < 0.0 else left
        left = spanned[i] if left > spanned[i] else left
        least = rounding * prior[i]
        reached = spanned[i] + reach * prior[i]
        reached = spanned[i] / (tiny if reached < tiny else reached)
        kept = prior[i] * (least if left < least else left)
        total = kept + reached * residual * (spanned[i] - left)
        share = kept / total if total > 0.0 else 1.0
        result[i] = left + share * residual
