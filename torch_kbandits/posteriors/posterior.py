"""The posterior: a Gaussian in the coordinates of a basis, and the arms that follow it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.errors import NumericalError
from torch_kbandits.numerics.formulas import frozen
from torch_kbandits.numerics.gram import gram, prior_mean, prior_variance
from torch_kbandits.numerics.linalg import non_negative_variance
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.gaussian import Gaussian
from torch_kbandits.posteriors.observations import Observations, Places
from torch_kbandits.posteriors.residual import learned_residual, residual_share
from torch_kbandits.posteriors.table import HOST, NO_UPDATE, Features, Steps, Table, Update, steps_on

Array = NDArray[Any]

#: Changes of rank one between two computations of everything afresh.
CHECK = 4096

#: Of what a reward explained at least this share is left when it is downdated; else everything is computed afresh.
LEAST_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class Prior:
    """What is assumed before any reward.

    Attributes:
        kernel: the prior covariance, in double precision.
        means: prior means of the k numbers told of each play; None for zero.
        noise: λ.
    """

    kernel: Kernel
    means: tuple[Mean | None, ...]
    noise: float

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy, whose kernel nobody changes either: so it is evaluated in the same way, to the last digit."""
        known: dict[str, Any] = vars(self)
        known |= state
        frozen(self.kernel)

    @classmethod
    def of(cls, kernel: Kernel, noise: float, *means: Mean | None) -> Self:
        """Return a prior of copies."""
        copy = deepcopy(kernel).to("cpu", torch.float64).requires_grad_(False).eval()
        return cls(frozen(copy), means or (None,), noise)

    def between(self, X: Tensor, others: Tensor) -> Array:
        """Return kernel values of points X (n, d) and others (m, d), (n, m)."""
        with torch.no_grad():
            return gram(self.kernel, X.double(), others.double()).numpy()

    def variance(self, X: Tensor) -> Array:
        """Return prior variances of points X (n, d), (n,)."""
        with torch.no_grad():
            return prior_variance(self.kernel, X.double()).numpy()

    def expected(self, X: Tensor) -> Array:
        """Return prior means at points X (n, d), (k, n)."""
        values = np.zeros((len(self.means), X.shape[0]))
        for number, mean in enumerate(self.means):
            if mean is not None:
                with torch.no_grad():
                    values[number] = prior_mean(mean, X).double().numpy()
        return values


@dataclass(frozen=True, eq=False)
class Arms:
    """Points that follow a posterior because they may be played.

    Attributes:
        blocks: yields the first row and the points (b, d) of each block, in order.
        kernel: the prior covariance, in the dtype of the points.
        table: their moments.
    """

    blocks: Callable[[], Any]
    kernel: Kernel
    table: Table

    __setstate__ = Prior.__setstate__

    @property
    def steps(self) -> Steps:
        """What is done where they are."""
        return self.table.features.steps

    def values(self, points: Tensor) -> Any:
        """Return kernel values of points (c, d) and the arms, (c, A)."""
        with torch.no_grad():
            parts = [gram(self.kernel, points.to(block), block) for _, block in self.blocks()]
        return self.steps.own(parts[0] if len(parts) == 1 else torch.cat(parts, 1))

    def variance(self, *, learns_residual: bool) -> Any:
        """Return posterior variances, (A,), or those of ``learned_residual``."""
        return self.steps.own(learned_residual(*self._parts())) if learns_residual else self.table.variance.clip(0.0)

    def roots(self) -> Any:
        """Return the root of the share of the residual variance that is left, (A,); see ``residual_share``."""
        return self.steps.own(residual_share(*self._parts()).sqrt())

    def _parts(self) -> list[Tensor]:
        table = self.table
        return [torch.as_tensor(each) for each in (table.prior, table.spanned, table.variance.clip(0.0))]

    def less(self, point: Tensor, row: Array) -> Any:
        """Return k(x, ·) − rowᵀz of a point x (1, d) at the arms, (A,). Cost: O(A m)."""
        return self.values(point)[0] - self.table.features.product(row)

    @property
    def untaken(self) -> Any:
        """What nothing pending takes of them, (0, A); see ``taken``."""
        return self.table.expected[:0]

    def taken(
        self, before: Any, point: Tensor, own: Array, below: Array, corner: float, learned: tuple[Array, float] | None
    ) -> Any:
        """Return F of ``Pending``, (l, A) before, once there is a point (1, d) more. Cost: one read of the features.

        Given z − cov z of it, (m,), and its row of C, (l,) and a number. Where the residual is learned, also ``inside``
        of z, (m,), and its ``residual_roots``.
        """
        column = self.less(point, own)
        if learned is not None:
            inside, root = learned
            column = column - (1.0 - root * self.roots()) * self.less(point, inside)
        return self.steps.bordered(before, below, column, corner)

    def followed(self, update: Update, new: Tensor | None) -> Self:
        """Return them after an update, given the points (c, d) of new coordinates. Cost: one read of the features."""
        return changed(self, table=self.table.followed(update, None if new is None else self.values(new)))

    def refitted(self, gaussian: Gaussian, void: Array) -> Self:
        """Return them with moments computed afresh from their features; see ``Table.refitted``."""
        return changed(self, table=self.table.refitted(gaussian, void))

    def rewritten(self, points: Tensor, white: Array) -> Self:
        """Return them in other coordinates, W k(Z, ·) of points Z (m, d), before ``refitted``. Cost: O(A m²)."""
        with torch.no_grad():
            values = ((first, gram(self.kernel, block, points.to(block))) for first, block in self.blocks())
            features = self.table.features.rewritten(white, values)
        return changed(self, table=changed(self.table, features=features))


def arms_of(source: Any, kernel: Kernel, prior: Prior) -> tuple[Arms, Array]:
    """Return arms before any reward, and their prior variances, (A,); the kernel is the prior's in their dtype."""
    blocks = (block.cpu() for _, block in source.blocks())
    variances, means = zip(*((prior.variance(block), prior.expected(block)) for block in blocks), strict=True)
    variance, mean, steps = np.concatenate(variances), np.concatenate(means, axis=1), steps_on(source.device)
    kernel = kernel if steps is HOST else deepcopy(kernel).to(source.device)
    features = Features.none(len(variance), source.block(0, 0), steps)
    return Arms(source.blocks, kernel, Table.of(features, *steps.kept(variance, mean))), variance


class Points(NamedTuple):
    """Points as a posterior sees them.

    Attributes:
        X: (q, d).
        z: coordinates, (m, q).
        prior: prior variances, (q,).
        own: z − cov z, (m, q): its product with z is what rewards explain of prior variances.
        cov: of the posterior.
    """

    X: Tensor
    z: Array
    prior: Array
    own: Array
    cov: Array


@dataclass(frozen=True, eq=False)
class Posterior(ABC):
    """f(x) = m(x) + z(x)ᵀw + r(x), w ~ N(mean, cov) given the rewards, z(x) = W k(Z, x), r independent of them.

    A value: what changes makes another. The variance of f(x) is k(x, x) − zᵀz + zᵀ cov z.

    Attributes:
        prior: of the function.
        told: what was told.
        basis: places of the points Z among those that are known, (m,).
        white: W, (m, m).
        void: orthonormal directions on which no rewards are projected, (r, m); none of the exact posterior.
        place_in_basis: the coordinate of each known point, (u,), negative for none.
        gaussian: of w, given the rewards.
        arms: that follow; None for none.
        num_changes: of rank one since all was computed afresh.
        waiting: what the arms do not follow yet, so that all changes of a round are one pass.
    """

    prior: Prior
    told: Observations
    basis: Places
    white: Array
    void: Array
    place_in_basis: Places
    gaussian: Gaussian
    arms: Arms | None
    num_changes: int
    waiting: Update

    #: Whether variances are those of ``learned_residual``, as under a dictionary that is full.
    learns_residual: ClassVar[bool] = False

    @classmethod
    def _before_rewards(cls, prior: Prior, example: Tensor, arms: Arms | None, **words: Any) -> Self:
        number, nothing, none = len(prior.means), np.empty(0, np.int64), np.empty((0, 0))
        told, gaussian = Observations.none(example, number), Gaussian(np.empty((number, 0)), none, 0.0)
        return cls(prior, told, nothing, none, none, nothing, gaussian, arms, 0, NO_UPDATE, **words)

    # ---------------------------------------------------------------- moments

    @property
    def size(self) -> int:
        """Number m of coordinates."""
        return len(self.basis)

    @property
    def points(self) -> Tensor:
        """The points Z of the basis, (m, d), remembered until that changes."""
        known = vars(self).get("_points")
        if known is None or known[0] is not self.basis:
            known = vars(self)["_points"] = self.basis, self.told.points_at(self.basis)
        return known[1]

    def coordinates(self, X: Tensor) -> Array:
        """Return z of points X (q, d), (m, q). Cost: O(q m d + q m²)."""
        known = self._remembered(X)
        return self.white @ self.prior.between(self.points, X) if known is None else known.z

    def at(self, X: Tensor, *, is_offer: bool = True) -> Points:
        """Return points X (q, d) as the posterior sees them; those asked about last are remembered.

        One on offer is likely to be asked about by itself next. The last digits of each depend on the others, so what
        is evaluated otherwise is remembered apart: no look changes a choice.

        Cost: O(q m d + q m²).
        """
        known, cov = self._remembered(X), self.gaussian.cov
        if known is None:
            z = self.white @ self.prior.between(self.points, X)
            known = Points(X.clone(), z, self.prior.variance(X), z - cov @ z, cov)  # who gave it may write to it
            vars(self)["_offered" if is_offer else "_evaluated"] = self.white, known
        return known if known.cov is cov else known._replace(own=known.z - cov @ known.z, cov=cov)

    def _remembered(self, X: Tensor) -> Points | None:
        """Return points X (q, d) if they, or one of those on offer, were asked about last in these coordinates."""
        for name in ("_found", "_offered", "_evaluated"):
            white, known = vars(self).get(name, (None, None))
            if white is not self.white or known is None:
                continue
            if torch.equal(known.X, X):
                return known
            if name == "_offered" and X.shape[0] == 1 and len(rows := (known.X == X).all(-1).nonzero()):
                row = slice(int(rows[0]), int(rows[0]) + 1)
                one = Points(X.clone(), known.z[:, row], known.prior[row], known.own[:, row], known.cov)
                vars(self)["_found"] = white, one
                return one
        return None

    def moments(self, X: Tensor) -> tuple[Array, Array]:
        """Return posterior means (k, q) and variances (q,) at points X (q, d)."""
        at = self.at(X, is_offer=False)
        return self.mean_at(at), self.variance_at(at)

    def mean_at(self, at: Points) -> Array:
        """Return posterior means, (k, q)."""
        return self.prior.expected(at.X) + self.gaussian.mean @ at.z

    def own_variance_at(self, at: Points) -> Array:
        """Return k(x, x) − zᵀz + zᵀ cov z, (q,), at least 0.

        Raises:
            NumericalError: if one is negative beyond rounding.
        """
        return non_negative(at.prior - (at.z * at.own).sum(0), at.prior)

    def variance_at(self, at: Points) -> Array:
        """Return posterior variances, (q,); those of ``learned_residual`` under a dictionary that is full."""
        return learned_residual(*self._parts(at)).numpy() if self.learns_residual else self.own_variance_at(at)

    def covariance(self, at: Points) -> Array:
        """Return posterior covariances of points, (q, q)."""
        return self.prior.between(at.X, at.X) - at.z.T @ at.own

    def arm_mean(self) -> Any:
        """Return posterior means of the arms, (k, A)."""
        return cast(Arms, self.arms).table.mean

    def arm_variance(self) -> Any:
        """Return posterior variances of the arms, (A,), as ``variance_at``."""
        return cast(Arms, self.arms).variance(learns_residual=self.learns_residual)

    def inside(self, z: Array) -> Array:
        """Return coordinates (m, q) projected on those that rewards are projected on."""
        return z - self.void.T @ (self.void @ z) if len(self.void) else z

    def residual_roots(self, at: Points) -> Array:
        """Return the root of the share of the residual variance that is left, (q,); see ``residual_share``."""
        return residual_share(*self._parts(at)).sqrt().numpy()

    def _parts(self, at: Points) -> list[Tensor]:
        spanned = np.square(self.inside(at.z)).sum(0)
        return [torch.from_numpy(each) for each in (at.prior, spanned, self.own_variance_at(at))]

    # ---------------------------------------------------------------- draws and telling

    @abstractmethod
    def draw_correction(self, prior_at: Callable[[Places], Array], generator: torch.Generator, order: Places) -> Array:
        """Return weights c (m,) so that a prior draw and cᵀz are a draw of f − mean.

        Given the prior draw's values (n,) at known points by their places (n,), all other randomness, and places of the
        points told that count, in the order in which it is drawn.
        """

    def knowing(self, X: Tensor) -> tuple[Self, Places]:
        """Return the posterior that knows points X (q, d), told of or not, and their places (q,)."""
        places, fresh = self.told.unknown(X)
        if not fresh:
            return self, places
        new = X[fresh]
        known = self._remembered(new)
        variance = self.prior.variance(new) if known is None else known.prior
        told = self.told.with_points(new, variance, self.prior.expected(new).T)
        at = np.concatenate((self.place_in_basis, np.full(len(new), -1)))
        return changed(self, told=told, place_in_basis=at)._knowing_last(new), places

    @abstractmethod
    def _knowing_last(self, X: Tensor) -> Self:
        """Return what follows for a posterior that knows points (q, d) since just now."""

    @abstractmethod
    def learned(self, places: Places, counts: Array, rests: Array) -> Self:
        """Return the posterior once more counts of known points (q,), or less where counts are negative.

        Counts (q,) are λ over noise variances, rests (k, q) what was told less its prior mean.
        """

    @abstractmethod
    def refitted(self) -> Self:
        """Return the same, computed afresh from what was told of each point."""

    @abstractmethod
    def without_forgotten(self) -> tuple[Self, Places]:
        """Return the posterior that knows no points of which nothing counts, and where those it knows stand, (u,)."""

    @abstractmethod
    def reweighted(self, counts: Array, sums: Array) -> Self:
        """Return the posterior if these were the counts (u,) and sums (k, u) of what was told."""

    def over(self, source: Any, kept: Tensor, added: Any) -> Self:
        """Return the posterior that arms follow of a source: some of those that do, (k,), and then those added, if any.

        Cost: O(q m²) for q that are added, and O(A m).
        """
        settled, new = self._settled(), None
        arms = cast(Arms, settled.arms)
        if added is not None:
            new, _ = arms_of(added, arms.kernel, self.prior)
            new = new.rewritten(self.points, self.white).refitted(self.gaussian, self.void) if self.size else new
        table = arms.table.over(kept, None if new is None else new.table)
        return changed(settled, arms=changed(arms, blocks=source.blocks, table=table))

    def information_gain(self) -> float:
        """Return ½ log det(I + K/λ) of what was told, in nats."""
        return 0.5 * self.gaussian.log_det

    def _settled(self, **changes: Any) -> Self:
        """Return the posterior, changed, once the arms followed all that they wait for, in one pass."""
        waiting, arms = self.waiting, self.arms
        if arms is not None and waiting.moves:
            arms = arms.followed(waiting, self._points_of(waiting))
        return changed(self, arms=arms, waiting=NO_UPDATE, **changes)._checked()

    def _points_of(self, update: Update) -> Tensor | None:
        """Return the points (c, d) of new coordinates; None for none."""
        places = [column.place for column in update.columns]
        return self.told.points[places] if places else None

    def _checked(self) -> Self:
        """Return the posterior if it is finite.

        Raises:
            NumericalError: if it is not.
        """
        if not (math.isfinite(self.gaussian.log_det) and np.isfinite(self.gaussian.mean).all()):
            raise NumericalError(
                "The posterior is not finite: rewards add up to more than fits, or hyperparameters are too large."
            )
        return self


def non_negative(variance: Array, prior: Array) -> Array:
    """Return variances of which rounding is cleared; see ``non_negative_variance``."""
    if variance.min(initial=0.0) >= 0.0:
        return variance
    return non_negative_variance(torch.from_numpy(variance), torch.from_numpy(prior)).numpy()


def bordered(matrix: Array, below: Array, corner: float) -> Array:
    """Return [[matrix, 0], [below, corner]], (m + 1, m + 1)."""
    m = len(matrix)
    out = np.zeros((m + 1, m + 1))
    out[:m, :m], out[m, :m], out[m, m] = matrix, below, corner
    return out
