"""Determinants of Gram matrices whose points give way to others, one by one."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torch_kbandits.numerics.linalg import jittered_cholesky

Array = NDArray[Any]

#: A conditional variance below this fraction of the largest prior variance is rounding: the determinant is 0.
_ROUNDING = 1e-12

#: An inverse is changed until that may have cost this much relative accuracy; then it is computed afresh.
_ACCURACY = 1e-8


class GramInverse:
    """The inverse A of a Gram matrix K_ZZ, which changes as points of Z give way to others.

    Args:
        gram: K_ZZ (m, m), in double precision; it is changed in place.

    Raises:
        NotPositiveDefiniteError: if it has a clearly negative eigenvalue.

    Cost: O(m³) once, O(m²) for all factors of a point and for a swap.
    """

    def __init__(self, gram: Array) -> None:
        self.gram = gram
        self.refresh()

    def refresh(self) -> None:
        """Compute it afresh."""
        self._inverse = torch.cholesky_inverse(jittered_cholesky(torch.from_numpy(self.gram))).numpy()
        self._spent = 0.0

    def factors(self, across: Array, own: float) -> Array:
        """Return by which factor det K_ZZ grows if a point x takes the place of each of Z, (m,).

        With w = k_Z(x) and s = k(x, x) − wᵀAw the i-th is A_ii s + (A w)_i².

        Args:
            across: w (m,).
            own: k(x, x).
        """
        seen, diagonal = self._inverse @ across, self._inverse.diagonal()
        grown = diagonal * max(own - across @ seen, 0.0) + np.square(seen)
        least = _ROUNDING * max(self.gram.diagonal().max(), own)
        return np.where(grown > least * diagonal, grown, 0.0)

    def swap(self, place: int, across: Array, own: float) -> None:
        """Put a point x in the place of one of Z, given k_Z(x) (m,) and k(x, x)."""
        inverse, gram = self._inverse, self.gram
        # The rounding of this step: one of the two had 1 / amplification of its variance to itself.
        amplification = inverse[place, place] * max(gram[place, place], own)
        self._spent += np.finfo(np.float64).eps * amplification
        gram[place] = gram[:, place] = across
        gram[place, place] = own
        if self._spent > _ACCURACY:
            self.refresh()
            return
        left = inverse[place].copy()
        inverse -= np.outer(left, left / left[place])
        inverse[place] = inverse[:, place] = 0.0
        known = inverse @ gram[place]
        entering = own - gram[place] @ known
        known[place] = -1.0
        inverse += np.outer(known, known / entering)

    def reorder(self, order: Array) -> None:
        """Put the points into another order, (m,)."""
        self.gram, self._inverse = self.gram[np.ix_(order, order)], self._inverse[np.ix_(order, order)]
