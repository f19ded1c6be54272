"""What points pending take from the variances of arms, computed as far as the choice of the best arm needs."""

from typing import Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.compiled import in_parts, runs_compiled
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.tables import hallucinated_loops
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
        if self.rows.shape[0] > len(self._taken[0]):
            passed = self._passed_by_loop if runs_compiled(self.at_least) else self._passed
            self._taken = passed(features, columns, roots)
        return self.at_least

    def _passed(self, features: FeatureStore, columns: KernelColumns, roots: Tensor | None) -> tuple[Rows, Tensor]:
        """Return the rows F of all points, (k, A), and what they take, (A,)."""
        (known, before), conditional = self._taken, self.conditional.to(self.at_least)
        first, new = len(known), self.rows.shape[0] - len(known)
        rows = before.new_empty(new, before.shape[0])
        for block, memory in features.pieces(points_at_a_time(before.device, max(1, _NUMBERS // new), new)):
            values = columns.over_arms(self.rows[first:], block, keep=False)
            seen = Seen(memory[:, : features.size].mT, None if roots is None else roots[block])
            rows[:, block] = conditional.rows(values, seen, known.tensor[:, block])
        return known.followed(rows), before + rows.square().sum(0)

    def _passed_by_loop(
        self, features: FeatureStore, columns: KernelColumns, roots: Tensor | None
    ) -> tuple[Rows, Tensor]:
        """Return what ``_passed`` does."""
        known, before = self._taken[0], self.at_least.numpy()
        first, new = len(known), self.rows[len(known) :]
        parts = (each[first:].astype(before.dtype, copy=False) for each in self.conditional.arrays)
        own, inside, own_roots, factor = parts
        rows, taken = np.empty((len(own), len(before)), before.dtype), np.empty_like(before)
        shares = before[:0] if roots is None else roots.numpy()
        arms = own, inside, own_roots, factor, shares, known.tensor.numpy(), before, rows, taken
        cost = len(own) * (own.shape[1] + len(self.conditional))
        for block, memory in features.pieces(max(1, _NUMBERS // len(own))):
            values, number = columns.over_arms(new, block, keep=False), block.stop - block.start
            given = block.start, memory.numpy(), values.contiguous().numpy(), *arms
            in_parts(hallucinated_loops.take, number, number * cost, *given)
        return known.followed(rows), torch.from_numpy(taken)
