"""What observing points at their posterior means takes from the variances of a Nyström posterior."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.linalg import bordered, schur_factor
from torch_kbandits.posteriors import conditional_loops
from torch_kbandits.posteriors.squares import as_rows, grown, grown_by_one

Array = NDArray[np.float64]

#: More points than this are left to PyTorch, whose products of matrices have threads.
_FEW = 1024

_ROWS, _NUMBERS = np.empty((0, 0)), np.empty(0)


class Seen(NamedTuple):
    """Points in the coordinates of a posterior.

    Attributes:
        coordinates: z (..., m, N).
        roots: root r of the share of the residual variance that is left, (..., N), where it is learned; None for 1.
    """

    coordinates: Tensor
    roots: Tensor | None


@dataclass(frozen=True, eq=False)
class Conditional:
    """What the k points of P, observed at their posterior means, take from the variances of a posterior. A value.

    A Nyström posterior is a Gaussian process of covariance

        cov(x, x') = k(x, x') − z(x)ᵀ(z(x') − K⁻¹z(x')) − (1 − r(x) r(x')) (k(x, x') − z(x)ᵀΠz(x')),

    where Π projects on what the dictionary spans, and r = 1 unless the residual is learned; see
    ``learned_residual_covariance``. Given P, its means stay and

        var(x | P) = var(x) − ‖F(x)‖²,    F(x) = C⁻¹ cov(P, x),    C Cᵀ = cov(P, P) + diag λ_p.

    The noise λ_p keeps C well-conditioned however close the points are. No variance rises, and for points of noise λ
    each falls at most by the factor Π (1 + σ²_i/λ), σ²_i being that of the i-th point given those before it.

    Source: Desautels, Krause and Burdick, JMLR 2014 (GP-BUCB), for exact posteriors.

    Attributes:
        own: z − K⁻¹z of the points, (..., k, m).
        inside: Πz of the points, (..., k, m), where the residual is learned, else None.
        roots: r of the points, (..., k), likewise.
        factor: C, (..., k, k).
    """

    own: Tensor
    inside: Tensor | None
    roots: Tensor | None
    factor: Tensor

    @classmethod
    def none(cls, size: int, like: Tensor, *, learns_residual: bool = False) -> Self:
        """Return what no points take, in so many coordinates."""
        rows, numbers = like.new_empty(0, size), like.new_empty(0)
        return cls(rows, *((rows, numbers) if learns_residual else (None, None)), like.new_empty(0, 0))

    def __len__(self) -> int:
        """Return the number k of points."""
        return self.factor.shape[-1]

    def given(self, seen: Seen, own: Tensor, inside: Tensor | None, values: Tensor, noise: Tensor) -> Self:
        """Return the same with j more points.

        Args:
            seen: these points.
            own: their z − K⁻¹z, (..., m, j).
            inside: their Πz, (..., m, j), where the residual is learned.
            values: kernel values of all k + j points against these, (..., k + j, j).
            noise: λ_p of each, (..., j) or broadcastable to it.

        Cost: O((k + j) j m + k² j).
        """
        k, rows = len(self), None if inside is None else inside.mT
        joined = own.mT if k == 0 else torch.cat([self.own, own.mT], dim=-2)
        parts = joined, _joined(self.inside, rows, -2), _joined(self.roots, seen.roots, -1)
        found = type(self)(*parts, self.factor)
        if own.shape[-1] == 1 and (arguments := found._arguments(values, seen)) is not None:
            row, square = conditional_loops.bordered(*arguments, float(noise))
            if 0.0 < square < math.inf:
                return type(self)(*parts, grown_by_one(self.factor, 0.0, row, math.sqrt(square)))
        cross = found.cross(values, seen)
        across = torch.linalg.solve_triangular(self.factor, cross[..., :k, :], upper=False)
        corner = cross[..., k:, :].clone()
        corner.diagonal(dim1=-2, dim2=-1).add_(noise)
        corner = schur_factor(corner, across)
        if corner.dim() > 2:
            return type(self)(*parts, bordered(self.factor, across, corner))
        return type(self)(*parts, grown(self.factor, torch.zeros_like(across), across.mT, corner))

    def cross(self, values: Tensor, seen: Seen, first: int = 0) -> Tensor:
        """Return cov(P, x) of the points from one on, (..., j, N), from their kernel values (..., j, N) with x.

        Cost: O(N j m).
        """
        covariance = values - _product(self.own[..., first:, :], seen.coordinates)
        if self.inside is not None and self.roots is not None and seen.roots is not None:
            shares = self.roots[..., first:].unsqueeze(-1) * seen.roots.unsqueeze(-2)
            residual = values - _product(self.inside[..., first:, :], seen.coordinates)
            covariance = covariance - (1.0 - shares) * residual
        return covariance

    def rows(self, values: Tensor, seen: Seen, before: Tensor | None = None) -> Tensor:
        """Return F(x), (..., k, N), from k(P, x). Cost: O(N k (m + k)).

        Args:
            values: (..., k, N).
            seen: x.
            before: the first rows of F(x), (..., f, N), where they are known; then values and what is returned are of
                the other points.
        """
        first = 0 if before is None else before.shape[-2]
        cross, factor = self.cross(values, seen, first), self.factor[..., first:, :]
        if before is not None:
            cross = cross - factor[..., :first] @ before
        if cross.shape[-2] == 1:
            return cross / factor[..., first:]
        return torch.linalg.solve_triangular(factor[..., first:], cross, upper=False)

    def taken(self, values: Tensor, seen: Seen) -> Tensor:
        """Return ‖F(x)‖², (..., N), from k(P, x), (..., k, N). Cost: O(N k (m + k))."""
        if (arguments := self._arguments(values, seen)) is not None:
            return torch.from_numpy(conditional_loops.taken(*arguments))
        return self.rows(values, seen).square().sum(-2)

    def _arguments(self, values: Tensor, seen: Seen) -> tuple[Array, ...] | None:
        """Return what ``conditional_loops.taken`` takes; None where PyTorch computes."""
        if values.dim() != 2 or values.shape[1] > _FEW or values.dtype != torch.float64:
            return None
        if not runs_compiled(values, seen.coordinates, self.own):
            return None
        shares = _NUMBERS if seen.roots is None else seen.roots.numpy()
        return *self._arrays, *(each.mT.contiguous().numpy() for each in (values, seen.coordinates)), shares

    @cached_property
    def _arrays(self) -> tuple[Array, ...]:
        """What loops take: ``own``, ``inside`` and ``roots``, which may be empty, and the factor; see ``as_rows``."""
        inside = _ROWS if self.inside is None else self.inside.contiguous().numpy()
        roots = _NUMBERS if self.roots is None else self.roots.numpy()
        return self.own.contiguous().numpy(), inside, roots, as_rows(self.factor)

    def to(self, like: Tensor) -> "Conditional":
        """Return the same in the dtype of another tensor."""
        parts = (self.own, self.inside, self.roots, self.factor)
        own, inside, roots, factor = (each if each is None else each.to(like) for each in parts)
        return Conditional(cast(Tensor, own), inside, roots, cast(Tensor, factor))


def _product(rows: Tensor, coordinates: Tensor) -> Tensor:
    """Return rows (..., j, m) times coordinates (..., m, N), in the order that takes less time: the shorter first."""
    if rows.shape[-2] <= coordinates.shape[-1]:
        return rows @ coordinates
    return (coordinates.mT @ rows.mT).mT


def _joined(old: Tensor | None, new: Tensor | None, dim: int) -> Tensor | None:
    return new if old is None or new is None or not old.shape[dim] else torch.cat([old, new], dim)
