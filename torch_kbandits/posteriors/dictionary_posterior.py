"""The Nyström–DTC posterior at a dictionary, whose points come and go."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from torch_kbandits.errors import NumericalError
from torch_kbandits.loops import gaussian_loops
from torch_kbandits.numerics.linalg import jittered_cholesky, spanning_pivots
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian, Move, lower_inverse
from torch_kbandits.posteriors.observations import Places, merged
from torch_kbandits.posteriors.posterior import CHECK, LEAST_SHARE, Arms, Posterior, Prior, bordered
from torch_kbandits.posteriors.table import NO_UPDATE, Column, Features, Table, Update

Array = NDArray[Any]

#: What of a prior variance is not told from what rounding leaves unexplained of a point that others span.
_ROUNDING = 1e-13
#: What of a prior variance rounding may take from it at most.
_NEGATIVE = 1e-6
#: Of λ so much may be left unexplained of a point that counts as spanned.
_SHARE = 1e-10
#: A bound of rounding in coordinates, many times what it is, from which on points are put into another order.
_WORST = 1e-8
#: That of kernel values.
_EPS = 2.0**-50
#: Rewards add to the precision 1 of a coordinate; what comes out below this has lost its digits.
_LEAST = 0.999
#: A point of the dictionary that has no coordinate, since the others span it.
_SPANNED = -2


#: So many changes of rank one are said of a posterior at a new basis that was not fitted yet.
_REBUILT = 2 * CHECK


@dataclass(frozen=True, eq=False)
class DictionaryPosterior(Posterior):
    """The Nyström–DTC posterior at a dictionary: rewards are projected on what its points span, r stays as it was.

    W whitens K_ZZ, w ~ N(0, I) before any reward.

    - A point that is not spanned gets a coordinate (k(x, ·) − zᵀz(x)) / √(k(x, x) − zᵀz), on which rewards are not
      projected until it is activated.
    - A point that leaves the dictionary keeps its coordinate. The direction n that it alone spans, the projection of
      W eᵢ on what the dictionary spans, becomes one on which no rewards are projected: cov becomes that given nᵀw = 0,
      plus nnᵀ. To come back is the inverse, computed from the features of the points told.
    - If more than half of the coordinates are of points that left, or these span one that joins, all is computed afresh
      without them.

    Source: Calandriello et al., COLT 2019, §3.1. Differs: the paper computes all afresh in every round.

    Cost: O(m²) for a reward, O(u m + m²) for a point that joins, leaves or comes back; one read of the arms' features.

    Attributes:
        active: which of the basis are in the dictionary, (m,); of ``place_in_basis`` −2 is one of it that the others
            span.
        errors: about how far off rounding has made each coordinate, (m,).
        known: the known points, whose features are always kept up to date; their moments only if ``follows``.
        follows: whether these are.
        full_at: the size from which on the residual is learned; None for none.
    """

    active: NDArray[np.bool_]
    errors: Array
    known: Table
    follows: bool
    full_at: int | None

    @classmethod
    def of(cls, prior: Prior, example: Tensor, arms: Arms | None = None, **words: Any) -> Self:
        """Return the posterior before any reward, with no dictionary; ``words`` are attributes."""
        known = Table.of(Features.none(0, example.double()), np.empty(0), np.empty((len(prior.means), 0)))
        start = {"active": np.empty(0, np.bool_), "errors": np.empty(0), "follows": False, "full_at": None}
        return cls._before_rewards(prior, example, arms, known=known, **start | words)

    @override
    def _knowing_last(self, X: Tensor) -> Self:
        z, known, number, told = self.coordinates(X).T, self.known, len(X), self.told
        prior, expected = told.prior.array, told.expected.array.T
        moments = known.mean, known.variance, known.spanned
        if self.follows:
            expected = np.ascontiguousarray(expected)
            new = Table.of(Features(z, number, self.size), prior[-number:], expected[:, -number:])
            new = new.refitted(self.gaussian, self.void)
            pairs = zip(moments, (new.mean, new.variance, new.spanned), strict=True)
            moments = [np.concatenate(pair, -1) for pair in pairs]
        return changed(self, known=Table(known.features.with_rows(z), prior, expected, *moments))

    # ---------------------------------------------------------------- the dictionary

    @property
    def is_in_dictionary(self) -> NDArray[np.bool_]:
        """Which of the known points are in the dictionary, (u,)."""
        held = self.place_in_basis == _SPANNED
        held[self.basis[self.active]] = True
        return held

    def has_in_dictionary(self, place: int) -> bool:
        """Say whether a known point is in the dictionary."""
        at = self.place_in_basis[place]
        return bool(at == _SPANNED or (at >= 0 and self.active[at]))

    @property
    def dictionary(self) -> Places:
        """Places of the points of the dictionary, those that the others span among them, ascending."""
        return np.flatnonzero(self.is_in_dictionary)

    def at_dictionary(self, places: Places, *, learns_next: bool = False) -> Self:
        """Return the posterior of the same rewards at a dictionary of known points (m,), each of them once.

        If it learns next, moments are not those of the new dictionary before it has ``learned``: one pass does both.

        Cost: O(u m + m²) and a read of the arms for each point that joins or leaves; O(A m²) at most.
        """
        at = self.place_in_basis[places]
        joining = places[at == -1]
        back = at[at >= 0]
        leaving = self.active.copy()
        leaving[back] = False
        back, leaves = back[~self.active[back]], np.flatnonzero(leaving)
        num_spanned = np.count_nonzero(self.place_in_basis == _SPANNED) - np.count_nonzero(at == _SPANNED)
        if not (len(joining) + len(back) + len(leaves) or num_spanned):
            return self
        num_idle = self.size - len(places)
        # A change is two rows of a pass; all afresh is twice as many as there are coordinates, and kernel values.
        is_cheap = 2 * (len(joining) + len(back) + len(leaves)) <= self.size + 16 and 2 * num_idle <= self.size + 8
        is_due = CHECK <= self.num_changes < _REBUILT or (
            (len(leaves) or num_spanned) and (self.place_in_basis == _SPANNED).any()
        )
        if is_due or not is_cheap:
            return self._rebuilt(places, learns_next)
        after, moves = self, list[Move]()
        try:
            for i in leaves:
                after = after._retired(int(i), moves)
            for i in back:
                after = after._activated(int(i), moves)
            after = changed(after._follow(self, Update((), tuple(moves))), num_changes=self.num_changes + len(moves))
            for place in joining:
                after = after._extended(int(place))
        except ArithmeticError:  # a change of rank one would be rounding
            return self._rebuilt(places, learns_next)
        return after._checked() if learns_next else after._settled()

    def _follow(self, before: Self, update: Update) -> Self:
        """Return the posterior once the known points follow a change from an earlier one; arms are to."""
        if not update.moves:
            return self
        after = changed(self, waiting=before.waiting.then(update))
        if not self.follows:
            return after
        values = self._between_known(update.columns[0].place)[None] if update.columns else None
        return changed(after, known=before.known.followed(update, values))

    def _between_known(self, place: int) -> Array:
        """Return the kernel values of the known points and one of them, (u,)."""
        points = self.told.points
        return self.prior.between(points, points[place : place + 1])[:, 0]

    def _extended(self, place: int) -> Self:
        """Return the posterior once a point joins the dictionary."""
        z = self.known.features.known[place].copy()
        prior = self.known.prior[place]
        rest, m = prior - z @ z, self.size
        if rest < -_NEGATIVE * abs(prior):
            raise ArithmeticError  # or the kernel is no covariance, which is named where all is computed afresh
        least = max(_ROUNDING * prior, _SHARE * self.prior.noise)
        error = _EPS * math.sqrt(prior) + np.abs(self.errors) @ np.abs(z)
        if rest <= least:
            if len(self.void) and np.square(self.void @ z).sum() > least:
                raise ArithmeticError  # points that left span it
            at = self.place_in_basis.copy()
            at[place] = _SPANNED
            return changed(self, place_in_basis=at)
        corner, at, unit = math.sqrt(rest), self.place_in_basis.copy(), np.zeros(m + 1)
        if error / corner > _WORST and bool((np.abs(z * self.white.diagonal()) > 10.0).any()):
            raise ArithmeticError  # another order is needed
        at[place], unit[m] = m, 1.0
        column = Column(place, z, corner)
        after = changed(
            self,
            basis=np.append(self.basis, place),
            white=bordered(self.white, -(z @ self.white) / corner, 1.0 / corner),
            gaussian=self.gaussian.extended(1.0, np.zeros(len(self.gaussian.mean))),
            place_in_basis=at,
            active=np.append(self.active, False),
            void=np.vstack((np.pad(self.void, ((0, 0), (0, 1))), unit)) if len(self.void) else unit[None],
            errors=np.append(self.errors, error / corner),
        )
        features, moves = self.known.features, list[Move]()
        new = (self._between_known(place) - features.known @ z) / corner
        if self.follows:  # as known points do with the update, in one pass
            seen = np.column_stack((features.known, new))
        else:
            features = features.with_columns()
            features.memory[: features.rows, m] = new
            after, seen = changed(after, known=changed(self.known, features=features)), features.known
        after = after._activated(m, moves, seen)
        return changed(after._follow(self, Update((column,), tuple(moves))), num_changes=self.num_changes + 2)

    def _retired(self, place: int, moves: list[Move]) -> Self:
        """Return the posterior once a point of the basis leaves the dictionary; its moves are added to a list."""
        n = self.white[:, place]
        for _ in range(2):  # once leaves rounding of what it takes away
            n = n - (self.void @ n) @ self.void
            n = n / np.linalg.norm(n)
        row = gaussian_loops.product(self.gaussian.cov, n)
        spread = float(n @ row)
        if not 0.0 < spread < 1.0 / _LEAST:
            raise ArithmeticError
        given = Move(row, -1.0 / spread, -(self.gaussian.mean @ n) / spread)
        free = Move(n, 1.0, np.zeros_like(given.step), -1.0)
        moves += [given, free]
        active = self.active.copy()
        active[place] = False
        gaussian = self.gaussian.moved(given, spread).moved(free, 1.0)
        return changed(self, gaussian=gaussian, active=active, void=np.vstack((self.void, n)))

    def _activated(self, place: int, moves: list[Move], seen: Any = None) -> Self:
        """Return the posterior once a point of the basis is in the dictionary; its moves are added to a list.

        ``seen`` are the features of the known points, (u, m); None for those that are kept.
        """
        seen, told, noise = self.known.features.known if seen is None else seen, self.told, self.prior.noise
        share = self.void @ seen[self.basis[place]]
        share /= np.linalg.norm(share)
        n = share @ self.void
        mirror = share.copy()
        mirror[0] += math.copysign(1.0, share[0])
        mirror /= np.linalg.norm(mirror)
        void = (self.void - 2.0 * np.outer(mirror, mirror @ self.void))[1:]
        new = seen[:, place] if n[place] == 1.0 else seen @ n
        cross, own = seen.T @ (told.counts * new) / noise, 1.0 + told.counts @ (new * new) / noise
        cross = cross - (n @ cross) * n - (void @ cross) @ void
        gain = gaussian_loops.product(self.gaussian.cov, cross)
        left = float(own - cross @ gain)
        if left < _LEAST:
            raise ArithmeticError
        step = (told.sums @ new - (told.sums @ seen) @ gain) / (noise * left)
        spanned, taught = Move(n, -1.0, np.zeros_like(step), 1.0), Move(n - gain, 1.0 / left, step)
        moves += [spanned, taught]
        active = self.active.copy()
        active[place] = True
        gaussian = self.gaussian.moved(spanned, 1.0).moved(taught, left)
        return changed(self, gaussian=gaussian, active=active, void=void)

    # ---------------------------------------------------------------- telling

    @np.errstate(all="ignore")  # whether all is finite is checked
    @override
    def learned(self, places: Places, counts: Array, rests: Array) -> Self:
        places, counts, sums = merged(places, counts, rests)
        told, noise = self.told.told(places, counts, sums), self.prior.noise
        if len(places) > 4 + self.size // 4 or self.num_changes + len(places) > CHECK:
            return changed(self, told=told).refitted()
        gaussian, moves, factor = self.gaussian, list[Move](), 1.0
        for number, place in enumerate(places):
            z, count = self.known.features.known[place], counts[number]
            z = z - (self.void @ z) @ self.void if len(self.void) else z
            move, factor = gaussian.observed(z, sums[:, number] / count, noise / count)
            if factor < LEAST_SHARE:
                return changed(self, told=told).refitted()
            gaussian = gaussian.moved(move, factor)
            moves.append(move)
        after = changed(self, told=told, gaussian=gaussian, num_changes=self.num_changes + len(places))
        return after._follow(self, Update((), tuple(moves)))._settled()

    @override
    def without_forgotten(self) -> tuple[Self, Places]:
        kept, known = (self.told.counts > 0.0) | (self.place_in_basis != -1), self.known
        told, moved = self.told.kept(kept)
        features, parts = known.features.known[kept], [known.mean, known.variance, known.spanned]
        moments = [each[..., kept] for each in parts] if self.follows else parts
        known = Table(Features(features, *features.shape), known.prior[kept], known.expected[:, kept], *moments)
        words = {"place_in_basis": self.place_in_basis[kept], "basis": moved[self.basis]}
        return changed(self, told=told, known=known, **words), moved

    @override
    def reweighted(self, counts: Array, sums: Array) -> Self:
        return changed(self, told=changed(self.told, counts=counts, sums=sums)).refitted()

    def refitted(self) -> Self:
        """Return the same, computed afresh from the features and what was told. Cost: O(u m² + m³ + A m²)."""
        told, noise = self.told, self.prior.noise
        gaussian = Gaussian.given(self.inside(self.known.features.known.T).T, told.counts / noise, told.sums / noise)
        arms, known, new = self.arms, self.known, self._points_of(self.waiting)
        if arms is not None:
            arms = (arms if new is None else arms.followed(self.waiting, new)).refitted(gaussian, self.void)
        if self.follows:
            known = known.refitted(gaussian, self.void)
        return changed(self, gaussian=gaussian, arms=arms, known=known, waiting=NO_UPDATE, num_changes=0)._checked()

    def _rebuilt(self, places: Places, learns_next: bool) -> Self:
        """Return the posterior at another dictionary, (m,), without moments if it learns next. Cost: O((A + u) m²)."""
        told, at = self.told, np.full(len(self.told), -1)
        points = told.points_at(places)
        values = self.prior.between(points, points)
        if not np.isfinite(values).all():
            raise NumericalError("The kernel is not finite at the points of the dictionary: check its hyperparameters.")
        least = max(_ROUNDING, _SHARE * self.prior.noise / max(values.diagonal().max(initial=0.0), 1e-300))
        order = spanning_pivots(torch.from_numpy(values), least).numpy() if len(places) else np.empty(0, np.int64)
        at[places] = _SPANNED
        basis, m = places[order], len(order)
        at[basis] = np.arange(m)
        factor = jittered_cholesky(torch.from_numpy(values[np.ix_(order, order)])).numpy()
        white = lower_inverse(factor)
        spanning = told.points_at(basis)
        features = np.ascontiguousarray(self.prior.between(told.points, spanning) @ white.T)
        known = changed(self.known, features=Features(features, len(told), m))
        arms = None if self.arms is None else self.arms.rewritten(spanning, white)
        words = {"active": np.ones(m, np.bool_), "void": np.empty((0, m)), "errors": _EPS / factor.diagonal()}
        words |= {"basis": basis, "white": white, "place_in_basis": at, "num_changes": _REBUILT}
        words["gaussian"] = Gaussian(np.zeros((len(self.gaussian.mean), m)), np.eye(m), 0.0)
        after = changed(self, arms=arms, known=known, waiting=NO_UPDATE, **words)
        return after if learns_next else after.refitted()

    @property
    @override
    def learns_residual(self) -> bool:
        if self.full_at is None:
            return False
        return bool(np.count_nonzero(self.active) + np.count_nonzero(self.place_in_basis == _SPANNED) >= self.full_at)

    # ---------------------------------------------------------------- what confidence widths and draws read

    def draw_correction(self, prior_at: Callable[[Places], Array], generator: torch.Generator, order: Places) -> Array:
        """Return weights c (m,) so that a prior draw and cᵀz are a draw of f − mean; see ``Posterior``.

        With u the coordinates of the prior draw, projected, and ε ~ N(0, S) at the points told, they are
        −cov Σ_i z_i (z_iᵀu + ε_i) / S_i, so no basis matters. Cost: O(u m + m²).
        """
        seen = self.inside(self.known.features.known[order].T).T
        u = self.inside((self.white @ prior_at(self.basis))[:, None])[:, 0]
        counts = self.told.counts[order] / self.prior.noise
        normals = torch.randn(len(order), generator=generator, dtype=torch.float64, device="cpu").numpy()
        return -self.gaussian.cov @ (seen.T @ (counts * (seen @ u) + np.sqrt(counts) * normals))

    def told_means(self) -> Array:
        """Return posterior means of the known points, (k, u). Cost: O(u m), or O(1) if these are followed."""
        if self.follows:
            return self.known.mean
        return self.known.expected + self.gaussian.mean @ self.known.features.known.T

    def effective_dimension(self) -> float:
        """Return Σ_s τ̃(x_s) over what was told. Cost: O(m), and O(u m) for the projection error."""
        return self.size - float(np.trace(self.gaussian.cov)) + self.projection_error()

    def projection_error(self) -> float:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s. Cost: O(u m)."""
        seen, counts = self.known.features.known, self.told.counts
        inside = np.einsum("um,um->u", seen, seen)
        if len(self.void):
            inside = inside - np.square(seen @ self.void.T).sum(1)
        return float(counts @ np.maximum(self.known.prior - inside, 0.0)) / self.prior.noise

    def mean_norm(self) -> float:
        """Return the RKHS norm of the posterior mean less the prior one. Cost: O(m)."""
        return float(np.linalg.norm(self.gaussian.mean[0]))
