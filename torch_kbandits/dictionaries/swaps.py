"""Determinants after swaps, for k-DPPs."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.linalg import jittered_cholesky

#: A conditional variance below this fraction of the largest prior variance is rounding: the determinant is 0.
ROUNDING = 1e-12

#: Swaps go on until they may have cost this much relative accuracy; then everything is computed afresh.
_ACCURACY = 1e-6


class SwapTable:
    """By which factor det K_ZZ changes if a point of Z gives way to a candidate; for all pairs at once, through swaps.

    With A = K_ZZ⁻¹, V = A k_Z(·) and the conditional variances s = k(·, ·) − k_Z(·)ᵀ V, exchanging the i-th point of Z
    for the candidate c multiplies the determinant by A_ii s_c + V_ic²: three numbers read, and no factorisation. A swap
    changes A, V and s by terms of rank two. They are computed afresh when so many swaps, or such near-singular ones,
    have gone by that rounding could show. Arrays are NumPy's, whose calls cost a fraction of torch's at this size.

    Args:
        gram: K (p, p), in double precision on the CPU, positive semi-definite.
        places: rows of ``gram``, (m + u,): first those of Z, then the candidates. A point may be there several times
            over; then all swaps that would put it into Z twice have the factor 0.
        size: m, the number of points in Z, whose determinant must not be 0.
        scale: the largest prior variance, which sets the scale of rounding.

    Raises:
        NotPositiveDefiniteError: if K_ZZ has a clearly negative eigenvalue.

    Cost: O(m² (m + u)) once, O(1) a factor, O(m (m + u)) a swap; O(m (m + u)) memory beside ``gram``.
    """

    def __init__(self, gram: Tensor, places: Tensor, size: int, scale: float) -> None:
        self._gram, self._places, self._size = gram.numpy(), places.numpy().copy(), size
        self._floor = ROUNDING * scale
        self._refresh()

    def __len__(self) -> int:
        """Return the number m of points in Z."""
        return self._size

    @property
    def inverse(self) -> NDArray[np.float64]:
        """K_ZZ⁻¹ (m, m), its rows in the order in which the points of Z stand now."""
        return self._solution[:, : self._size]

    @property
    def places(self) -> NDArray[np.int64]:
        """Rows of the Gram matrix, (m + u,), as they stand now: a swap exchanges two entries."""
        return self._places

    def factors(self, slots: NDArray[np.int64], candidates: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return det K_Z'Z' / det K_ZZ (k,) for the swaps of places ``slots`` of Z with candidates, (k,) each."""
        leaving = self._solution[slots, slots]
        entering = self._conditional[candidates] + self._solution[slots, self._size + candidates] ** 2 / leaving
        return np.where(entering > self._floor, leaving * entering, 0.0)

    def swap(self, slot: int, candidate: int) -> None:
        """Exchange the point at place ``slot`` of Z for a candidate, whose place it takes; in place."""
        places, F, m = self._places, self._solution, self._size
        column = m + candidate
        # The rounding of this step, relative: the leaving point had 1 / amplification of its variance to itself.
        amplification = F[slot, slot] * self._gram[places[slot], places[slot]]
        self._spent += np.finfo(np.float64).eps * amplification
        places[slot], places[column] = places[column], places[slot]
        if self._spent > _ACCURACY:
            self._refresh()
            return

        left, entered = F[:, slot].copy(), F[:, column].copy()
        leaving, share = left[slot], entered[slot] / left[slot]
        entering = self._conditional[candidate] + share * entered[slot]
        # The point that leaves is a candidate from now on: a unit vector as seen from Z, of which it still is part.
        F[:, column] = 0.0
        F[slot, column] = 1.0
        self._conditional[candidate] = 0.0

        removed = F[slot].copy()
        added = self._gram[places[slot]][places]
        known = added[:m].copy()
        known[slot] = 0.0
        added[:m] = 0.0
        added[slot] = 1.0
        added += removed * (known @ left / leaving) - known @ F
        step = left * share - entered  # minus the weights of the points that stay, in what is known of the new one
        step[slot] = 1.0
        F += np.stack([left / -leaving, step / entering], axis=1) @ np.stack([removed, added])
        change = removed[m:] ** 2 / leaving - added[m:] ** 2 / entering
        np.maximum(self._conditional + change, 0.0, out=self._conditional)

    def _refresh(self) -> None:
        """Compute everything from the Gram matrix. Cost: O(m² (m + u))."""
        m = self._size
        columns = torch.from_numpy(self._gram[self._places[:m]][:, self._places])
        factor = jittered_cholesky(columns[:, :m])
        columns[:, :m] = torch.eye(m, dtype=columns.dtype)
        whitened = torch.linalg.solve_triangular(factor, columns, upper=False)
        self._solution = torch.linalg.solve_triangular(factor.mT, whitened, upper=True).contiguous().numpy()
        prior = self._gram.diagonal()[self._places[m:]]
        self._conditional = np.maximum(prior - whitened[:, m:].square().sum(0).numpy(), 0.0)
        self._spent = 0.0
