"""The Nyström–DTC posterior over a growing dictionary as algebra on coordinates; it knows no kernel and no points."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.linalg import jittered_cholesky

#: Parts of a factor that are kept apart.
_MOST_PARTS = 64

#: Rows that are kept apart from M and M⁻¹.
_MOST_ROWS = 32


@dataclass(frozen=True, eq=False)
class OnlineDTC:
    """A DTC posterior that follows observations and dictionary changes by low-rank changes. A value.

    Points are written in the coordinates z(x) = L⁻¹ k_Z(x) of m spanning points Z. The dictionary is Z without the
    points ``left_out``: leaving out projects on what the others span, so points leave and come back without any
    change of coordinates. With M = I + Σ_s z_s z_sᵀ / λ_s, orthonormal N spanning the complement and B = M⁻¹ N,

        variance(x) = [k(x, x) − zᵀz + zᵀM⁻¹z] + ‖Nᵀz‖² − zᵀB (NᵀB)⁻¹ Bᵀz,    mean(x) = wᵀz.

    The bracket is the base variance, that of the posterior with nothing left out. It changes by squares of rows
    applied to z, which ``grown`` and ``observed`` return.

    Source: the posterior is that of Calandriello et al., COLT 2019, between (3) and (4), in the units of ``dtc``.

    Attributes:
        factor_parts: L (m, m), lower triangular, in double precision as everything here: for each group of points their
            coordinates in those before, and their own factor.
        precision_base: M (m, m), but for what the last rewards added.
        inverse_base: M⁻¹ (m, m), but for what the last rewards took off.
        gained: rows (k, m) of the last rewards: M = precision_base + Σ rowᵀ row. Matrices are read often and rewritten
            seldom, since writing them costs more than all else in a round.
        fallen: rows (k, m) of the last rewards: M⁻¹ = inverse_base − Σ rowᵀ row.
        moment: Σ_s z_s y_s / λ_s, (m,).
        base_log_det: log det M, 0-dim.
        left_out: positions of the spanning points that are not in the dictionary.
    """

    factor_parts: tuple[tuple[Tensor, Tensor], ...]
    precision_base: Tensor
    inverse_base: Tensor
    gained: Tensor
    fallen: Tensor
    moment: Tensor
    base_log_det: Tensor
    left_out: tuple[int, ...] = ()
    known_complement: Tensor | None = field(default=None, repr=False)

    @classmethod
    def empty(cls, like: Tensor) -> Self:
        """Return the prior without spanning points, on the device of a tensor."""
        nothing = torch.zeros(0, 0, dtype=torch.float64, device=like.device)
        return cls.fit(nothing, nothing, nothing.sum(0), nothing.sum(0))

    @classmethod
    def fit(cls, factor: Tensor, embedding: Tensor, weights: Tensor, moments: Tensor) -> Self:
        """Condition on u points at coordinates (m, u).

        Args:
            factor: L (m, m).
            embedding: z of each point, (m, u).
            weights: summed 1/λ_s of the observations of each point, (u,).
            moments: summed y_s/λ_s of the observations of each point, (u,).

        Cost: O(u m² + m³).
        """
        precision = (embedding * weights) @ embedding.mT
        precision.diagonal().add_(1.0)
        parts, none = ((factor[:, :0], factor),), precision[:0]
        return cls(parts, precision, precision, none, none, embedding @ moments, precision.new_zeros(())).refreshed()

    @property
    def size(self) -> int:
        """Number m of coordinates."""
        return len(self.moment)

    @property
    def kept(self) -> tuple[int, ...]:
        """Positions of the spanning points in the dictionary."""
        left_out = set(self.left_out)
        return tuple(position for position in range(self.size) if position not in left_out)

    # ---------------------------------------------------------------- reading

    @cached_property
    def factor(self) -> Tensor:
        """L (m, m). Put together when asked for: it is needed where points leave, and else copies would cost."""
        if len(self.factor_parts) == 1:
            return self.factor_parts[0][1]
        factor = self.precision_base.new_zeros(self.size, self.size)
        for own, corner in self.factor_parts:
            first, last = own.shape[1], sum(own.shape)
            factor[first:last, :first] = own
            factor[first:last, first:last] = corner
        return factor

    @cached_property
    def precision(self) -> Tensor:
        """M (m, m)."""
        return (
            torch.addmm(self.precision_base, self.gained.mT, self.gained) if len(self.gained) else self.precision_base
        )

    @cached_property
    def inverse(self) -> Tensor:
        """M⁻¹ (m, m)."""
        if len(self.fallen) == 0:
            return self.inverse_base
        return torch.addmm(self.inverse_base, self.fallen.mT, self.fallen, alpha=-1.0)

    @cached_property
    def weights(self) -> Tensor:
        """The weights w (m,) of the mean, refined once, so that drift of M⁻¹ hardly enters. Cost: O(m²)."""
        weights = self._solved(self.moment.unsqueeze(-1)).squeeze(-1)
        return weights - self.lost.mT @ (self.lost @ self.moment) if self.left_out else weights

    @cached_property
    def complement(self) -> Tensor:
        """N (m, r): an orthonormal basis of what the dictionary leaves of the span. Cost: O(m² r)."""
        if self.known_complement is not None:
            return self.known_complement
        if not self.left_out:
            return self.precision_base[:, :0]
        unit = self.precision_base.new_zeros(self.size, len(self.left_out))
        unit[list(self.left_out), range(len(self.left_out))] = 1.0
        duals = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        return torch.linalg.qr(duals / duals.norm(dim=0)).Q

    @cached_property
    def lost(self) -> Tensor:
        """Rows (r, m) whose squares applied to z are zᵀB (NᵀB)⁻¹ Bᵀz: the base variance that the complement held."""
        if not self.left_out:
            return self.precision_base[:0]
        solved = self._inverse_times(self.complement).mT
        return torch.linalg.solve_triangular(self._corner_factor, solved, upper=False)

    @cached_property
    def _corner_factor(self) -> Tensor:
        return jittered_cholesky(self.complement.mT @ self._inverse_times(self.complement))

    @property
    def log_det(self) -> Tensor:
        """Log det of I + Σ_s z_s z_sᵀ / λ_s on the dictionary's span, 0-dim."""
        if not self.left_out:
            return self.base_log_det
        return self.base_log_det + 2.0 * self._corner_factor.diagonal().log().sum()

    @cached_property
    def precision_factor(self) -> Tensor:
        """The lower Cholesky factor of M, (m, m). Cost: O(m³) the first time."""
        return jittered_cholesky(self.precision)

    def base_variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the base variance at points of prior variance (n,) and coordinates (m, n), (n,), from M itself.

        In the dtype of the coordinates. Cost: O(n m²), and that of ``precision_factor``.
        """
        whitened = torch.linalg.solve_triangular(self.precision_factor.to(embedding.dtype), embedding, upper=False)
        return prior_variance - embedding.square().sum(0) + whitened.square().sum(0)

    def quick_base_variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the same from M⁻¹ as it is, which may have drifted. Cost: O(n m²)."""
        return prior_variance - embedding.square().sum(0) + (embedding * self._inverse_times(embedding)).sum(0)

    def basis(self, positions: Sequence[int]) -> Tensor:
        """Return rows (k, m): the coordinates L⁻¹ k of a dictionary, spanning points in the order given, from these.

        The identity if it is all spanning points in their order, else O(k² m).
        """
        if list(positions) == list(range(self.size)):
            return torch.eye(self.size, dtype=self.factor.dtype, device=self.factor.device)
        points = self.factor[list(positions)]
        return torch.linalg.solve_triangular(jittered_cholesky(points @ points.mT), points, upper=False)

    def solve(self, vector: Tensor) -> Tensor:
        """Return V⁻¹ v for v (m,), with V = I + Σ_s z_s z_sᵀ / λ_s on the dictionary's span. Cost: O(m²)."""
        solved = self._inverse_times(vector.unsqueeze(-1)).squeeze(-1)
        return solved - self.lost.mT @ (self.lost @ vector) if self.left_out else solved

    def inverse_product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return leftᵀ M⁻¹ right for coordinates (m, k) and (m, l), (k, l), from M⁻¹ as it is. Cost: O(m² l)."""
        return left.mT @ self._inverse_times(right)

    def traces(self) -> tuple[Tensor, Tensor]:
        """Return the traces of M and of M⁻¹ as it is, 0-dim. Cost: O(m)."""
        trace = self.precision_base.diagonal().sum() + self.gained.square().sum()
        return trace, self.inverse_base.diagonal().sum() - self.fallen.square().sum()

    def distance(self, change: Tensor) -> Tensor:
        """Return √(cᵀ M c) for a change c (m,) of the weights, 0-dim. Cost: O(m²)."""
        change = change.unsqueeze(-1)
        return (change * self._precision_times(change)).sum().clamp_min(0.0).sqrt()

    # ---------------------------------------------------------------- changing

    def observed(self, points: Tensor, weights: Tensor, moments: Tensor) -> tuple[Self, Tensor]:
        """Condition on rewards of k points.

        Args:
            points: their coordinates (m, k).
            weights: summed 1/λ_s of the new rewards of each, (k,).
            moments: summed y_s/λ_s of the new rewards of each, (k,).

        Returns:
            The posterior, and rows (k, m) whose squares applied to z come off the base variance.

        Cost: O(m² k + k³).
        """
        solved = self._inverse_times(points).mT
        corner = solved @ points
        corner.diagonal().add_(1.0 / weights)
        if points.shape[1] == 1:
            factor = corner.sqrt()
            fallen = solved / factor
        else:
            factor = jittered_cholesky(corner)
            fallen = torch.linalg.solve_triangular(factor, solved, upper=False)
        start = self if len(self.fallen) + len(fallen) <= _MOST_ROWS else self._merged()
        after = replace(
            start,
            gained=torch.cat([start.gained, (points * weights.sqrt()).mT]),
            fallen=torch.cat([start.fallen, fallen]),
            moment=self.moment + points @ moments,
            base_log_det=self.base_log_det + 2.0 * factor.diagonal().log().sum() + weights.log().sum(),
            known_complement=self.complement,
        )
        return after, fallen

    def with_observations(self, points: Tensor, weights: Tensor, moments: Tensor) -> Self:
        """Return M and the moments with rewards of k points added; M⁻¹ and log det are not what they were to follow.

        ``refreshed`` computes them, once after many blocks of rewards.

        Args:
            points: their coordinates (m, k).
            weights: summed 1/λ_s of the rewards of each, (k,).
            moments: summed y_s/λ_s of the rewards of each, (k,).

        Cost: O(m² k).
        """
        precision = torch.addmm(self.precision_base, points * weights, points.mT)
        return replace(self, precision_base=precision, moment=self.moment + points @ moments)

    def grown(self, own: Tensor, corner: Tensor, cross: Tensor, below: Tensor, moments: Tensor) -> tuple[Self, Tensor]:
        """Add spanning points, which join the dictionary, on the observations so far.

        Args:
            own: coordinates of the a new points, (a, m).
            corner: lower Cholesky factor (a, a) of their covariance given the others.
            cross: Σ_s z_s f_sᵀ / λ_s over the observations, f_s being their new coordinates, (m, a).
            below: Σ_s f_s f_sᵀ / λ_s, (a, a).
            moments: Σ_s f_s y_s / λ_s, (a,).

        Returns:
            The posterior, and rows (a, m + a) whose squares applied to z come on the base variance, after the squares
            of the new coordinates themselves came off it.

        Cost: O(a m²).
        """
        m, a = self.size, len(own)
        identity = torch.eye(a, dtype=own.dtype, device=own.device)
        solved = self._solved(cross)
        schur_factor = jittered_cholesky(identity + below - cross.mT @ solved)
        risen = torch.linalg.solve_triangular(schur_factor, torch.cat([-solved.mT, identity], dim=1), upper=False)
        old, new = risen[:, :m], risen[:, m:]
        inverse = _bordered(self.inverse_base, old.mT @ new, new.mT @ old, new.mT @ new)
        _add_squares(inverse[:m, :m], old, 1)
        _add_squares(inverse[:m, :m], self.fallen, -1)
        precision = _bordered(self.precision_base, cross, cross.mT, identity + below)
        _add_squares(precision[:m, :m], self.gained, 1)
        after = replace(
            self,
            factor_parts=(*self._merged_parts(), (own, corner)),
            precision_base=precision,
            inverse_base=inverse,
            gained=risen[:0],
            fallen=risen[:0],
            moment=torch.cat([self.moment, moments]),
            base_log_det=self.base_log_det + 2.0 * schur_factor.diagonal().log().sum(),
            known_complement=None,
        )
        return after, risen

    def _merged_parts(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return the parts of the factor, as one if it was put together or the parts are many."""
        if "factor" in vars(self) or len(self.factor_parts) >= _MOST_PARTS:
            return ((self.factor[:, :0], self.factor),)
        return self.factor_parts

    def _solved(self, columns: Tensor) -> Tensor:
        """Return M⁻¹ times columns (m, k), refined once: where they are large, M⁻¹ as it is would lose all digits."""
        solved = self._inverse_times(columns)
        return solved + self._inverse_times(columns - self._precision_times(solved))

    def _inverse_times(self, columns: Tensor) -> Tensor:
        """Return M⁻¹, as it is, times columns (m, k). Cost: O(m² k)."""
        return self.inverse_base @ columns - self.fallen.mT @ (self.fallen @ columns)

    def _precision_times(self, columns: Tensor) -> Tensor:
        """Return M times columns (m, k). Cost: O(m² k)."""
        return self.precision_base @ columns + self.gained.mT @ (self.gained @ columns)

    def _merged(self) -> Self:
        """Return the same with M and M⁻¹ written out. Cost: O(m²) a row."""
        none = self.fallen[:0]
        return replace(self, precision_base=self.precision, inverse_base=self.inverse, gained=none, fallen=none)

    def restricted(self) -> Self:
        """Return the same posterior in ``basis``, the coordinates of the dictionary alone. Cost: O(m³)."""
        basis = self.basis(self.kept)
        points = self.factor[list(self.kept)]
        factor = jittered_cholesky(points @ points.mT)
        after = replace(
            self,
            factor_parts=((factor[:, :0], factor),),
            precision_base=basis @ self.precision @ basis.mT,
            gained=self.gained[:0, : len(basis)],
            fallen=self.fallen[:0, : len(basis)],
            moment=basis @ self.moment,
            left_out=(),
            known_complement=None,
        )
        return after.refreshed()

    def leaving_out(self, positions: tuple[int, ...]) -> Self:
        """Return the posterior whose dictionary lacks just these spanning points."""
        return self if positions == self.left_out else replace(self, left_out=positions, known_complement=None)

    def refreshed(self) -> Self:
        """Return the same posterior with M⁻¹ and log det computed afresh from M. Cost: O(m³)."""
        factor = self.precision_factor
        after = replace(
            self._merged(),
            inverse_base=torch.cholesky_inverse(factor),
            base_log_det=2.0 * factor.diagonal().log().sum(),
        )
        vars(after)["precision_factor"] = factor  # M is the same
        return after


def _add_squares(matrix: Tensor, rows: Tensor, sign: int) -> None:
    """Add or take off Σ rowᵀ row for rows (k, m), in place."""
    if rows.shape[0] == 1:
        matrix.addcmul_(rows.mT, rows, value=sign)
    elif rows.shape[0]:
        matrix.addmm_(rows.mT, rows, alpha=sign)


def _bordered(corner: Tensor, right: Tensor, below: Tensor, last: Tensor) -> Tensor:
    m = corner.shape[0]
    size = m + last.shape[0]
    matrix = corner.new_empty(size, size)
    matrix[:m, :m], matrix[:m, m:], matrix[m:, :m], matrix[m:, m:] = corner, right, below, last
    return matrix
