"""The Nyström–DTC posterior over a changing dictionary as algebra on coordinates; it knows no kernel and no points."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.linalg import LEAST_SHARE, jittered_cholesky, lower_inverse
from torch_kbandits.numerics.places import sent
from torch_kbandits.numerics.shallow import changed, made
from torch_kbandits.posteriors import online_loops
from torch_kbandits.posteriors.squares import (
    Signs,
    Squares,
    Tracked,
    as_rows,
    grown,
    grown_by_one,
    is_full,
    with_sign,
)

Array = NDArray[np.float64]

#: So much of a column may be lost where K⁻¹ as it is solves for it: points that leave and come back would square that
#: drift in units of the condition number, so that beyond it grows within a few rounds.
_LOST = 1e-5

#: With more coordinates than this the products of matrices, by all threads, are faster than loops.
_LARGEST_LOOPED = 1024

#: Observations of k points: their coordinates (m, k), the summed 1/λ_s of each, (k,), and the summed y_s/λ_s, (k,).
Observed = tuple[Tensor, Tensor, Tensor]


class Rewarded(NamedTuple):
    """A posterior after rewards at an unchanged dictionary, in arrays: a round costs less without tensors.

    Attributes:
        start: the posterior before, of whose matrices the bases are the same.
        inverse: K⁻¹.
        precision: M.
        moment: Σ_s z_s y_s / λ_s, (m,).
        weights: w (m,).
        log_det: log det K.
    """

    start: "OnlineDTC"
    inverse: online_loops.Matrix
    precision: online_loops.Matrix
    moment: Array
    weights: Array
    log_det: float

    @property
    def dtc(self) -> "OnlineDTC":
        """The posterior as it is otherwise."""
        if self.moment is self.start.vectors[0]:
            return self.start
        inverse = self.start.tracked_inverse.showing(self.inverse)
        precision = self.start.tracked_precision.showing(self.precision)
        return self.start.showing(precision, inverse, (self.moment, self.weights), self.log_det)

    def told(self, point: Array, weight: float, moment: float) -> "Rewarded | None":
        """Return the same after a reward; see ``OnlineDTC.told``."""
        (base, _, signs), (other, _, others), start = self.inverse, self.precision, self.start
        known = self.inverse, self.precision, start.arrays[2], self.moment, self.weights
        fallen, came, sums, weights, share, size = online_loops.told(*known, point, weight, moment)
        if not (share > 0.0 and math.isfinite(size)):
            return None
        log_det = self.log_det + math.log(share)
        if is_full(signs) or is_full(others):
            before = self.dtc
            inverse = before.tracked_inverse.followed(fallen, -1.0)
            precision = before.tracked_precision.followed(came, 1.0)
            return start.showing(precision, inverse, (sums, weights), log_det).rewarded
        inverse, precision = (base, fallen, with_sign(signs, -1.0)), (other, came, with_sign(others, 1.0))
        return Rewarded(start, inverse, precision, sums, weights, log_det)

    def moments_at(self, point: Array) -> tuple[float, float, float]:
        """Return the same of coordinates z (m,) as ``OnlineDTC.moments_at``."""
        return online_loops.moments(self.inverse, self.start.arrays[2], self.weights, point)

    @property
    def fallen(self) -> Array:
        """The row (1, m) by whose square variances fell at the last reward."""
        return self.inverse[1][-1:]


class _DriftError(Exception):
    """K⁻¹ has drifted too far for what is to be done with it."""


@dataclass(frozen=True, eq=False)
class OnlineDTC:
    """A DTC posterior that follows observations and dictionary changes by low-rank changes. A value.

    Points are written in the coordinates z(x) = L⁻¹ k_Z(x) of m spanning points Z. The dictionary is Z without the
    points ``left_out``: observations then enter by what the others span of them, so points leave and come back without
    any change of coordinates. With M = I + Σ_s z_s z_sᵀ / λ_s, orthonormal N spanning what only the points left out
    span, P = I − NNᵀ and K = P M P + NNᵀ,

        variance(x) = k(x, x) − zᵀz + zᵀK⁻¹z,    mean(x) = wᵀz with w = K⁻¹ P Σ_s z_s y_s / λ_s.

    Whatever happens changes variances by squares of rows applied to z, as many as points or rewards come or go; the
    methods that change something return them.

    Source: the posterior is that of Calandriello et al., COLT 2019, between (3) and (4), in the units of ``dtc``.

    Attributes:
        factor: L (m, m), in double precision as everything here.
        tracked_precision: M (m, m), and what the last rewards changed of it.
        tracked_inverse: K⁻¹ (m, m), and what changed it last.
        moment: Σ_s z_s y_s / λ_s, (m,).
        log_det: log det K, 0-dim: that of I + Σ_s z_s z_sᵀ / λ_s on the dictionary's span.
        complement: N (m, r), with orthonormal columns.
        left_out: positions of the r spanning points that are not in the dictionary.
    """

    factor: Tensor
    tracked_precision: Tracked
    tracked_inverse: Tracked
    moment: Tensor
    log_det: Tensor
    complement: Tensor = field(repr=False)
    left_out: tuple[int, ...] = ()

    @classmethod
    def empty(cls, like: Tensor) -> Self:
        """Return the prior without spanning points, on the device of a tensor."""
        nothing = torch.zeros(0, 0, dtype=torch.float64, device=like.device)
        return cls.fit(nothing, ())

    @classmethod
    def fit(cls, factor: Tensor, seen: Iterable[Observed]) -> Self:
        """Condition on observations at spanning points of factor L (m, m). Cost: O(u m² + m³) for u points."""
        start = cls(
            factor=factor,
            tracked_precision=Tracked.of(factor),
            tracked_inverse=Tracked.of(factor),
            moment=factor.new_zeros(len(factor)),
            log_det=factor.new_zeros(()),
            complement=factor[:, :0],
        )
        return start.refitted(seen)

    def refitted(self, seen: Iterable[Observed]) -> Self:
        """Return the posterior of other observations at the same dictionary. Cost: as for ``fit``."""
        start = self.without_rewards()
        precision, moment = start.tracked_precision.base, start.moment
        for points, weights, moments in seen:
            precision.addmm_(points * weights, points.mT)
            moment.addmv_(points, moments)
        return start.refreshed()

    def without_rewards(self) -> Self:
        """Return the prior at the same dictionary."""
        identity = torch.eye(self.size, dtype=self.moment.dtype, device=self.moment.device)
        return replace(
            self,
            tracked_precision=Tracked.of(identity),
            tracked_inverse=Tracked.of(identity),
            moment=torch.zeros_like(self.moment),
            log_det=torch.zeros_like(self.log_det),
        )

    @property
    def size(self) -> int:
        """Number m of coordinates."""
        return self.moment.shape[0]

    @property
    def kept(self) -> tuple[int, ...]:
        """Positions of the spanning points in the dictionary."""
        left_out = set(self.left_out)
        return tuple(position for position in range(self.size) if position not in left_out)

    # ---------------------------------------------------------------- reading

    @property
    def precision(self) -> Tensor:
        """M (m, m)."""
        return self.tracked_precision.whole

    @property
    def inverse(self) -> Tensor:
        """K⁻¹ (m, m)."""
        return self.tracked_inverse.whole

    @cached_property
    def factor_rows(self) -> Array:
        """L as loops take it; see ``as_rows``."""
        return as_rows(self.factor)

    @cached_property
    def weights(self) -> Tensor:
        """The weights w (m,) of the mean."""
        return self.weights_of(self.moment)

    def weights_of(self, moment: Tensor) -> Tensor:
        """Return the weights (m,) of the mean if Σ_s z_s y_s / λ_s were this (m,): if other rewards had been told.

        Refined once, so that drift of K⁻¹ hardly enters. Cost: O(m²).
        """
        if self.loops_over(moment):
            return torch.from_numpy(online_loops.weights_of(*self.arrays, moment.numpy()))
        return self._solved(self.inside(moment.unsqueeze(-1))).squeeze(-1)

    @cached_property
    def precision_factor(self) -> Tensor:
        """The lower Cholesky factor of K, (m, m). Cost: O(m³) the first time."""
        precision, N = self.precision, self.complement
        if self.left_out:
            precision = self.inside(self.inside(precision).mT) + N @ N.mT
        return jittered_cholesky(precision)

    def variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the variance at points of prior variance (n,) and coordinates (m, n), (n,), from M itself.

        In the dtype of the coordinates, and where they are. Cost: O(n m²), and that of ``precision_factor``.
        """
        (factor,) = sent(embedding, self.precision_factor)
        whitened = torch.linalg.solve_triangular(factor, embedding, upper=False)
        return prior_variance - embedding.square().sum(0) + whitened.square().sum(0)

    def quick_variance(self, prior_variance: Tensor, embedding: Tensor) -> Tensor:
        """Return the same from K⁻¹ as it is, which may have drifted. Cost: O(n m²)."""
        if embedding.shape[1] == 1 and self.loops_over(point := embedding.squeeze(1).contiguous()):
            return prior_variance + online_loops.reduction(self.tracked_inverse.arrays, point.numpy())
        return prior_variance - embedding.square().sum(0) + (embedding * self._inverse_times(embedding)).sum(0)

    def moments_at(self, point: Array) -> tuple[float, float, float]:
        """Return wᵀz, what ``quick_variance`` adds to the prior variance, and zᵀPz of coordinates z (m,), by a loop."""
        inverse, _, complement = self.arrays
        return online_loops.moments(inverse, complement, self.vectors[1], point)

    def spanned(self, embedding: Tensor) -> Tensor:
        """Return what the dictionary spans of the prior variance of points of coordinates (m, n), (n,): zᵀPz."""
        spanned = embedding.square().sum(0)
        if not self.complement.shape[1]:
            return spanned
        (N,) = sent(embedding, self.complement)
        return spanned - (N.mT @ embedding).square().sum(0)

    def inside(self, columns: Tensor) -> Tensor:
        """Return P times columns (m, k): what the dictionary spans of them. Cost: O(m r k)."""
        return columns - self.complement @ (self.complement.mT @ columns) if self.complement.shape[1] else columns

    def explained(self, embedding: Tensor) -> Tensor:
        """Return z − K⁻¹z for coordinates (m, n), (m, n), from K⁻¹ as it is: what rewards explain. Cost: O(n m²)."""
        return embedding - self._inverse_times(embedding)

    def spanning_functions(self) -> Tensor:
        """Return weights F (m, m) of kernel values so that ``spanned`` is ‖F k_Z‖². Cost: O(m³)."""
        return self.inside(lower_inverse(self.factor))

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
        return self._inverse_times(self.inside(vector.unsqueeze(-1))).squeeze(-1)

    def inverse_product(self, left: Tensor, right: Tensor) -> Tensor:
        """Return leftᵀ K⁻¹ right for coordinates (m, k) and (m, l), (k, l), from K⁻¹ as it is. Cost: O(m² l)."""
        return left.mT @ self._inverse_times(right)

    def effective_dimension(self, prior: Tensor) -> Tensor:
        """Return Σ_s variance(x_s)/λ_s over the observations, 0-dim, given Σ_s k(x_s, x_s)/λ_s.

        Cost: O(m), and O(m² r) if r points are left out.
        """
        return self.projection_error(prior) + self.size - self.tracked_inverse.trace()

    def projection_error(self, prior: Tensor) -> Tensor:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s)/λ_s over the observations, 0-dim, given Σ_s k(x_s, x_s)/λ_s.

        Here z are coordinates in the span of the dictionary. Cost: O(m), and O(m² r) if r points are left out.
        """
        captured = self.tracked_precision.trace() - self.size
        if self.left_out:
            N = self.complement
            captured = captured - ((self._precision_times(N) * N).sum() - N.square().sum())
        return (prior - captured).clamp_min(0.0)

    def distance(self, change: Tensor) -> Tensor:
        """Return √(cᵀ M c) for a change c (m,) of the weights, 0-dim. Cost: O(m²)."""
        change = change.unsqueeze(-1)
        return (change * self._precision_times(change)).sum().clamp_min(0.0).sqrt()

    # ---------------------------------------------------------------- rewards

    def observed(self, points: Tensor, weights: Tensor, moments: Tensor) -> "tuple[OnlineDTC, Squares]":
        """Condition on rewards of k points.

        Args:
            points: their coordinates (m, k).
            weights: summed 1/λ_s of the new rewards of each, (k,).
            moments: summed y_s/λ_s of the new rewards of each, (k,).

        Returns:
            The posterior, and how variances change.

        Cost: O(m² k + k³).
        """
        if points.shape[1] == 1 and self.loops_over(point := points.squeeze(1).contiguous()):
            after = self.told(point.numpy(), weights.item(), moments.item())
            if after is not None:
                return after, after.last_square(-1.0)
        inside = self.inside(points)
        solved = self._inverse_times(inside).mT
        corner = solved @ inside
        corner.diagonal().add_(1.0 / weights)
        if points.shape[1] == 1:
            factor = corner.sqrt()
            fallen = solved / factor
        else:
            factor = jittered_cholesky(corner)
            fallen = torch.linalg.solve_triangular(factor, solved, upper=False)
        squares = Squares.of(fallen, -1.0)
        after = self._followed(
            squares,
            (factor.diagonal().square() * weights).log().sum(),
            told=Squares.of((points * weights.sqrt()).mT, 1.0),
            moment=self.moment + points @ moments,
        )
        return after, squares

    def forgotten(self, points: Tensor, weights: Tensor, moments: Tensor) -> tuple[Self, Squares] | None:
        """Take back rewards of k points; see ``observed``.

        Returns:
            The posterior, and how variances change; None where rounding would be left of what explains too much.

        Cost: O(m² k + k³).
        """
        if points.shape[1] == 1 and self.loops_over(point := points.squeeze(1).contiguous()):
            row, taken, share = online_loops.taken_back(*self.arrays, point.numpy(), weights.item())
            if not share > LEAST_SHARE:
                return None
            squares = Squares(torch.from_numpy(row), *_CAME[1.0])
            told, moment = Squares(torch.from_numpy(taken), *_CAME[-1.0]), self.moment - moments * point
            return self._followed(squares, math.log(share), told=told, moment=moment), squares
        inside = self.inside(points)
        # Refined, since the corner is a small difference and would be all drift.
        solved = self._solved(inside).mT
        corner = -(solved @ inside)
        corner.diagonal().add_(1.0 / weights)
        factor, info = torch.linalg.cholesky_ex(corner)
        shares = factor.diagonal().square() * weights
        if bool(info) or bool(shares.prod() < LEAST_SHARE):
            return None
        risen = torch.linalg.solve_triangular(factor, solved, upper=False)
        squares = Squares.of(risen, 1.0)
        after = self._followed(
            squares,
            shares.log().sum(),
            told=Squares.of((points * weights.sqrt()).mT, -1.0),
            moment=self.moment - points @ moments,
        )
        return after, squares

    def told(self, point: Array, weight: float, moment: float) -> "OnlineDTC | None":
        """Return the posterior after ``observed`` of one point, whose weights are known then, by a loop.

        Variances fall by the square of the last of the rows that K⁻¹ has apart. None where something is not finite.

        Args:
            point: its coordinates (m,).
            weight: the summed 1/λ_s of its rewards.
            moment: the summed y_s/λ_s.
        """
        after = self.rewarded.told(point, weight, moment)
        return None if after is None else after.dtc

    @property
    def rewarded(self) -> Rewarded:
        """The same in arrays."""
        return Rewarded(self, *self.arrays[:2], *self.vectors, self.log_det.item())

    def showing(self, precision: Tracked, inverse: Tracked, vectors: tuple[Array, Array], log_det: float) -> Self:
        """Return the posterior of M, K⁻¹, moment and weights, and log det K, at the same dictionary."""
        return made(
            type(self),
            {
                "factor": self.factor,
                "tracked_precision": precision,
                "tracked_inverse": inverse,
                "moment": torch.from_numpy(vectors[0]),
                "log_det": self.log_det.new_full((), log_det),
                "complement": self.complement,
                "left_out": self.left_out,
                "factor_rows": self.factor_rows,
                "weights": torch.from_numpy(vectors[1]),
                "arrays": (inverse.arrays, precision.arrays, self.arrays[2]),
                "vectors": vectors,
            },
        )

    def last_square(self, sign: float) -> Squares:
        """Return the last of the rows that K⁻¹ has apart, of a sign, as a change of variances."""
        return Squares(self.tracked_inverse.rows[-1:], *_CAME[sign])

    # ---------------------------------------------------------------- the dictionary

    def grown(self, own: Tensor, corner: Tensor, cross: Tensor, below: Tensor, moments: Tensor) -> tuple[Self, Squares]:
        """Add spanning points, which join the dictionary, on the observations so far.

        Args:
            own: coordinates of the a new points, (a, m).
            corner: lower Cholesky factor (a, a) of their covariance given the others.
            cross: Σ_s z_s f_sᵀ / λ_s over the observations, f_s being their new coordinates, (m, a).
            below: Σ_s f_s f_sᵀ / λ_s, (a, a).
            moments: Σ_s f_s y_s / λ_s, (a,).

        Returns:
            The posterior, and how variances change, in m + a coordinates, after the squares of the new coordinates
            themselves came off.

        Cost: O(a m²).
        """
        if len(own) == 1 and not self.left_out and self.loops_over(column := cross.squeeze(1)):
            numbers = corner.item(), column.contiguous().numpy(), below.item(), moments.item()
            if (after := self.grown_by_one(own.squeeze(0).contiguous().numpy(), *numbers)) is not None:
                return after, after.last_square(1.0)
        identity = torch.eye(len(own), dtype=own.dtype, device=own.device)
        # At first the new points are left out, which changes no variance; then they come in.
        last = identity if self.left_out else torch.zeros_like(identity)
        outside = replace(
            self,
            factor=grown(self.factor, torch.zeros_like(cross), own, corner),
            tracked_precision=self.tracked_precision.bordered(cross, identity + below),
            tracked_inverse=self.tracked_inverse.bordered(torch.zeros_like(cross), last),
            moment=torch.cat([self.moment, moments]),
            complement=torch.block_diag(self.complement, identity),
        )
        if self.left_out:
            after, squares = outside._returned(torch.cat([own, corner], dim=1))
            return after, squares.then(Squares.of(torch.nn.functional.pad(identity, (self.size, 0)), 1.0, -1.0))
        # What falls is the new coordinates themselves, which K⁻¹ was made without.
        solved = self._solved(cross)
        factor = jittered_cholesky(identity + below - cross.mT @ solved)
        log_det = 2.0 * factor.diagonal().log().sum()
        risen = torch.linalg.solve_triangular(factor, torch.cat([-solved.mT, identity], dim=1), upper=False)
        squares = Squares.of(risen, 1.0)
        return outside._followed(squares, log_det, complement=outside.complement[:, :0]), squares

    def grown_by_one(self, own: Array, corner: float, cross: Array, below: float, moment: float) -> Self | None:
        """Return the same posterior with one more spanning point, while no other is left out, by a loop.

        Arguments as for ``grown``, in arrays (m,) and numbers; None where something is not finite.
        """
        known = *self.arrays, self.weights.numpy()
        fallen, came, weights, share = online_loops.grown(*known, cross, 1.0 + below, moment)
        if not (share > 0.0 and math.isfinite(share)):
            return None
        precision, inverse = self.tracked_precision, self.tracked_inverse
        base = inverse.with_base(grown_by_one(inverse.base, 0.0, 0.0, 0.0), fallen[:-1])
        after = type(self)(
            grown_by_one(self.factor, 0.0, own, corner),
            precision.with_base(grown_by_one(precision.base, cross, cross, 1.0 + below), came),
            base.followed(fallen, 1.0),
            torch.from_numpy(np.append(self.moment.numpy(), moment)),
            self.log_det + math.log(share),
            self.complement.new_empty(self.size + 1, 0),
        )
        vars(after)["weights"] = torch.from_numpy(weights)
        return after

    def leaving_out(self, positions: tuple[int, ...]) -> tuple[Self, Squares]:
        """Return the posterior whose dictionary lacks just these spanning points, and how variances change.

        Cost: O(m² k + m r k) for k points that leave or come back.
        """
        if positions == self.left_out:
            return self, Squares.none(self.size, self.moment)
        try:
            return self._leaving_out(positions, _LOST)
        except _DriftError:
            return self.refreshed()._leaving_out(positions, math.inf)

    def _leaving_out(self, positions: tuple[int, ...], most_lost: float) -> tuple[Self, Squares]:
        """Return the same; raise where more of a column is lost than may be, because K⁻¹ has drifted."""
        after, changes = self, Squares.none(self.size, self.moment)
        back, gone = set(self.left_out) - set(positions), set(positions) - set(self.left_out)
        if back:
            after, changes = after._returned(self.factor[sorted(back)], most_lost)
        if gone:
            after, squares = after._left(sorted(gone), most_lost)
            changes = changes.then(squares)
        return changed(after, left_out=positions), changes

    def _returned(self, points: Tensor, most_lost: float = math.inf) -> tuple[Self, Squares]:
        """Bring spanning points of coordinates (k, m), which were left out, into the dictionary."""
        N, k = self.complement, len(points)
        if k == 1 and self.loops_over(points[0]):
            known = self.moment.numpy(), self.weights.numpy(), points[0].contiguous().numpy()
            if (moved := self._moved(*online_loops.returned(*self.arrays, *known), most_lost, _CAME_BACK)) is not None:
                return moved
        if k == N.shape[1]:
            directions, rest = N, N[:, :0]
        else:
            rotation = torch.linalg.qr(N.mT @ points.mT, mode="complete").Q
            directions, rest = N @ rotation[:, :k], N @ rotation[:, k:]
        columns = self._precision_times(directions)
        inside = self.inside(columns)
        solved = self._solved(inside, most_lost)
        factor = jittered_cholesky(directions.mT @ columns - inside.mT @ solved)
        risen = torch.linalg.solve_triangular(factor, (directions - solved).mT, upper=False)
        squares = Squares.of(directions.mT, -1.0, 1.0).then(Squares.of(risen, 1.0))
        return self._followed(squares, 2.0 * factor.diagonal().log().sum(), complement=rest), squares

    def _left(self, positions: list[int], most_lost: float) -> tuple[Self, Squares]:
        """Leave out some spanning points that are in the dictionary."""
        N = self.complement
        if len(positions) == 1 and self.loops_over(self.moment):
            known = self.weights.numpy(), self.factor_rows, positions[0]
            if (moved := self._moved(*online_loops.left(*self.arrays, *known), most_lost, _LEFT)) is not None:
                return moved
        unit = self.moment.new_zeros(self.size, len(positions))
        unit[positions, range(len(positions))] = 1.0
        directions = torch.linalg.solve_triangular(self.factor, unit, upper=False)
        for _ in range(2):  # the second time for what rounding leaves of the first
            directions = self.inside(directions)
            directions = torch.linalg.qr(directions / directions.norm(dim=0)).Q
        solved = self._solved(directions, most_lost)
        factor = jittered_cholesky(directions.mT @ solved)
        fallen = torch.linalg.solve_triangular(factor, solved.mT, upper=False)
        squares = Squares.of(fallen, -1.0).then(Squares.of(directions.mT, 1.0, -1.0))
        complement = torch.cat([N, directions], dim=1)
        return self._followed(squares, 2.0 * factor.diagonal().log().sum(), complement=complement), squares

    def _moved(
        self,
        rows: Array,
        complement: Array,
        weights: Array,
        share: float,
        lost: float,
        most_lost: float,
        signs: tuple[Signs, Signs],
    ) -> tuple[Self, Squares] | None:
        """Return what comes of what a loop found; None where rounding is left of a share, which it cannot mend."""
        if lost > most_lost:
            raise _DriftError
        if not share > 0.0:
            return None
        squares = Squares(torch.from_numpy(rows), *signs)
        after = self._followed(squares, math.log(share), complement=torch.from_numpy(complement).mT)
        vars(after)["weights"] = torch.from_numpy(weights)
        return after, squares

    def shortened(self, size: int) -> tuple[Self, Squares]:
        """Return the posterior at the first spanning points alone, and how variances change, in all coordinates.

        Only where no spanning point is left out. Cost: O(m² k) for k points that go.
        """
        inverse = self.inverse
        root = jittered_cholesky(inverse[size:, size:])
        risen = torch.eye(self.size, dtype=inverse.dtype, device=inverse.device)[size:]
        fallen = torch.linalg.solve_triangular(root, inverse[size:], upper=False)
        after = replace(
            self,
            factor=self.factor[:size, :size],
            tracked_precision=Tracked.of(self.precision[:size, :size]),
            tracked_inverse=Tracked.of(
                torch.addmm(inverse[:size, :size], fallen[:, :size].mT, fallen[:, :size], alpha=-1.0)
            ),
            moment=self.moment[:size],
            log_det=self.log_det + 2.0 * root.diagonal().log().sum(),
            complement=self.complement[:size],
        )
        return after, Squares.of(fallen, -1.0).then(Squares.of(risen, 1.0, -1.0))

    def restricted(self) -> Self:
        """Return the same posterior in ``basis``, the coordinates of the dictionary alone. Cost: O(m³)."""
        basis = self.basis(self.kept)
        points = self.factor[list(self.kept)]
        factor = jittered_cholesky(points @ points.mT)
        return replace(
            self,
            factor=factor,
            tracked_precision=Tracked.of(basis @ self.precision @ basis.mT),
            moment=basis @ self.moment,
            complement=basis[:, :0],
            left_out=(),
        ).refreshed()

    # ---------------------------------------------------------------- inside

    def refreshed(self) -> Self:
        """Return the same posterior with N, K⁻¹ and log det computed afresh from L and M. Cost: O(m³)."""
        start = replace(self, tracked_precision=Tracked.of(self.precision))
        if self.left_out:
            unit = self.moment.new_zeros(self.size, len(self.left_out))
            unit[list(self.left_out), range(len(self.left_out))] = 1.0
            duals = torch.linalg.solve_triangular(self.factor, unit, upper=False)
            start = replace(start, complement=torch.linalg.qr(duals / duals.norm(dim=0)).Q)
        factor = start.precision_factor
        inverse, log_det = Tracked.of(torch.cholesky_inverse(factor)), 2.0 * factor.diagonal().log().sum()
        after = replace(start, tracked_inverse=inverse, log_det=log_det)
        vars(after)["precision_factor"] = factor  # K is the same
        return after

    def _followed(
        self,
        squares: Squares,
        log_det_change: Tensor | float,
        *,
        told: Squares | None = None,
        moment: Tensor | None = None,
        complement: Tensor | None = None,
    ) -> Self:
        """Return what comes of changes of K⁻¹ and of log det, and of M, the moment and N where they are given."""
        return type(self)(
            factor=self.factor,
            left_out=self.left_out,
            tracked_precision=self.tracked_precision if told is None else self.tracked_precision.changed(told),
            tracked_inverse=self.tracked_inverse.changed(squares),
            moment=self.moment if moment is None else moment,
            log_det=self.log_det + log_det_change,
            complement=self.complement if complement is None else complement,
        )

    def _solved(self, columns: Tensor, most_lost: float = math.inf) -> Tensor:
        """Return K⁻¹ times columns (m, k) that the dictionary spans, refined once.

        Where they are large, K⁻¹ as it is would lose all digits. Raises ``_DriftError`` where it lost a larger share.
        """
        solved = self.inside(self._inverse_times(columns))
        residual = columns - self.inside(self._precision_times(solved))
        if math.isfinite(most_lost) and bool(residual.norm() > most_lost * columns.norm()):
            raise _DriftError
        return solved + self.inside(self._inverse_times(residual))

    @cached_property
    def arrays(self) -> tuple[online_loops.Matrix, online_loops.Matrix, Array]:
        """K⁻¹, M and Nᵀ (r, m) as loops take them."""
        return self.tracked_inverse.arrays, self.tracked_precision.arrays, self.complement.mT.contiguous().numpy()

    @cached_property
    def vectors(self) -> tuple[Array, Array]:
        """The moment and w, (m,) each, as loops take them."""
        return self.moment.numpy(), self.weights.numpy()

    def loops_over(self, vector: Tensor) -> bool:
        """Say whether a loop is faster for a vector (m,)."""
        return vector.dim() == 1 and self.size <= _LARGEST_LOOPED and runs_compiled(vector)

    def _inverse_times(self, columns: Tensor) -> Tensor:
        """Return K⁻¹, as it is, times columns (m, k). Cost: O(m² k)."""
        return self._times(self.tracked_inverse, columns)

    def _precision_times(self, columns: Tensor) -> Tensor:
        """Return M times columns (m, k). Cost: O(m² k)."""
        return self._times(self.tracked_precision, columns)

    def _times(self, matrix: Tracked, columns: Tensor) -> Tensor:
        if columns.shape[1] == 1 and self.loops_over(column := columns.squeeze(1).contiguous()):
            return torch.from_numpy(online_loops.times(matrix.arrays, column.numpy())).unsqueeze(1)
        return matrix.times(columns)


#: Signs of the row of a reward that comes, or goes, which changes nothing of what is spanned; of the rows of a point
#: that comes back, and that leaves.
_CAME = {sign: (np.array([sign]), np.zeros(1)) for sign in (1.0, -1.0)}
_CAME_BACK = np.array([-1.0, 1.0]), np.array([1.0, 0.0])
_LEFT = np.array([-1.0, 1.0]), np.array([0.0, -1.0])
