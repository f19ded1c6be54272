"""The exact posterior, in coordinates that are whitened with the noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.errors import NumericalError
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian, Move, lower_inverse
from torch_kbandits.posteriors.observations import Observations, Places, merged
from torch_kbandits.posteriors.posterior import CHECK, Arms, Posterior, Prior, bordered
from torch_kbandits.posteriors.table import Column, Update

Array = NDArray[Any]

#: A point told again has nearly no noise of what it had, as after it was all but forgotten, if its variance given the
#: others falls below this share of what it was: then it leaves and joins, so that no digits are lost.
_LEAST = 0.01
#: Of what a point tells, given the others, at least this share is left as it ages; else all is computed afresh.
_KEPT = 1e-6
#: Observations of less weight than this tell nothing: its noise variance would overflow.
_LEAST_COUNT = 1e-100


@dataclass(frozen=True, eq=False)
class ExactPosterior(Posterior):
    """The exact posterior: each point that was told is a coordinate, whitened with the noise of its mean reward.

    Let S be the noise variances of the mean rewards of the u points told. (K + S)⁻¹ = WᵀBW with B = I − cov. No pivot
    is below the noise, however close points are, so it is as accurate as a Cholesky factorisation of K + S.

    - A point joins by a coordinate (k(x, ·) − zᵀBz(x)) / √s, s = k(x, x) + S − zᵀBz >= S, in which B is 1.
    - Its noise changes by Δ as it is told again, ages, or a reward is downdated: with q = W eᵢ, a = qᵀBq,
      B −= Δ/(1 + Δ a) Bq(Bq)ᵀ. It leaves for Δ → ∞; its coordinate stays until more than half of them are such.

    Cost: O(m²) for a point told or downdated, and one read of the arms' features; O(m³ + A m²) for all afresh.
    """

    @classmethod
    def of(cls, prior: Prior, example: Tensor, arms: Arms | None = None) -> Self:
        """Return the posterior before any reward, of points like the example (0, d), and arms in no coordinates."""
        return cls._before_rewards(prior, example, arms)

    @override
    def _knowing_last(self, X: Tensor) -> Self:
        return self

    @np.errstate(all="ignore")  # whether all is finite is checked
    @override
    def learned(self, places: Places, counts: Array, rests: Array) -> Self:
        places, counts, sums = merged(places, counts, rests)
        told = self.told.told(places, counts, sums)
        live, after, each, new = int(np.count_nonzero(self.place_in_basis >= 0)), self, places, places[:0]
        if self.arms is None and len(places) > 1:
            new = places[(self.place_in_basis[places] < 0) & (told.counts[places] > 0.0)]
            each = np.setdiff1d(places, new) if 1 < len(new) <= live else places
        few = 4 + live // (80 if self.arms is None else 4)  # cost less than all afresh; measured
        if len(each) > few or self.num_changes >= CHECK + live or 2 * live + 16 < self.size:
            return changed(self, told=told).refitted()
        try:
            for place in each:
                after = after._learned_one(int(place), told)
            if len(each) < len(places):
                after = after._joined_together(new, told)
        except NumericalError:  # rounding, or no covariance, which is named there
            return changed(self, told=told).refitted()
        return after._settled(told=told, num_changes=self.num_changes + len(places))

    def _learned_one(self, place: int, told: Observations) -> Self:
        """Return the posterior once one point has other observations."""
        noise, count, before = self.prior.noise, told.counts[place], self.told.counts[place]
        i, (mean, cov, _) = int(self.place_in_basis[place]), self.gaussian
        if i < 0:
            return self._joined(place, told) if count else self
        q, row, alpha = self.white[:, i].copy(), np.empty(self.size), np.empty(len(mean))
        gaussian_loops.observed(mean, cov, q, row, alpha)
        row = q - row
        own = float(q @ row)  # of (K + S)⁻¹, and alpha of that times the rewards
        delta, at = noise / count - noise / before if count else math.inf, self.place_in_basis
        share = 1.0 + delta * own
        leaves = not _LEAST < share < math.inf
        if leaves:
            at = at.copy()
            at[place] = -1
            move, factor = Move(row, 1.0 / own, -alpha / own), own * noise / before
        else:
            step = told.sums[:, place] / count - self.told.sums[:, place] / before - delta * alpha
            move, factor = Move(row, delta / share, step / share), share * count / before
        gaussian, waiting = self.gaussian.moved(move, factor), self.waiting.then(Update((), (move,)))
        after = changed(self, gaussian=gaussian, place_in_basis=at, waiting=waiting)
        return after._joined(place, told) if leaves and count else after

    def _joined(self, place: int, told: Observations) -> Self:
        """Return the posterior once a point is told that nothing counted of."""
        noise, (mean, cov, log_det) = self.prior.noise / told.counts[place], self.gaussian
        point = told.points[place : place + 1]
        z = self.coordinates(point)[:, 0]
        row = z - gaussian_loops.product(cov, z)
        spread = told.prior.tensor[place].item() + noise - z @ row
        if not spread > 0.0:
            raise NumericalError(f"A variance came out at {spread:.3g}: the kernel is no covariance.")
        corner, m, at = math.sqrt(spread), self.size, self.place_in_basis.copy()
        step, unit = (told.sums[:, place] / told.counts[place] - mean @ z) / corner, np.zeros(m + 1)
        at[place], unit[m] = m, 1.0
        update = Update((Column(place, row, corner),), (Move(unit, -1.0, step),))
        gaussian = self.gaussian.extended(0.0, step)._replace(log_det=log_det + math.log(spread / noise))
        return changed(
            self,
            basis=np.append(self.basis, place),
            white=bordered(self.white, -(row @ self.white) / corner, 1.0 / corner),
            gaussian=gaussian,
            place_in_basis=at,
            waiting=self.waiting.then(update),
        )

    def _joined_together(self, places: Places, told: Observations) -> Self:
        """Return the posterior once points (q,) are told that nothing counted of, without arms. Cost: O(q m² + q³)."""
        noise, (mean, cov, log_det), m = self.prior.noise / told.counts[places], self.gaussian, self.size
        points, size, at = told.points_at(places), m + len(places), self.place_in_basis.copy()
        z = self.coordinates(points)
        own = z - cov @ z
        left = self.prior.between(points, points) + np.diag(noise) - z.T @ own
        factor = jittered_cholesky(torch.from_numpy(left)).numpy()
        inverse = lower_inverse(factor)
        white, wider = np.zeros((size, size)), np.zeros((size, size))
        white[:m, :m], white[m:, :m], white[m:, m:] = self.white, -(inverse @ own.T) @ self.white, inverse
        wider[:m, :m], at[places] = cov, np.arange(m, size)
        step = (told.sums[:, places] / told.counts[places] - mean @ z) @ inverse.T
        log_det += float(2.0 * np.log(factor.diagonal()).sum() - np.log(noise).sum())
        gaussian, basis = Gaussian(np.hstack((mean, step)), wider, log_det), np.concatenate((self.basis, places))
        return changed(self, basis=basis, white=white, gaussian=gaussian, place_in_basis=at)

    @override
    def without_forgotten(self) -> tuple[Self, Places]:
        told, moved = self.told.kept(self.told.counts > 0.0)
        return changed(self, told=told).refitted(), moved

    def reweighted(self, counts: Array, sums: Array) -> Self:
        """Return the posterior if these were the counts (u,) and sums (k, u), without kernel values if none grows.

        With Q = (K + S)⁻¹ and F the inverses of what the noise variances gain, 0 for a point that leaves,
        B −= B W (F + Q)⁻¹ Wᵀ B, from a Cholesky factor of F + Q, which is scaled to a diagonal of ones.

        Cost: O(m³ + A m²).
        """
        told = changed(self, told=changed(self.told, counts=counts, sums=sums), num_changes=self.num_changes + 1)
        noise, is_live, counting = self.prior.noise, self.place_in_basis >= 0, counts > _LEAST_COUNT
        live = np.flatnonzero(is_live)
        before, after = noise / self.told.counts[live], np.full(len(live), np.inf)
        np.divide(noise, counts[live], out=after, where=counting[live])
        grows, column = after > before, self.place_in_basis[live[after > before]]
        white = self.white[:, column]
        seen, gain = white - self.gaussian.cov @ white, after[grows] - before[grows]
        inverse = white.T @ seen
        is_lost = (inverse.diagonal() < _KEPT * np.square(white).sum(0)).any()
        has_less = (after < before * (1.0 - 1e-14)).any() or (counting & ~is_live).any()
        if is_lost or has_less or self.num_changes >= CHECK:
            return told.refitted()
        scale = 1.0 / np.sqrt(inverse.diagonal() + 1.0 / gain)
        inverse = (inverse + np.diag(1.0 / gain)) * np.outer(scale, scale)
        factor = jittered_cholesky(torch.from_numpy(inverse)).numpy()
        taken = (seen * scale) @ lower_inverse(factor).T
        at, stays = self.place_in_basis.copy(), live[np.isfinite(after)]
        at[~counting] = -1
        cov, rest = self.gaussian.cov + taken @ taken.T, self.white[:, at[stays]] @ (sums[:, stays] / counts[stays]).T
        share = np.divide(gain, after[grows], out=np.ones(len(gain)), where=np.isfinite(gain))
        log_det = self.gaussian.log_det + 2.0 * np.log(factor.diagonal() / scale).sum()
        log_det += np.log(share * before[grows]).sum()
        gaussian = Gaussian((rest - cov @ rest).T, cov, log_det)
        arms = None if self.arms is None else self.arms.refitted(gaussian, self.void)
        return changed(told, gaussian=gaussian, place_in_basis=at, arms=arms)._checked()

    def refitted(self) -> Self:
        """Return the same, computed afresh. Cost: O(u³ + A u²)."""
        told, noise = self.told, self.prior.noise
        basis = np.flatnonzero(told.counts > _LEAST_COUNT)
        m, at = len(basis), np.full(len(told), -1)
        at[basis] = np.arange(m)
        points, own = told.points_at(basis), noise / told.counts[basis]
        factor = jittered_cholesky(torch.from_numpy(self.prior.between(points, points) + np.diag(own))).numpy()
        white = lower_inverse(factor)
        mean = (told.sums[:, basis] / told.counts[basis]) @ white.T
        log_det = 2.0 * np.log(factor.diagonal()).sum() - np.log(own).sum()
        gaussian, arms = Gaussian(mean, np.zeros((m, m)), log_det), self.arms
        arms = None if arms is None else arms.rewritten(points, white).refitted(gaussian, self.void)
        words = {"basis": basis, "place_in_basis": at, "white": white, "num_changes": 0}
        return changed(self, gaussian=gaussian, arms=arms, **words)._checked()

    def _fitted(self) -> tuple[NDArray[np.bool_], Array, Array]:
        """Return which known points count, α = (K + S)⁻¹ y of rewards y less prior means there, (k, n), and y − S α."""
        live, told = self.place_in_basis >= 0, self.told
        alpha, counts = self.gaussian.mean @ self.white[:, self.place_in_basis[live]], told.counts[live]
        return live, alpha, told.sums[:, live] / counts - self.prior.noise / counts * alpha

    def effective_dimension(self) -> float:
        """Return Σ_s τ(x_s) over what was told: tr K (K + S)⁻¹. Cost: O(u m²)."""
        live = self.place_in_basis >= 0
        white = self.white[:, self.place_in_basis[live]]
        own = np.einsum("mi,mi->i", white, white - self.gaussian.cov @ white)  # the diagonal of (K + S)⁻¹
        return float(len(own) - self.prior.noise / self.told.counts[live] @ own)

    def projection_error(self) -> float:
        """Return 0: nothing is left out."""
        return 0.0

    def mean_norm(self) -> float:
        """Return the RKHS norm of the posterior mean less the prior one. Cost: O(u m²)."""
        _, (alpha, *_), (values, *_) = self._fitted()
        return math.sqrt(max(alpha @ values, 0.0))

    def ridge_fit(self, noise: float) -> tuple[float, float]:
        """Return min_g Σ (y_s − g(x_s))² + r ‖g‖² at noise r, less what points told twice leave, and the gain at r.

        Cost: O(u³).
        """
        told, places = self.told, np.flatnonzero(self.told.counts > _LEAST_COUNT)
        points, roots = told.points_at(places), np.sqrt(told.counts[places])
        gram = self.prior.between(points, points) * np.outer(roots, roots) + noise * np.eye(len(places))
        factor = jittered_cholesky(torch.from_numpy(gram)).numpy()
        rest = scipy.linalg.solve_triangular(factor, told.sums[0, places] / roots, lower=True)
        return noise * float(rest @ rest), float(np.log(factor.diagonal() / math.sqrt(noise)).sum())

    def told_means(self) -> Array:
        """Return posterior means of the known points that count, and prior ones of others, (k, u). Cost: O(u m)."""
        mean = self.told.expected.array.T.copy()
        live, _, values = self._fitted()
        mean[:, live] += values
        return mean

    def draw_correction(self, prior_at: Callable[[Places], Array], generator: torch.Generator, order: Places) -> Array:
        """Return weights c (m,) so that a prior draw and cᵀz are a draw of f − mean; see ``Posterior``.

        With values g of the prior draw and ε ~ N(0, S) they are −B W (g + ε). Cost: O(u m + m²).
        """
        noise = self.prior.noise / self.told.counts[order]
        normals = torch.randn(len(order), generator=generator, dtype=torch.float64, device="cpu").numpy()
        w = self.white[:, self.place_in_basis[order]] @ (prior_at(order) + np.sqrt(noise) * normals)
        return self.gaussian.cov @ w - w
