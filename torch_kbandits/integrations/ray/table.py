"""The table over the arms of one shard: that of all arms, but for what it does not own."""

from typing import Any, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.table import ArmLookahead
from torch_kbandits.candidates.sources import UnsearchedArms
from torch_kbandits.integrations.ray.course import TakenBack
from torch_kbandits.integrations.ray.taking_back import plays_of
from torch_kbandits.numerics.random import generator_for

#: Ranks drawn at a time to get at those of a shard.
_BLOCK = 2**20


class ShardTable(FeatureTable):
    """Mean and variance of the arms of one shard; what was told is all of it rows beside them.

    A draw from the posterior is one function on the arms of all shards: its waves, and the weights of their correction,
    follow from the seed and from what was told, so that each shard makes them for itself.

    Args:
        arms: of the shard.
        kernel: the prior covariance.
        regularization: λ.
        ranks: the order in which ties are broken, of these arms, (A,).
        column_memory: bytes that kernel columns may occupy.
        kernel_bound: the largest prior variance of the arms of all shards; None for that of these.
        exact: whether every played point is in the dictionary.
        mean: the prior mean; None for zero.
        full_at: as in ``FeatureTable``.
    """

    is_part = True

    def __init__(
        self,
        arms: UnsearchedArms,
        kernel: Kernel,
        regularization: float,
        ranks: Tensor,
        column_memory: int,
        kernel_bound: float | None,
        *,
        exact: bool,
        mean: Mean | None = None,
        full_at: int | None = None,
    ) -> None:
        super().__init__(arms, kernel, regularization, 0, column_memory, exact=exact, mean=mean, full_at=full_at)
        self.tie_rank = ranks
        if kernel_bound is not None:
            self._kernel_bound = self._kernel_bound.new_tensor(kernel_bound)

    def without(self, step: TakenBack) -> Self:
        """Return the table without rewards that are taken back."""
        return self.forgotten(*plays_of(step, self._log.counts, self._log.sums))


class ShardLookahead(ArmLookahead):
    """The posterior over a shard's arms with points pending.

    Args:
        table: without them.
        arms: of the shard.
    """

    def __init__(self, table: ShardTable, arms: UnsearchedArms) -> None:
        super().__init__(table, arms.block(0, 0))
        self.table = table
        self.arms = arms


def ranks_of(rows: range, seed: int, **kind: Any) -> Tensor:
    """Return what ``tie_rank`` has at some rows, without having all of it in memory.

    Args:
        rows: consecutive ones.
        seed: of the bandit.
        kind: the device of the result.

    Cost: O(last row) time, O(rows) memory: draws are made one after another.
    """
    generator = generator_for(seed, 0, "ties")
    for first in range(0, rows.start, _BLOCK):
        torch.rand(min(_BLOCK, rows.start - first), generator=generator, dtype=torch.float32, device="cpu")
    return torch.rand(len(rows), generator=generator, dtype=torch.float32, device="cpu").to(**kind)
