"""What points pending take from the variances of arms, computed as far as the choice of the best arm needs."""

from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.rows import Rows
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
    """

    def __init__(self, like: Tensor, conditional: Conditional, rows: Tensor) -> None:
        self.conditional, self.rows = conditional, rows
        # Rows F of the points that a pass took in, and what these take: in one, so that an interrupt parts them not.
        self._taken = Rows(like.new_empty(0, len(like))), torch.zeros_like(like)

    def given(self, conditional: Conditional, rows: Tensor) -> Self:
        """Return the same of more points, all in all these."""
        after = shallow_copy(self)
        after.conditional, after.rows = conditional, rows
        return after

    @property
    def at_least(self) -> Tensor:
        """What those points take that a pass took in, (A,)."""
        return self._taken[1]

    def of(self, arms: Tensor, features: FeatureStore, columns: KernelColumns, roots: Tensor | None) -> Tensor:
        """Return what all points take from some arms (h,), whose roots these are, (h,). Cost: O(h k (m + k))."""
        seen = Seen(features.columns(arms), roots)
        return self.conditional.to(self.at_least).taken(columns.between(self.rows, arms), seen)

    def of_all(self, features: FeatureStore, columns: KernelColumns, roots: Tensor | None) -> Tensor:
        """Return the same for all arms, (A,). Cost: O(A (m + k)) for each point that no pass took in yet."""
        known, taken = self._taken
        if new := len(self.rows) - len(known):
            conditional, first = self.conditional.to(taken), len(known)
            rows = taken.new_empty(new, len(taken))
            size = points_at_a_time(taken.device, max(1, _NUMBERS // new), new)
            for block in features.pieces(size):
                values = columns.over_arms(self.rows[first:], block, keep=False)
                seen = Seen(features.block(block), None if roots is None else roots[block])
                rows[:, block] = conditional.rows(values, seen, known.tensor[:, block])
            self._taken = known.followed(rows), taken + rows.square().sum(0)
        return self.at_least
