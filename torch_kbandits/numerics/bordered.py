"""A Cholesky factor whose latest rows are held apart, so that one more row copies these and not the whole."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.linalg import bordered, cholesky_rank_one, cholesky_remove

#: Rows from which on a factor is worth holding in parts; copying a smaller one costs less than the parts do.
_HEAD = 400

#: Most rows held apart. Of u rows an appended one copies up to this many, and once in this many appends all u.
_TAIL = 128


@dataclass(frozen=True, eq=False)
class BorderedFactor:
    """A lower triangular L = [[H, 0], [B, C]], a value that its successors share H with.

    All parts are contiguous in memory: ``solve_triangular`` would copy a factor that is a corner of a larger buffer,
    and a copy of 2,000 rows costs ten times the solution. Nothing is ever written over, so values may branch.

    Attributes:
        head: H (..., m, m).
        below: B (..., r, m).
        corner: C (..., r, r).
    """

    head: Tensor
    below: Tensor
    corner: Tensor

    @classmethod
    def of(cls, factor: Tensor) -> Self:
        """Hold a factor (..., m, m) in one part."""
        head = factor.contiguous()  # by rows: so L⁻¹ of ten columns takes two thirds of the time, measured at m = 2,000
        return cls(head, head[..., :0, :], head[..., :0, :0])

    def __len__(self) -> int:
        """Return the number u = m + r of rows."""
        return self.head.shape[-1] + self.corner.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """The dimensions before the last two."""
        return self.head.shape[:-2]

    def dense(self) -> Tensor:
        """Return L (..., u, u). Cost: O(u²), nothing if it is in one part."""
        return bordered(self.head, self.below.mT, self.corner) if self._has_tail else self.head

    def diagonal(self) -> Tensor:
        """Return the diagonal of L, (..., u)."""
        parts = [part.diagonal(dim1=-2, dim2=-1) for part in (self.head, self.corner)]
        return torch.cat(parts, dim=-1)

    def solve(self, values: Tensor) -> Tensor:
        """Return L⁻¹ values for (..., u, N). Cost: O(N u²)."""
        if not self._has_tail:
            return torch.linalg.solve_triangular(self.head, values, upper=False)
        m = self.head.shape[-1]
        first = torch.linalg.solve_triangular(self.head, values[..., :m, :], upper=False)
        rest = values[..., m:, :] - self.below @ first
        return torch.cat([first, torch.linalg.solve_triangular(self.corner, rest, upper=False)], dim=-2)

    def solve_transposed(self, values: Tensor) -> Tensor:
        """Return L⁻ᵀ values for (..., u, N). Cost: O(N u²)."""
        if not self._has_tail:
            return torch.linalg.solve_triangular(self.head.mT, values, upper=True)
        m = self.head.shape[-1]
        rest = torch.linalg.solve_triangular(self.corner.mT, values[..., m:, :], upper=True)
        first = values[..., :m, :] - self.below.mT @ rest
        return torch.cat([torch.linalg.solve_triangular(self.head.mT, first, upper=True), rest], dim=-2)

    # ---------------------------------------------------------------- changes

    def appended(self, across: Tensor, schur: Tensor) -> Self:
        """Return the factor with k more rows [acrossᵀ, schur].

        Args:
            across: L⁻¹ C (..., u, k), for the covariances C (..., u, k) of old and new.
            schur: factor (..., k, k) of the covariance of the new given the old, see ``linalg.schur_factor``.

        Cost: O(u k) and a copy of up to 128 rows, but O(u²) once in 128 rows or if there come new batch dimensions.
        """
        m, r, k = self.head.shape[-1], self.corner.shape[-1], schur.shape[-1]
        if m < _HEAD or r + k > _TAIL or schur.shape[:-2] != self.batch_shape:
            return self.of(bordered(self.dense(), across, schur))
        below = torch.cat([self.below, across[..., :m, :].mT], dim=-2)
        return type(self)(self.head, below, bordered(self.corner, across[..., m:, :], schur))

    def reweighted(self, index: int, change: Tensor) -> Self:
        """Return the factor of L Lᵀ with ``change`` (...,) added to its ``index``-th diagonal entry.

        NaN where the result is not positive definite. Cost: O((u − index)²), and O(u²) for rows of the head.
        """
        m = self.head.shape[-1]
        if index < m:
            return self.of(_reweighted(self.dense(), index, change))
        return type(self)(self.head, self.below, _reweighted(self.corner, index - m, change))

    def removed(self, index: int) -> Self:
        """Return the factor of L Lᵀ without row and column ``index``. Cost: O(u²), O(u) for the latest rows."""
        m = self.head.shape[-1]
        if index < m:
            return self.of(cholesky_remove(self.dense(), index))
        keep = torch.arange(self.corner.shape[-1], device=self.head.device) != index - m
        return type(self)(self.head, self.below[..., keep, :], cholesky_remove(self.corner, index - m))

    @property
    def _has_tail(self) -> bool:
        return self.corner.shape[-1] > 0


def _reweighted(factor: Tensor, index: int, change: Tensor) -> Tensor:
    unit = torch.zeros_like(factor[..., 0])
    unit[..., index] = 1.0
    return cholesky_rank_one(factor, unit, change, start=index)
