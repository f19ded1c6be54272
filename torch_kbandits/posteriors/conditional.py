"""What observing points at their posterior means takes from the variances of a Nyström posterior."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.linalg import bordered, schur_factor
from torch_kbandits.numerics.places import sent
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import made
from torch_kbandits.posteriors import conditional_loops

Array = NDArray[np.float64]

#: More points than this are left to PyTorch, whose products of matrices have threads.
_FEW = 1024

#: Columns for which a factor has room at least.
_ROOM = 16

_NONE = np.empty(0)


class Seen(NamedTuple):
    """Points in the coordinates of a posterior.

    Attributes:
        coordinates: z (..., m, N).
        roots: root r of the share of the residual variance that is left, (..., N), where it is learned; None for 1.
    """

    coordinates: Tensor
    roots: Tensor | None

    @property
    def arrays(self) -> tuple[Array, Array]:
        """What loops take: the coordinates in rows, (N, m), and the roots, which may be none."""
        return _in_rows(self.coordinates), _NONE if self.roots is None else self.roots.numpy()


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
        if own.shape[-1] == 1 and (found := self._given_one(seen, own, inside, values, noise)) is not None:
            return found
        k, rows = len(self), None if inside is None else inside.mT
        joined = own.mT if k == 0 else torch.cat([self.own, own.mT], dim=-2)
        parts = joined, _joined(self.inside, rows, -2), _joined(self.roots, seen.roots, -1)
        cross = type(self)(*parts, self.factor).cross(values, seen)
        across = torch.linalg.solve_triangular(self.factor, cross[..., :k, :], upper=False)
        corner = cross[..., k:, :].clone()
        corner.diagonal(dim1=-2, dim2=-1).add_(noise)
        return type(self)(*parts, bordered(self.factor, across, schur_factor(corner, across)))

    def _given_one(self, seen: Seen, own: Tensor, inside: Tensor | None, values: Tensor, noise: Tensor) -> Self | None:
        """Return the same with one more point, by a loop; None where PyTorch does it."""
        if not self.loops_over(seen, values):
            return None
        (known_own, known_inside, known_roots, lines), k = self._memory, len(self)
        if lines.tensor.shape[1] == k:
            lines = _with_room(lines.tensor)
        rows, insides, roots = known_own.followed(own.numpy().T), known_inside, known_roots
        if inside is not None and seen.roots is not None:
            insides, roots = insides.followed(inside.numpy().T), roots.followed(seen.roots)
        known = rows.tensor.numpy(), insides.tensor.numpy(), roots.tensor.numpy(), lines.tensor.numpy()
        row, square = conditional_loops.bordered(*known, _in_rows(values), *seen.arrays, float(noise))
        if not 0.0 < square < math.inf:
            return None
        line = np.zeros((1, lines.tensor.shape[1]))
        line[0, :k], line[0, k] = row, math.sqrt(square)
        lines = lines.followed(line)
        parts: dict[str, Any] = {"own": rows.tensor, "inside": None, "roots": None}
        if inside is not None:
            parts |= {"inside": insides.tensor, "roots": roots.tensor}
        memory = rows, insides, roots, lines
        return made(type(self), {**parts, "factor": lines.tensor[:, : k + 1], "_memory": memory})

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
        if not self.loops_over(seen, values):
            return self.rows(values, seen).square().sum(-2)
        return torch.from_numpy(conditional_loops.taken(*self.arrays, _in_rows(values), *seen.arrays))

    def loops_over(self, seen: Seen, *values: Tensor) -> bool:
        """Say whether loops are to find what is taken from points, given their kernel values if there are any yet."""
        at = seen.coordinates
        is_plain = at.dim() == 2 and at.shape[1] <= _FEW and at.dtype == self.own.dtype == torch.float64
        return is_plain and runs_compiled(at, self.own, *values)

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """What loops take: ``own``, ``inside`` and ``roots``, which may be empty, and the factor, (k, k or more)."""
        own, inside, roots, factor = (each.tensor.numpy() for each in self._memory)
        return own, inside, roots, factor

    @cached_property
    def _memory(self) -> tuple[Rows, Rows, Rows, Rows]:
        """The same in memory to which rows are appended."""
        inside, roots = (self.own[:0], self.own.new_empty(0)) if self.inside is None else (self.inside, self.roots)
        own, inside = self.own.contiguous(), inside.contiguous()
        return Rows(own), Rows(inside), Rows(cast(Tensor, roots)), _with_room(self.factor)

    def to(self, like: Tensor) -> "Conditional":
        """Return the same in the dtype of another tensor, and on its device."""
        if self.own.dtype == like.dtype and self.own.is_cpu == like.is_cpu:
            return self
        if self.inside is None or self.roots is None:
            own, factor = sent(like, self.own, self.factor)
            return Conditional(own, None, None, factor)
        return Conditional(*sent(like, self.own, self.inside, self.roots, self.factor))


def _with_room(factor: Tensor) -> Rows:
    """Return the rows of a factor (k, k) with room for more columns than there are."""
    k = len(factor)
    return Rows(torch.nn.functional.pad(factor, (0, k + _ROOM)))


def _in_rows(columns: Tensor) -> Array:
    """Return columns (m, N) as loops take them, (N, m)."""
    return np.ascontiguousarray(columns.numpy().T)


def _product(rows: Tensor, coordinates: Tensor) -> Tensor:
    """Return rows (..., j, m) times coordinates (..., m, N), in the order that takes less time: the shorter first."""
    if rows.shape[-2] <= coordinates.shape[-1]:
        return rows @ coordinates
    return (coordinates.mT @ rows.mT).mT


def _joined(old: Tensor | None, new: Tensor | None, dim: int) -> Tensor | None:
    return new if old is None or new is None or not old.shape[dim] else torch.cat([old, new], dim)
