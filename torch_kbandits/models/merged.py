"""Observations merged by point: which are of one point, and what those of a point add up to."""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.numerics.rows import RowIndex, row_keys


@dataclass(frozen=True, eq=False)
class Merged:
    """Which distinct point each observation is of, and what the observations of each point add up to.

    Attributes:
        positions: (n,) the point of each observation.
        precisions: Σ 1/λ_s of each point, (..., u).
        moments: Σ (y_s − prior mean)/λ_s of each point, (..., u).
        index: the point of each row of numbers, as bytes.
        bound: the largest prior variance of the points, 0-dim, if it is carried along.
    """

    positions: Tensor
    precisions: Tensor
    moments: Tensor
    index: RowIndex
    bound: Tensor | None = None

    @classmethod
    def of(cls, points: Tensor, positions: Tensor, residuals: Tensor, variances: Tensor) -> Self:
        """Merge observations (..., n) of distinct points (u, d). Cost: O(n + u d)."""
        precisions, moments = sums(len(points), positions, residuals, variances)
        index = RowIndex.of({key: position for position, key in enumerate(row_keys(points))})
        return cls(positions, precisions, moments, index)

    def detached(self) -> Self:
        """Return it without gradients."""
        return replace(self, precisions=self.precisions.detach(), moments=self.moments.detach())

    def added(self, inputs: Tensor, residuals: Tensor, variances: Tensor) -> tuple[Self, list[int], Tensor]:
        """Return it with observations (..., k) at inputs (k, d), and which points that changes; the bound stays.

        Returns:
            The merged observations; the rows of the inputs that are new points, in their order; the old points (r,)
            that were observed again.

        Cost: O(k) in Python, and sums and copies of O(n) numbers.
        """
        u = len(self.index)
        fresh: dict[bytes, int] = {}
        places, first = [], []
        for row, key in enumerate(row_keys(inputs)):
            place = self.index.place(key)
            if place is None:
                if key not in fresh:
                    fresh[key] = u + len(fresh)
                    first.append(row)
                place = fresh[key]
            places.append(place)
        positions = torch.tensor(places, device=inputs.device, dtype=torch.long)
        precisions, moments = sums(u + len(fresh), positions, residuals, variances)
        precisions[..., :u] += self.precisions
        moments[..., :u] += self.moments
        everything = torch.cat([self.positions, positions])
        merged = type(self)(everything, precisions, moments, self.index.extended(fresh), self.bound)
        return merged, first, positions[positions < u].unique()

    def kept(self, observations: Tensor, points: Tensor, precisions: Tensor, moments: Tensor) -> Self:
        """Return it with the observations and points of two masks, (n,) and (u,), and their new sums. Cost: O(n)."""
        places, stays = (points.long().cumsum(0) - 1), points.tolist()
        numbers = places.tolist()
        index = RowIndex.of({key: numbers[old] for key, old in self.index.entries().items() if stays[old]})
        bound = self.bound if all(stays) else None
        return type(self)(places[self.positions[observations]], precisions, moments, index, bound)


def sums(size: int, positions: Tensor, residuals: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return Σ 1/λ_s and Σ (y_s − prior mean)/λ_s of each of ``size`` points, (..., size)."""
    zeros = residuals.new_zeros(*residuals.shape[:-1], size)
    precisions = zeros.index_add(-1, positions, variances.reciprocal())
    return precisions, zeros.index_add(-1, positions, residuals / variances)
