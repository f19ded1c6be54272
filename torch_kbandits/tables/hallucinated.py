"""What points pending take from the variances of arms, computed as far as the choice of the best arm needs."""

from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.tables.columns import KernelColumns
from torch_kbandits.tables.store import FeatureStore

#: Kernel values computed at a time: in so few parts that calls do not count, and in cache.
_NUMBERS = 2**16


class HallucinatedArms:
    """What points that are observed at their posterior means take from the variances of all arms; see ``Conditional``.

    A value, but that what is done late is remembered: the rows F at all arms of the points that a pass took in.

    Args:
        like: a number of each arm, (A,), in the dtype and on the device of all.
        conditional: of no points.
        rows: none.

    Attributes:
        conditional: of the k points.
        rows: theirs in the table, (k,).
        at_least: what those points take that a pass took in, (A,).
    """

    def __init__(self, like: Tensor, conditional: Conditional, rows: Tensor) -> None:
        self.conditional, self.rows, self.at_least = conditional, rows, torch.zeros_like(like)
        self._store = FeatureStore(len(like), like)

    def given(self, conditional: Conditional, rows: Tensor) -> Self:
        """Return the same of more points, all in all these."""
        after = shallow_copy(self)
        after.conditional, after.rows, after._store = conditional, rows, self._store.copy()
        return after

    def of(self, arms: Tensor, features: FeatureStore, columns: KernelColumns, roots: Tensor | None) -> Tensor:
        """Return what all points take from some arms (h,), whose roots these are, (h,). Cost: O(h k (m + k))."""
        seen = Seen(features.columns(arms), roots)
        taken = self.conditional.to(self.at_least).rows(columns.between(self.rows, arms), seen)
        return taken.square().sum(0)

    def of_all(self, features: FeatureStore, columns: KernelColumns, roots: Tensor | None) -> Tensor:
        """Return the same for all arms, (A,). Cost: O(A (m + k)) for each point that no pass took in yet."""
        first, taken = self._store.size, [self.at_least[:0]]
        if first < len(self.rows):
            conditional, new = self.conditional.to(self.at_least), self.rows[first:]
            self._store.resize(len(self.rows))
            for block in features.pieces(_NUMBERS // len(new)):
                values = columns.over_arms(new, block, keep=False)
                seen = Seen(features.block(block), None if roots is None else roots[block])
                rows = conditional.rows(values, seen, self._store.block(block)[:first])
                self._store.write(rows, block, first)
                taken.append(rows.square().sum(0))
            self.at_least = self.at_least + torch.cat(taken)
        return self.at_least
