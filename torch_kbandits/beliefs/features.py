"""Many arms in the coordinates of a dictionary, kept up to date."""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule
from torch_kbandits.beliefs.base import require_finite
from torch_kbandits.beliefs.embedded import Arrays, Embedded
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.numerics.blocks import points_at_a_time
from torch_kbandits.numerics.gram import as_array, gram
from torch_kbandits.numerics.linalg import jittered_cholesky, spanning_pivots
from torch_kbandits.numerics.places import are_equal, beside, known, listed, on_host, sent
from torch_kbandits.numerics.rows import Rows
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import Located, Plays
from torch_kbandits.posteriors.conditional import Conditional, Seen
from torch_kbandits.posteriors.dtc import DTCFactors, embed
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.posteriors.residual import learned_residual, residual_share
from torch_kbandits.posteriors.squares import Squares
from torch_kbandits.tables.columns import KernelColumns
from torch_kbandits.tables.growth import FRAGILE, SPAN_TOLERANCE, Growth, spanning_factor
from torch_kbandits.tables.hallucinated import HallucinatedArms
from torch_kbandits.tables.lazy import LazyPanel, SomeArms
from torch_kbandits.tables.panels import Change, Columns, Panel
from torch_kbandits.tables.played import ComputedFeatures, Features, PlayedPanel, combined, joined_by, joined_by_one
from torch_kbandits.tables.store import FeatureStore

Array = NDArray[np.float64]

#: Arms embedded at a time when the dictionary changes, so that temporaries stay in cache.
_BLOCK = 4096

#: Up to this many arms a new kernel column is computed at once and read at the played points too.
_WHOLE_COLUMN = 65536

#: Embedding an arm afresh costs as much as so many products for each dictionary point, beside the solves.
_COPY = 16

#: By so much coordinates may exceed the diagonal where the order of the spanning points matters. A hundred costs two
#: digits, and few points that were told after closer ones make others join again behind them.
_ORDER = {torch.float64: 100.0, torch.float32: 5.0}

#: Up to this many points are put in the order of pivoted Cholesky by LAPACK, from all their kernel values.
_WHOLE_GRAM = 2048

#: Rows that the posterior with all features may wait for, which are applied anew whenever some are left out.
_MOST_PENDING = 8


class Known(NamedTuple):
    """What a table knows of the function: the posterior, and what it says of played points and of arms."""

    dtc: OnlineDTC
    weights: Tensor
    played: PlayedPanel
    arms: LazyPanel


class FeatureTable(TableBelief):
    """Mean and variance of every arm, kept up to date in at most one pass over the A × m embedding a round, or two.

    A reward changes all means and variances by a rank-one term, and so does one that is taken back; nothing is computed
    of arms that cannot be chosen: see ``contenders``. A new dictionary point adds one feature. A point that leaves the
    dictionary stays among the spanning points of ``OnlineDTC``, so leaving and coming back change no feature; all arms
    are embedded again only where that is cheaper. Two passes are made where a point joins a dictionary that is drawn
    afresh in every round: first the posterior with all points is brought up to date, then some are left out.

    The exact posterior is the case where every played point is in the dictionary; points that the others span to
    rounding add no feature.

    What concerns the played points and the dictionary alone is kept in double precision, computed from kernel values in
    the dtype of the arms. Where these are on a device it is on the host all the same, as are the prior variances and
    means of all arms.

    Source: the posterior and the counts are those of Calandriello et al., COLT 2019, §3.1–3.2. Differs: the paper
    embeds all arms afresh in every round; here drift of the low-rank changes is looked for every ``CHECK`` of them and
    cleared where it exceeds ``DRIFT``.

    Cost of a round: O(A + m²) at an unchanged dictionary where bounds help, and O(u m) where a rule asks for variances
    of the played points; O((A + u) m) a point that joins, leaves or comes back, or for each that is out if these are
    fewer, O((A + u) m²) at most. Memory: O((A + u) m), and the kernel columns of played arms within their budget.

    Args:
        arms: (A, d), or a source of them.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        column_memory: bytes that kernel columns may occupy.
        row_memory: bytes that the features of played points may occupy; beyond, they are computed again whenever a
            point joins, or variances are asked for, in O(u m²). None for no bound.
        exact: whether every played point is in the dictionary.
        mean: the prior mean; None for zero.
        full_at: the size from which on a dictionary may not grow, and its residual is learned; None for none.
    """

    keeps_books = True

    #: Low-rank changes between looks for drift.
    CHECK = 512

    #: Drift of a variance, as a fraction of the largest prior variance, that is cleared.
    DRIFT: ClassVar = {torch.float64: 1e-10, torch.float32: 1e-4}

    def __init__(
        self,
        arms: Tensor | ArmSource,
        kernel: Kernel,
        regularization: float,
        seed: int,
        column_memory: int = 2**29,
        row_memory: int | None = None,
        *,
        exact: bool = False,
        mean: Mean | None = None,
        full_at: int | None = None,
    ) -> None:
        super().__init__(arms, kernel, regularization, seed, exact=exact, mean=mean)
        self._full_at = full_at
        self._columns = KernelColumns(self.kernel, self._points, column_memory)
        self._dictionary_rows = self._feature_rows = self._played_rows
        self._listed_dictionary = self._log.points, self._played_rows  # points and rows, where a rule gave no indices
        self._positions: dict[int, int | None] = {}  # of rows among the features; None where spanned without one
        self._dtc = OnlineDTC.empty(torch.empty(0, device=self.books))
        self._weights = self._dtc.weights
        #: Σ_s k(x_s, x_s) over what counts, in the order told; None off the host.
        self.prior_told: float | None = 0.0 if self.no_points.is_cpu else None
        self._played = PlayedPanel.empty(self._weights, row_memory)
        self._known_spanning = self._feature_rows, self.no_points  # points of rows
        self._embedded_last: tuple[OnlineDTC, Embedded] | None = None
        # Where the dictionary of these rows stands among features of these rows.
        self._known_places: tuple[Tensor, Tensor, Tensor | None] = self._dictionary_rows, self._feature_rows, None
        self._known_columns = self._dtc, self._feature_rows, self._weights  # coordinates of rows, asked for last
        self._known_one = self._dtc, -1, (0.0, 0.0, 0.0)  # of one row, the same
        self._known_arm = self._dtc.factor, -1, np.empty(0)  # coordinates of one arm that is on a device
        self._lazy_panel = LazyPanel(Panel.prior(self._prior_variance, self._expected), self._dtc, self._weights)
        # Which embedding is meant, and in a list, which nobody restores, which one is in the memory of the features.
        self._embedding = object()
        self._written_last: list[object] = [self._embedding]
        # With which posterior the one with nothing left out goes: it is stale beside any other.
        self._whole: tuple[OnlineDTC, Known] | None = None
        self._changes = self._num_shed = 0
        self._is_fragile = False
        self._hallucination: HallucinatedArms | None = None  # what points pending take from variances

    # ---------------------------------------------------------------- what is known

    @property
    def _arms(self) -> LazyPanel:
        """The posterior at the arms; its features are written again if a change that was taken back left others."""
        if self._written_last[0] is not self._embedding:
            self._embedded(self._feature_rows, *sent(self.no_points, self._dtc.factor))
            self._written_last[0] = self._embedding
        return self._lazy_panel

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._arms.up_to_date().mean

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return self._less(self._arms.up_to_date().variance.clamp_min(0.0), None)

    @property
    def learns_residual(self) -> bool:
        """Whether the dictionary is full, so that variances are those of ``learned_residual``."""
        return self._full_at is not None and self._dictionary_rows.shape[0] >= self._full_at

    def _less(self, variance: Tensor, rows: Tensor | None) -> Tensor:
        """Return what becomes of DTC variances of arms, given their rows (k,), None for all, given what is pending."""
        learned, roots = self._learned(variance, rows)
        if self._hallucination is None:
            return learned
        known = self._arms.features, self._columns, roots
        taken = self._hallucination.of_all(*known) if rows is None else self._hallucination.of(rows, *known)
        return (learned - taken).clamp_min(0.0)

    def _learned(self, variance: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return DTC variances of arms with their residual learned if it is, and the roots of what is left of it."""
        if not self.learns_residual:
            return variance, None
        spanned, prior = self._arms.spanned, self._prior_variance[: self._num_arms]
        if rows is not None:
            spanned, prior = spanned[rows], prior[rows]
        roots = None if self._hallucination is None else residual_share(prior, spanned, variance).sqrt()
        return learned_residual(prior, spanned, variance), roots

    @property
    def _played_mean(self) -> Tensor:
        learned = self._played.mean(self._features(self._played_rows), self._weights)
        return (learned + self._expected_at(self._played_rows)).to(self._points.dtype)

    @property
    def _played_variance(self) -> Tensor:
        return self._followed_variance(self._played_rows).to(self._points.dtype)

    def _followed_variance(self, played_rows: Tensor) -> Tensor:
        """Return the variances of the played points, (u,), in double precision, given their rows."""
        return self._played.variance(self._features(played_rows), self._prior_at(played_rows), self._dtc)

    def _features(self, played_rows: Tensor) -> Features:
        """Return the features of the played points, kept or not."""
        return self._played.store or self._computed(self._dtc.factor, self._feature_rows, played_rows)

    def _computed(self, factor: Tensor, rows: Tensor, played_rows: Tensor) -> ComputedFeatures:
        """Return features of played points for spanning points of rows (m,), which are computed when they are read."""
        return ComputedFeatures(factor, lambda index: self._columns.between(rows, played_rows[index]), played_rows)

    def _arm_at(self, number: int) -> Array | None:
        """Return the coordinates (m,) of one arm, given its row, in double precision, where loops read them."""
        if number >= self._num_arms or not self._dtc.loops_over(self._weights):
            return None
        if self._prior_in_books is not None:
            return self._brought(number)
        return self._arms.features.row(number).astype(np.float64, copy=False)

    def _brought(self, number: int) -> Array:
        """Return the same of an arm on a device; remembered, so that who tells of what was chosen does not wait."""
        factor, known_number, point = self._known_arm
        if factor is not self._dtc.factor or known_number != number:
            row = beside(torch.tensor([number]), self.no_points)
            point = self._arms.features.columns(row).squeeze(1).double().cpu().numpy()
            self._known_arm = self._dtc.factor, number, point
        return point

    def _row_at(self, place: Tensor) -> int:
        """Return a row (1,) that was chosen, and remember the arm and its coordinates, all in one copy to the host."""
        arms = self._points.source.tensor
        if self._prior_in_books is None or arms is None:
            return int(place)
        parts = arms.index_select(0, place), self._arms.features.columns(place).mT
        together = torch.cat([each.double() for each in (place.unsqueeze(0), *parts)], dim=1).cpu()
        row, point, coordinates = together.split([1, *(each.shape[1] for each in parts)], dim=1)
        number = int(row)
        self._points.hand_out(number, parts[0], point.to(arms.dtype))
        self._known_arm = self._dtc.factor, number, coordinates.squeeze(0).numpy()
        return number

    def _moments_of_one(self, rows: Tensor) -> tuple[float, float, float] | None:
        """Return what ``OnlineDTC.moments_at`` says of one arm, given its row (1,), where loops do; remembered."""
        if rows.shape[0] != 1 or not rows.is_cpu:
            return None
        number, known = cast(int, rows.item()), self._known_one
        if known[0] is not self._dtc or known[1] != number:
            if (point := self._arm_at(number)) is None:
                return None
            known = self._known_one = self._dtc, number, self._dtc.moments_at(point)
        return known[2]

    def _variance_at(self, rows: Tensor) -> Tensor:
        prior, one = self._prior_at(rows), self._moments_of_one(rows)
        variance = self._dtc.quick_variance(prior, self._coordinates(rows)) if one is None else prior + one[1]
        return variance.to(self._points.dtype)

    def _learned_variance_at(self, rows: Tensor) -> Tensor:
        variance = self._variance_at(rows).clamp_min(0.0)
        if not self.learns_residual:
            return variance
        one = self._moments_of_one(rows)
        spanned = self._dtc.spanned(self._coordinates(rows)) if one is None else torch.full_like(variance, one[2])
        return learned_residual(self._prior_of(rows), spanned.to(variance), variance)

    def _mean_at(self, rows: Tensor) -> Tensor:
        one = self._moments_of_one(rows)
        mean = self._weights @ self._coordinates(rows) if one is None else self._weights.new_full((1,), one[0])
        return (mean + self._expected_at(rows)).to(self._points.dtype)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim.

        Cost: O(m), and if r points are left out O(m² r), or that of the variances of the played points where these are
        followed.
        """
        if self._dtc.left_out and self._played.is_known:
            total = self._log.counts @ self._played_variance.double().clamp_min(0.0) / on_host(self.regularization)
        else:
            total = self._dtc.effective_dimension(self._prior_at_all)
        return total.to(self._points.dtype)

    def projection_error(self) -> Tensor:
        """Return Σ_s (k(x_s, x_s) − z_sᵀz_s) / λ_s, 0-dim. Cost: O(m), and O(m² r) if r points are left out."""
        error = self._dtc.log_det.new_zeros(()) if self.exact else self._dtc.projection_error(self._prior_at_all)
        return error.to(self._points.dtype)

    @property
    def _prior_at_all(self) -> Tensor:
        """Σ_s k(x_s, x_s) / λ_s over what counts, 0-dim, in double precision. Cost: O(u) off the host."""
        total = self._prior_in_log if self.prior_told is None else self._dtc.log_det.new_full((), self.prior_told)
        return total / on_host(self.regularization)

    @property
    def _prior_in_log(self) -> Tensor:
        """Σ_s k(x_s, x_s) over what counts, 0-dim, in double precision. Cost: O(u)."""
        return self._log.counts @ self._prior_at(self._played_rows)

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points if the posterior is exact."""
        return self._log.points if self.exact else self.points_of(self._dictionary_rows)

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return 0.5 * self._dtc.log_det.to(self._points.dtype)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim. Cost: O(m)."""
        return self._weights.norm().to(self._points.dtype)

    @property
    def posterior(self) -> OnlineDTC:
        """The posterior in the coordinates of the spanning points."""
        return self._dtc

    @property
    def spanning_points(self) -> Tensor:
        """The points whose features there are, (m, d); some may have left the dictionary."""
        if self._known_spanning[0] is not self._feature_rows:
            rows = self._feature_rows
            self._known_spanning = rows, self.points_of(rows) if self._num_arms else self._points.rows(rows)
        return self._known_spanning[1]

    def embedded(self, X: Tensor) -> Embedded:
        """Return points (k, d), in the table or not, as the posterior sees them; the last ones are remembered."""
        known = self._embedded_last
        if known is not None and known[0] is self._dtc:
            if known[1].points is X:
                return known[1]
            if are_equal(known[1].points, X):
                # Who asks again asks about the same object.
                self._embedded_last, before = (self._dtc, known[1].renamed(X)), self._known_prior
                if before is not None and before[0] is known[1].points:
                    self._known_prior = X, before[1]
                return self._embedded_last[1]
        at = Embedded.of(X, self.spanning_points, self.kernel, self._dtc)
        self.remember(at)
        return at

    def coordinates(self, X: Tensor) -> Tensor:
        """Return the coordinates z of points X (k, d), in the table or not, (m, k), in double precision."""
        if self._num_arms == 0:
            return self.embedded(X).coordinates
        table = self.with_points(X)
        return table._coordinates(table.rows_of(X))

    def weights_of(self, moments: Tensor) -> Tensor:
        """Return the weights (m,) of the mean if other rewards had been told of the same plays.

        Args:
            moments: Σ (y_s − m)/λ_s of these at each of the unique played points, (u,), in double precision, anywhere.

        Cost: O(u m + m²), and O(u m²) where features of played points are not kept.
        """
        return self._dtc.weights_of(combined(self._features(self._played_rows), beside(moments, self._weights)))

    def known_values(self, points: Tensor, X: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the kernel values (m, k) of points (m, d) against X (k, d), and k(x, x), if telling X needs them."""
        places = self.places_of_dictionary(points)
        if places is None:
            return None, None
        at = self.embedded(X)
        return at.values[places], at.prior_variance

    def places_of_dictionary(self, points: Tensor) -> slice | Tensor | None:
        """Return where the points (m, d) of the dictionary stand among those that span, in their order.

        None for a table of arms, for other points, and where one of them is spanned without a feature.
        """
        if self._num_arms:
            return None
        spanning = self.spanning_points
        if points is spanning or torch.equal(points, spanning):
            self._known_spanning = self._feature_rows, points
            return slice(None)
        listed, rows = self._listed_dictionary
        if rows is not self._dictionary_rows or not (points is listed or torch.equal(points, listed)):
            return None
        known = self._known_places
        if known[0] is not rows or known[1] is not self._feature_rows:
            places = [self._positions.get(row) for row in rows.tolist()]
            known = rows, self._feature_rows, None if None in places else rows.new_tensor(places)
            self._known_places = known
        return known[2]

    def remember(self, at: Embedded) -> None:
        """Keep points as the posterior sees them, so that they need not be embedded again when they are told."""
        self._embedded_last = self._dtc, at
        if at.points.shape[0] == 1:
            self._known_prior = at.points, at.prior_variance.to(at.points)

    def restricted_factors(self) -> tuple[Tensor, DTCFactors]:
        """Return the points (m, d) that span the dictionary, and the factors of the posterior at them.

        In the dtype of the arms. Cost: O(m³).
        """
        dtc, kept = self._dtc, self.spanning_points
        if dtc.left_out:
            dtc, kept = dtc.restricted(), kept[list(dtc.kept)]
        parts = (dtc.factor, dtc.precision_factor, dtc.weights)
        return kept, DTCFactors(*sent(self.no_points, *parts))

    # ---------------------------------------------------------------- choosing

    def contenders(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> tuple[Tensor | None, Tensor]:
        """Return rows among which are all arms of the highest score; arms that cannot be chosen are not looked at."""
        if not rule.grows_with_mean_and_variance:
            return None, rule.on_arms(self, beta, seed)

        def score(mean: Tensor, variance: Tensor, rows: Tensor | None) -> Tensor:
            return rule.on_arms(SomeArms(mean, self._less(variance, rows), lambda: self.incumbent), beta, seed)

        def bound(mean: Tensor, variance: Tensor, rows: Tensor | None) -> Tensor:
            most = self._learned(variance, rows)[0] - cast(HallucinatedArms, self._hallucination).at_least
            return rule.on_arms(SomeArms(mean, most.clamp_min(0.0), lambda: self.incumbent), beta, seed)

        is_ahead = self._hallucination is not None
        rows, scores = self._arms.contenders(
            score, lambda best: self.tie_width(best, beta), bound if is_ahead else None
        )
        self.visited_share = 1.0 if rows is None else scores.shape[0] / self._num_arms
        return rows, scores

    # ---------------------------------------------------------------- telling

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty table conditioned on a whole history at a known dictionary."""
        return self.updated(told.X, told.Y, None if self.exact else dictionary)

    def _conditioned(self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows) -> Self:
        return self._told(X, Y, selection, located, played)._counting(located, played)

    def _counting(self, located: Located, played: Rows) -> Self:
        """Add up the prior variances of what was told, which stands there among the played points; return the table."""
        if self.prior_told is not None:
            rows = played.tensor.numpy()[located.positions]
            self.prior_told = sum(self._prior_variance.numpy()[rows].tolist(), self.prior_told)
        return self

    def _told(self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows) -> Self:
        Y = beside(Y, self._weights)
        if (told_once := self._told_once(X, Y, selection, located, played)) is not None:
            return told_once
        played_rows = played.tensor
        if selection is not None and selection.indices is None:
            listing = self._listing(selection.points)
            if listing is not self:
                return listing._told(X, Y, selection, located, played)
            dictionary = self._listed_dictionary[1]
        elif selection is not None:
            dictionary = self._chosen(played_rows, cast(Tensor, selection.indices))
        else:
            dictionary = torch.cat([self._dictionary_rows, played_rows[len(self._rows_played) :]])
        if torch.equal(on_host(dictionary), on_host(self._dictionary_rows)):
            dictionary = self._dictionary_rows  # the same object, by which others know that nothing changed
        joining, left_out = self._difference(dictionary)
        num_told = len(set(located.positions))
        if num_told and left_out is not None and self._is_cheap(joining, left_out, dictionary, played_rows, num_told):
            if Y.shape[0] == 1 and left_out == self._dtc.left_out:
                after = self._told_arm(X, Y, located.positions[0], played_rows, joining, dictionary)
                if after is not None:
                    return after
            told = located.plays(Y)
            told = told._replace(sums=self._unexpected(told.sums, told.counts, played_rows[told.places]))
            after = shallow_copy(self)  # features are written beyond those in use only
            if after._advance(joining, left_out, dictionary, played_rows, told):
                return after
        spanning = dictionary
        if self.exact:
            spanning = dictionary = self._spanning(played_rows)
        elif left_out == () and (self._num_arms == 0 or self._is_fragile):
            # Only then, since with points that leave, what spans the others might.
            spanning = self._spanning(dictionary)
            if len(spanning) == len(dictionary) and not self._is_fragile:
                spanning = dictionary  # in an order in which a rule's kernel values are known
        after = shallow_copy(self)
        after._replace(spanning, played_rows, X, Y, located)
        after._is_fragile = left_out == () and after._is_fragile  # any other order stays
        after._dictionary_rows = dictionary
        after._positions = dict.fromkeys(dictionary.tolist()) | after._positions
        return after

    # ---------------------------------------------------------------- telling arms alone

    @property
    def held_alone(self) -> NDArray[np.bool_] | None:
        """Which of the unique played points are in the dictionary, (u,), where rewards told one by one may be followed.

        Those of arms, by ``followed_alone``, while the dictionary stays; None where they may not.
        """
        rows, dictionary = self._played_rows, self._dictionary_rows
        if not self._num_arms or self.exact or self._hallucination is not None:
            return None
        if self._prior_in_books is not None:  # loops do not read arms there
            return None
        is_double = self.no_points.dtype == torch.float64
        if not is_double or self._played.store is None or not self._dtc.loops_over(self._weights):
            return None
        held = self._held(rows)
        if not torch.equal(rows[held], dictionary):
            return None
        is_cheap = self._is_cheap(dictionary[:0], self._dtc.left_out, dictionary, rows, 1)
        return held.numpy() if is_cheap else None

    @property
    def counts(self) -> Array:
        """How often each of the unique played points was played, (u,); not to be written to."""
        return self._log.counts.numpy()

    @property
    def rows_of_played(self) -> list[int]:
        """The rows of the unique played points, (u,)."""
        return self._played_rows.tolist()

    @property
    def prior_of_played(self) -> Array:
        """Their prior variances, (u,), in double precision."""
        return self._prior_at(self._played_rows).numpy()

    @property
    def variance_of_played(self) -> Array:
        """Their posterior variances, (u,), in double precision; rounding may have made them slightly negative."""
        return self._followed_variance(self._played_rows).numpy()

    @property
    def prior(self) -> tuple[Array, Array | None]:
        """The prior variances and means of all rows, (N,) each; None for means that are zero."""
        return self._prior_variance.numpy(), None if self._expected is None else self._expected.numpy()

    @property
    def known(self) -> Known:
        """The posterior, and what it says of played points and of arms."""
        return Known(self._dtc, self._weights, self._played, self._arms)

    @property
    def features(self) -> FeatureStore:
        """The features of the arms, in the memory that all later tables share."""
        return self._arms.features

    def knowing(self, known: Known) -> Self:
        """Return the table of another posterior at the same dictionary; of what was played it knows what this one does.

        Enough to score arms by what is believed of them.
        """
        after = shallow_copy(self)
        after._dtc, after._weights, after._played, after._lazy_panel = known
        return after

    @property
    def num_unchecked(self) -> int:
        """How many rewards in a row, told one by one, bring no look for drift."""
        return self.CHECK - self._changes - 1

    def followed_alone(self, X: Tensor, Y: Tensor, known: Known, rows: list[int]) -> Self:
        """Return the table after rewards Y (q,) of arms X (q, d), at most ``num_unchecked``, told one by one.

        Args:
            X: (q, d).
            Y: (q,).
            known: after all; the dictionary stays.
            rows: of the unique played points, (u,).
        """
        after, played = self.knowing(known), self._rows_played
        played = played.followed(np.array(rows[len(played) :], dtype=np.int64))
        after._changes += X.shape[0]
        located = self._log.locate(self._points.keys(X))
        after._note(self._log, X, Y, None, located, played)
        return after._counting(located, played)

    # ---------------------------------------------------------------- telling points that are no arms

    @property
    def num_followed(self) -> int:
        """How many rewards in a row, told one by one, change the posterior alone while the dictionary stays."""
        dtc = self._dtc
        if self._num_arms or self._prior_means is not None:
            return 0
        if self.no_points.dtype != torch.float64 or self._played.is_known or not dtc.loops_over(dtc.moment):
            return 0
        return max(0, self.CHECK - self._changes - 2) if self._listed_dictionary[1] is self._dictionary_rows else 0

    def followed(
        self, X: Tensor, Y: Tensor, selection: Selection, dtc: OnlineDTC, features: Tensor, prior: Tensor
    ) -> Self:
        """Return the table after rewards Y (q,) of points X (q, d), at most ``num_followed``, told one by one.

        Args:
            X: (q, d).
            Y: (q,).
            selection: the dictionary, which stays.
            dtc: the posterior after all.
            features: of the points, (m, q).
            prior: their prior variances, (q,).
        """
        table = self.with_points(X, prior)
        located, played = table._located(X)
        after = shallow_copy(table)
        if located.fresh:
            after._played = self._played.appended(features[:, located.fresh])
        after._dtc, after._weights, after._changes = dtc, dtc.weights, self._changes + X.shape[0]
        after._note(self._log, X, Y, selection._replace(weights=None), located, played)
        return after._counting(located, played)

    def _told_once(
        self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows
    ) -> Self | None:
        """Return the table after a reward of a point (1, d) that is no arm, and may join the dictionary, by loops.

        None where that is not all that happens.
        """
        dtc, (known, rows) = self._dtc, self._listed_dictionary
        if self._num_arms or Y.shape[0] != 1 or selection is None or rows is not self._dictionary_rows:
            return None
        joins = selection.points is not known
        if self._prior_means is not None or self._changes + 2 >= self.CHECK:
            return None
        if (joins and dtc.left_out) or not dtc.loops_over(dtc.moment) or (at := self.embedded(X).arrays) is None:
            return None
        if joins and self._is_fragile and self._num_before_points(torch.from_numpy(at.rows).mT) < dtc.size:
            return None
        after, point, growth, (place,) = shallow_copy(self), at.rows[0], None, located.positions
        if located.fresh:
            after._played = self._played.with_row(point)
        if joins:
            if (growth := after._joined_once(X, selection.points, at, place, played.tensor)) is None:
                return None
            point = np.append(point, growth.at_played[0, place].item())
        return after if after._rewarded(point, Y.item(), growth) else None

    def _told_arm(
        self, X: Tensor, Y: Tensor, place: int, played_rows: Tensor, joining: Tensor, dictionary: Tensor
    ) -> Self | None:
        """Return the table after a reward of an arm, by loops, and after another joined the dictionary, if one did.

        None where that is not all that happens.

        Args:
            X: the arm, (1, d).
            Y: (1,).
            place: where the arm stands among the unique played points.
            played_rows: the rows of these as they will be.
            joining: rows that are to be spanned.
            dictionary: its rows.
        """
        (number,) = self.row_list(X)
        if joining.shape[0] > 1 or (point := self._arm_at(number)) is None:
            return None
        after, growth = shallow_copy(self), None
        if place >= len(self._rows_played):
            after._played = self._played.with_row(point)
        if joining.shape[0]:
            prior, own = self._prior_at(joining).item(), self._arm_at(cast(int, joining.item()))
            if self._is_fragile or self._dtc.left_out or own is None:
                return None
            columns, values = self._kernel_values(joining, played_rows)
            if (growth := after._joined(joining, own, prior, values.squeeze(0).numpy(), columns)) is None:
                return None
            point, after._dictionary_rows = np.append(point, growth.at_played[0, place].item()), dictionary
        expected = 0.0 if (means := self._expected_rows) is None else means[number].item()
        if not after._rewarded(point, Y.item() - expected, growth):
            return None
        if self.exact:
            after._dictionary_rows = after._feature_rows
        if after._changes >= self.CHECK:
            after._clear_drift(played_rows)
        return after

    def _rewarded(self, point: Array, reward: float, growth: Growth | None = None) -> bool:
        """Follow how the dictionary grew, if it did, and a reward of a point; False if something is not finite.

        Args:
            point: its coordinates (m,), the new one among them; it is among the played points already.
            reward: beyond what was expected.
            growth: of the dictionary.
        """
        weight, dtc = 1.0 / on_host(self.regularization).item(), self._dtc if growth is None else growth.dtc
        if (told := dtc.told(point, weight, weight * reward)) is None:
            return False
        self._settle(growth, self._played, told, told.last_square(-1.0), told.weights)
        if self.no_points.dtype != told.weights.dtype:
            require_finite(told.weights.to(self.no_points.dtype))
        self._changes += 1
        return True

    def _joined(self, row: Tensor, own: Array, prior: float, values: Array, columns: Columns) -> Growth | None:
        """Let a point of a row (1,) span, by a loop, on what was told so far; None where it is not so simple.

        Args:
            row: (1,).
            own: its coordinates (m,).
            prior: its prior variance.
            values: its kernel values with the played points, (u,).
            columns: those with a block of the arms.
        """
        left, store, number = prior - own @ own, self._played.store, cast(int, row.item())
        if store is None or number in self._positions or left <= FRAGILE[self._points.dtype] * prior:
            return None
        log, corner, (seen, sums) = self._log, math.sqrt(left), np.zeros((2, len(values)))
        known, weight = len(log), 1.0 / on_host(self.regularization).item()
        seen[:known] = log.counts.numpy()
        sums[:known] = self._unexpected(log.sums, log.counts, self._played_rows).numpy()
        new, cross, below, moment = joined_by_one(store, own, corner, values, weight * seen, weight * sums)
        if (dtc := self._dtc.grown_by_one(own, corner, cross, below, moment)) is None:
            return None
        self._feature_rows = torch.cat([self._feature_rows, row])
        self._positions = {**self._positions, number: self._dtc.size}
        self._changes += 1
        parts = (each.unsqueeze(0) for each in map(torch.from_numpy, (own, np.array([corner]), new)))
        rows, corner_of, at_played = parts
        return Growth(dtc, row, rows, corner_of, dtc.last_square(1.0), at_played, columns)

    def _joined_once(self, X: Tensor, points: Tensor, at: Arrays, place: int, played_rows: Tensor) -> Growth | None:
        """Let a point (1, d) join the dictionary, which is then ``points`` (m, d); see ``_joined``.

        None where that is not all that happens; then this table is of no use.
        """
        (known, rows), prior, number_played = self._listed_dictionary, at.prior[0], played_rows.shape[0]
        if not (torch.equal(points[-1:], X) and torch.equal(points[:-1], known)):
            return None
        values, log, row = np.full(number_played, prior), self._log, played_rows[place : place + 1]
        told = slice(number_played if place < log.points.shape[0] else number_played - 1)
        with torch.no_grad():
            values[told] = as_array(gram(self.kernel, X, log.points))[0]
        spanning = self.spanning_points
        if (growth := self._joined(row, at.rows[0], prior, values, lambda block: self.no_points[:0])) is None:
            return None
        self._dictionary_rows = torch.cat([rows, row])
        self._listed_dictionary = points, self._dictionary_rows
        self._known_spanning = self._feature_rows, points if spanning is known else torch.cat([spanning, X])
        return growth

    def _listing(self, points: Tensor) -> Self:
        """Return the table that knows the rows of a dictionary (m, d), which are not looked up again while it stays."""
        known, rows = self._listed_dictionary
        if points is known or are_equal(points, known):
            return self
        if not torch.equal(points[: len(known)], known):
            known, rows = known[:0], rows[:0]
        new = points[len(known) :]
        other = shallow_copy(self.with_points(new))
        other._listed_dictionary = points, torch.cat([rows, other.rows_of(new)])
        return other

    def _difference(self, dictionary: Tensor) -> tuple[Tensor, tuple[int, ...] | None]:
        """Return the rows of a dictionary that are not spanned yet, and which features it lacks; None for unknown."""
        before = self._dictionary_rows
        if dictionary is before:
            return dictionary[:0], self._dtc.left_out
        is_longer = dictionary.is_cpu and dictionary.shape[0] == before.shape[0] + 1
        if is_longer and torch.equal(dictionary[:-1], before) and dictionary[-1].item() not in self._positions:
            return dictionary[-1:], self._dtc.left_out
        rows = listed(dictionary)
        joining = [row for row in rows if row not in self._positions]
        if self.exact or len(rows) - len(joining) == self._dtc.size == len(self._positions):
            return self._as_rows(joining), ()
        present = {self._positions.get(row, -1) for row in rows}
        left_out = tuple(position for position in range(self._dtc.size) if position not in present)
        if left_out and None in present:
            return dictionary[:0], None  # what spans such a point may have left
        return self._as_rows(joining), left_out

    def _as_rows(self, numbers: list[int]) -> Tensor:
        """Return rows in the books, whose numbers the host knows."""
        return beside(torch.tensor(numbers, dtype=torch.long), self._played_rows)

    def _chosen(self, rows: Tensor, places: Tensor) -> Tensor:
        """Return rows at places (k,), whose numbers the host knows."""
        if rows.is_cpu:
            return rows[on_host(places)]
        return known(rows[places], on_host(rows)[on_host(places)])

    def _is_cheap(
        self, joining: Tensor, left_out: tuple[int, ...], dictionary: Tensor, played_rows: Tensor, num_rewards: int
    ) -> bool:
        """Say whether applying rows to the features is cheaper than embedding all arms afresh, and as exact."""
        num_behind = self._dtc.size - self._num_before(joining)
        if joining.shape[0] > 1 + self._dtc.size // 8:
            return False
        if num_behind and (left_out or self._dtc.left_out):
            return False
        size, spanning = dictionary.shape[0], self._dtc.size + joining.shape[0]
        # Features that are not needed cost in every pass; those of an exact posterior were forgotten.
        needed = played_rows.shape[0] if self.exact else size
        if spanning > needed + needed // 2 + _COPY:
            return False
        moving = len(left_out) if self._goes_through_whole(left_out) else self._num_moving(left_out)
        rows = 2 * (joining.shape[0] + num_behind) + 2 * moving + num_rewards + 1
        return rows * spanning <= 3 * size**2 + _COPY * size

    def _num_before(self, rows: Tensor) -> int:
        """Return behind how many features rows (k,) may stand as in pivoted Cholesky, which amplifies no rounding.

        There no coordinate of a later point exceeds the diagonal: what was left to explain of each when it joined.
        """
        is_free = not self._is_fragile or rows.shape[0] == 0
        return self._dtc.size if is_free else self._num_before_points(self._coordinates(rows))

    def _num_before_points(self, coordinates: Tensor) -> int:
        """Return the same of points of coordinates (m, k), where order matters."""
        most = _ORDER[self._points.dtype] * self._dtc.factor.diagonal().unsqueeze(-1)
        fits = (coordinates.abs() <= most).all(-1)
        return int(fits.long().cumprod(0).sum())

    def _goes_through_whole(self, left_out: tuple[int, ...]) -> bool:
        """Say whether it is cheaper to leave these out of all features than to follow what moves."""
        return len(left_out) + 1 < self._num_moving(left_out)

    def _num_moving(self, left_out: tuple[int, ...]) -> int:
        """Return how many features leave the dictionary or come back if it is to lack just these."""
        return len(set(left_out) ^ set(self._dtc.left_out))

    # ---------------------------------------------------------------- forgetting

    def forgotten(self, left: Plays, gone: Plays) -> Self:
        """Return the table without rewards told before; the dictionary stays.

        Args:
            left: what is left, by the old places of the played points, in the order in which they stand from now on.
            gone: what is taken back, by these places.

        Cost: O(u m + m²) and one pass of a row for each point taken back, O(A m²) if they are many.
        """
        left, gone = self._in_books(left), self._in_books(gone)
        noise, points = self._noise, self._features(self._played_rows).columns(gone.places)
        after = self._recounted(left)
        if len(left.places) == 0:
            return after
        followed = None
        if 2 * len(gone.places) <= after._dtc.size:
            sums = self._unexpected(gone.sums, gone.counts, self._played_rows[gone.places])
            followed = after._dtc.forgotten(points, gone.counts / noise, sums / noise)
        after._num_shed += len(gone.places)
        if followed is None or after._num_shed >= after.CHECK:
            after._recount()
            return after
        dtc, squares = followed
        require_finite(dtc.weights.to(after._points.dtype), squares.rows)
        after._settle(None, after._played, dtc, squares, dtc.weights)
        return after

    def reweighted(self, plays: Plays) -> Self:
        """Return the table with other counts and sums of the played points; the dictionary stays.

        Args:
            plays: by the old places of the played points, in the order in which they stand from now on. Counts need not
                be whole: an observation of noise λ_s counts λ/λ_s, and its reward so many times.

        Cost: O(u m² + m³) and O(A m²) for the arms; no kernel value is computed if features are kept.
        """
        after = self._recounted(plays)
        if len(plays.places):
            after._recount()
        return after

    def _in_books(self, plays: Plays) -> Plays:
        """Return plays where those are that are known."""
        return Plays(*(beside(each, self._weights) for each in plays))

    @property
    def _noise(self) -> Tensor:
        """λ in double precision, 0-dim."""
        return on_host(self.regularization).double()

    def _recounted(self, plays: Plays) -> Self:
        """Return the table that knows other counts and sums; its posterior is still the old one, or the prior."""
        plays = self._in_books(plays)
        after, order = shallow_copy(self), plays.places
        if len(order) < len(after._log) or not torch.equal(order, torch.arange(len(order), device=order.device)):
            after._rows_played, after._played = Rows(after._played_rows[order]), after._played.at(order)
        after._log, after._last_located = after._log.recounted(*plays), None
        after._num_observations = int(plays.counts.sum())
        if after.prior_told is not None:
            after.prior_told = after._prior_in_log.item()
        if len(order) == 0:
            after._dtc, arms = after._dtc.without_rewards(), after._arms.features
            after._weights = after._dtc.weights
            prior = after._prior_panel(arms)
            after._lazy_panel = LazyPanel(prior, after._dtc, after._weights)
        return after

    def _recount(self) -> None:
        """Compute everything afresh from the features and what was told of what counts. Cost: O((A + u) m²)."""
        weights, moments = self._log_weights(len(self._log))
        seen = self._features(self._played_rows).blocks()
        dtc = self._dtc.refitted((each, weights[block], moments[block]) for block, each in seen)
        require_finite(dtc.weights.to(self._points.dtype))
        self._refit(dtc, self._played, self._arms.features)

    # ---------------------------------------------------------------- looking ahead

    def _hallucinated(self, rows: Tensor, times: Tensor) -> Self:
        """Return the table conditioned on the posterior means at rows (k,), so many times (k,) at each.

        Cost: O(k m² + k l (m + l)) for l points in all; what they take from the variances of arms is computed when it
        is asked for.
        """
        ahead, dtc, at = shallow_copy(self), self._dtc, self._coordinates(rows)
        hallucinated = self._hallucination
        if hallucinated is None:
            none = Conditional.none(dtc.size, dtc.moment, learns_residual=self.learns_residual)
            hallucinated = HallucinatedArms(self._prior_variance[: self._num_arms], none, rows[:0])
        everything, roots = torch.cat([hallucinated.rows, rows]), None
        if self.learns_residual:
            prior = self._prior_at(rows)
            roots = residual_share(prior, dtc.spanned(at), dtc.quick_variance(prior, at)).sqrt()
        known = dtc.explained(at), None if roots is None else dtc.inside(at)
        values, noise = self._between(everything, rows), self._noise / times
        ahead._hallucination = hallucinated.given(
            hallucinated.conditional.given(Seen(at, roots), *known, values, noise), everything
        )
        return ahead

    @property
    def _basis_rows(self) -> Tensor:
        return self._feature_rows

    def _draw_correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        return self.at_arms(self.draw_correction(prior_at, generator))

    def draw_correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        """Return weights c (m,) so that a prior draw and cᵀz are a draw of f − mean, at points of coordinates z.

        They are w − g, w drawn from N(0, V⁻¹) and g the coordinates of the prior draw. The former needs no factor of V:
        V⁻¹(ξ₀ + Σ_s √(c_s/λ) z_s ξ_s) has covariance V⁻¹. Cost: O(u m + m²), and O(m³) while points are left out.

        Args:
            prior_at: the prior draw's values (k,) at rows (k,).
            generator: all other randomness.
        """
        counts = self._log.counts
        played = self._features(self._played_rows)
        if self.exact:
            # The same in terms of the played points, so that a draw does not depend on the order of the features.
            noise = on_host(self.regularization) / counts
            normals = torch.randn(len(noise), generator=generator, dtype=torch.float64, device="cpu").to(noise)
            values = (beside(prior_at(self._played_rows), noise) + noise.sqrt() * normals) / noise
            return -self._dtc.solve(combined(played, values))
        at_features = beside(prior_at(self._feature_rows), counts).double().unsqueeze(-1)
        coordinates = torch.linalg.solve_triangular(self._dtc.factor, at_features, upper=False).squeeze(-1)
        positions = [self._positions[row] for row in self._dictionary_rows.tolist()]
        basis = self._dtc.basis([position for position in positions if position is not None])
        normals = torch.randn(len(basis) + len(counts), generator=generator, dtype=torch.float64, device="cpu").to(
            basis
        )
        noise = (counts / on_host(self.regularization)).sqrt() * normals[len(basis) :]
        drawn = normals[: len(basis)] @ basis + combined(played, noise)
        return self._dtc.solve(drawn) - basis.mT @ (basis @ coordinates)

    def at_arms(self, weights: Tensor) -> Tensor:
        """Return wᵀz at the arms for weights w (m,), (A,). Cost: O(A m)."""
        store = self._arms.features
        (rows,) = sent(self.no_points, weights.unsqueeze(0))
        return store.products(rows, slice(0, store.num_points)).squeeze(0)

    # ---------------------------------------------------------------- low-rank changes

    def _advance(
        self,
        joining: Tensor,
        left_out: tuple[int, ...],
        dictionary: Tensor,
        played_rows: Tensor,
        told: Plays,
    ) -> bool:
        """Follow rewards and a change of the dictionary, and return True; or False if that is not possible.

        Args:
            joining: rows that are to be spanned.
            left_out: features that are not in the dictionary, of those there are.
            dictionary: its rows.
            played_rows: rows of the unique played points as they will be.
            told: the rewards.
        """
        num_moving = self._num_moving(left_out)
        through_whole = self._goes_through_whole(left_out)
        if through_whole:
            self._make_whole()
        num_joining, before = joining.shape[0], self._num_before(joining)
        if before < self._dtc.size:  # those behind join again
            joining = torch.cat([joining, self._feature_rows[before:]])
            self._shorten(before)
        played, fresh = self._played, played_rows[self._played_rows.shape[0] :]
        num_fresh, num_told = fresh.shape[0], told.places.shape[0]
        points = self._coordinates(fresh) if num_fresh else self._weights.new_empty(self._dtc.size, 0)
        if num_fresh:
            played = played.appended(points)
        growth, dtc = None, self._dtc
        if len(joining):
            growth = self._growth(joining, played, played_rows)
            if left_out and (growth is None or len(growth.rows) < len(joining)):
                return False  # what spans a point that joins may have left
        if num_fresh < num_told:  # some were played before
            store = played.store
            points = self._coordinates(played_rows[told.places]) if store is None else store.columns(told.places)
        if growth is not None:
            points, dtc = torch.cat([points, growth.at_played[:, told.places]]), growth.dtc
        noise, moved = self._noise, None
        if not (through_whole or left_out == dtc.left_out):
            dtc, moved = dtc.leaving_out(left_out)
        dtc, seen = dtc.observed(points, told.counts / noise, told.sums / noise)
        self._settle(growth, played, dtc, seen if moved is None else moved.then(seen), dtc.weights)
        require_finite(self._weights.to(self._points.dtype), seen.rows)
        if through_whole:
            self._leave_out(left_out, played_rows)
        self._dictionary_rows = self._feature_rows if self.exact else dictionary
        self._changes += num_told + num_joining + num_moving
        if self._changes >= self.CHECK:
            self._clear_drift(played_rows)
        return True

    def _make_whole(self) -> None:
        """Bring all features into the dictionary; without a pass if the posterior with all of them is known."""
        if self._whole is not None and self._whole[0] is self._dtc:
            self._dtc, self._weights, self._played, self._lazy_panel = self._whole[1]
        elif self._dtc.left_out:
            self._leave_out((), self._played_rows)

    def _leave_out(self, left_out: tuple[int, ...], played_rows: Tensor) -> None:
        """Let the dictionary lack just these features; from all features, remember the posterior that has them."""
        if self._arms.num_pending > _MOST_PENDING:
            self._arms.up_to_date()
        if self._played.num_pending > _MOST_PENDING:
            self._followed_variance(played_rows)
        before = Known(self._dtc, self._weights, self._played, self._lazy_panel)
        dtc, squares = self._dtc.leaving_out(left_out)
        self._settle(None, self._played, dtc, squares, dtc.weights)
        if not before.dtc.left_out:
            self._whole = dtc, before

    def _shorten(self, size: int) -> None:
        """Let the first features be all. Cost: O((A + m) m k) for k that go."""
        before, (dtc, squares) = self._dtc, self._dtc.shortened(size)
        weights = torch.nn.functional.pad(dtc.weights, (0, before.size - size))
        panel = self._arms.changed(Change(squares), dtc, weights, None).up_to_date()
        self._lazy_panel = LazyPanel(panel.shortened(size), dtc, dtc.weights)
        self._dtc, self._weights, self._played = dtc, dtc.weights, self._played.shortened(size)
        gone = set(self._feature_rows[size:].tolist())
        self._positions = {row: position for row, position in self._positions.items() if row not in gone}
        self._feature_rows = self._feature_rows[:size]

    def _growth(self, joining: Tensor, played: PlayedPanel, played_rows: Tensor) -> Growth | None:
        """Return the posterior with rows (a,) spanned, on the data so far; None if all are in the span already."""
        dtc = self._dtc
        own, prior = self._coordinates(joining).mT, self._prior_at(joining)
        schur = (prior.diag() if len(joining) == 1 else self._between(joining, joining)) - own @ own.mT
        kept, corner, is_fragile = spanning_factor(schur, prior, self._points.dtype)
        self._is_fragile = self._is_fragile or is_fragile
        rows, own = (joining, own) if kept == list(range(len(joining))) else (joining[kept], own[kept])
        self._positions = self._positions | dict.fromkeys(listed(joining))
        if len(rows) == 0:
            return None
        self._positions.update(zip(listed(rows), range(dtc.size, dtc.size + len(rows)), strict=True))
        features = played.store or self._computed(dtc.factor, self._feature_rows, played_rows)
        self._feature_rows = torch.cat([self._feature_rows, rows])
        columns, values = self._kernel_values(rows, played_rows)
        weights, moments = self._log_weights(len(played_rows))
        new, *sums = joined_by(features, own, corner, values, weights, moments)
        dtc, squares = dtc.grown(own, corner, *sums)
        return Growth(dtc, rows, own, corner, squares, new, columns)

    def _settle(
        self, growth: Growth | None, played: PlayedPanel, dtc: OnlineDTC, squares: Squares, weights: Tensor
    ) -> None:
        """Take over a posterior, which reaches the arms when asked for if the dictionary stays."""
        if growth is not None:
            played = played.grown(growth.at_played)
            self._played = played.following(growth.followed_by(squares)) if played.is_known else played
            change = Change(growth.squares.then(squares), growth.own, growth.corner)
            if self._num_arms:
                self._lazy_panel = self._arms.changed(change, dtc, weights, growth.columns)
        else:
            self._played = played.following(squares)
            if dtc.left_out != self._dtc.left_out:
                self._lazy_panel = self._arms.changed(Change(squares), dtc, weights, None)
            elif self._num_arms:
                self._lazy_panel = self._arms.observed(squares, dtc, weights)
        self._dtc, self._weights = dtc, weights

    def _kernel_values(self, rows: Tensor, played_rows: Tensor) -> tuple[Columns, Tensor]:
        """Return the kernel values of rows (a,) against blocks of the arms, and against the played points, (a, u)."""
        most = _WHOLE_COLUMN if self._prior_in_books is None else points_at_a_time(self.no_points.device, 0, len(rows))
        if self._num_arms > most or len(self._points) > self._num_arms:
            values = self._between(rows, played_rows)
            return lambda block: self._columns.over_arms(rows, block, keep=False), values
        whole = self._columns.over_arms(rows, slice(0, self._num_arms), keep=False)
        values = beside(whole[:, beside(played_rows, whole)], self._weights)
        return lambda block: whole[:, block], values.double()

    def _between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the kernel values of rows (m,) and others (k,), (m, k), in double precision, in the books."""
        return beside(self._columns.between(rows, others), self._weights).double()

    def _log_weights(self, size: int) -> tuple[Tensor, Tensor]:
        """Return the summed 1/λ and (y − m)/λ of the played points, (u,), 0 for those that are not in the log yet."""
        padding = (0, size - len(self._log))
        noise, counts = self._noise, self._log.counts
        sums = self._unexpected(self._log.sums, counts, self._played_rows)
        return torch.nn.functional.pad(counts / noise, padding), torch.nn.functional.pad(sums / noise, padding)

    def _coordinates(self, rows: Tensor) -> Tensor:
        """Return the coordinates of rows (k,), (m, k), in double precision. Cost: O(m k), off the list O(m² k)."""
        if len(self._points) == self._num_arms or (self._num_arms and bool((rows < self._num_arms).all())):
            known_dtc, known_rows, columns = self._known_columns
            if known_dtc is not self._dtc or known_rows is not rows:
                if self._prior_in_books is None:
                    columns = self._arms.features.columns(rows).double()
                elif rows.shape[0] == 1:
                    columns = torch.from_numpy(self._brought(cast(int, rows.item()))).unsqueeze(1)
                else:
                    columns = self._arms.features.columns(beside(rows, self.no_points)).cpu().double()
                self._known_columns = self._dtc, rows, columns
            return columns
        return self.embedded(self._points.rows(rows)).coordinates

    def _prior_at(self, rows: Tensor) -> Tensor:
        return self._prior_of(rows).double()

    # ---------------------------------------------------------------- from scratch

    def _replace(self, dictionary_rows: Tensor, played_rows: Tensor, X: Tensor, Y: Tensor, located: Located) -> None:
        """Embed all arms at another dictionary, with rewards Y (q,) at X added."""
        noise = self._noise
        counts, sums = self._log.points_with(X, located)[1], self._log.sums_with(Y, located)
        weights, moments = counts / noise, self._unexpected(sums, counts, played_rows) / noise
        gram_of_all = beside(self._columns.between(dictionary_rows, dictionary_rows), self._weights)
        factor = jittered_cholesky(gram_of_all)
        computed = self._computed(factor.double(), dictionary_rows, played_rows)
        played = self._played.refilled(computed, len(played_rows), len(factor))
        seen = (played.store or computed).blocks()
        dtc = OnlineDTC.fit(factor.double(), ((each, weights[block], moments[block]) for block, each in seen))
        require_finite(dtc.weights.to(self._points.dtype))
        self._embedding = object()  # the memory is that of the old features
        self._written_last[0] = None
        features = self._embedded(dictionary_rows, beside(factor, self.no_points))
        self._refit(dtc, played, features)
        self._feature_rows = dictionary_rows
        self._positions = {row: position for position, row in enumerate(dictionary_rows.tolist())}
        least = FRAGILE[factor.dtype] * self._kernel_bound
        self._is_fragile = bool((factor.diagonal().square() <= least).any())
        self._written_last[0] = self._embedding

    def _embedded(self, rows: Tensor, factor: Tensor) -> FeatureStore:
        """Write L⁻¹k(rows, ·) of all arms over the features, for a factor L (m, m). Cost: O(A m²)."""
        features = self._lazy_panel.features.rewritten(len(rows))
        size = points_at_a_time(factor.device, _BLOCK, len(rows))
        for start in range(0, self._num_arms, size):
            block = slice(start, min(start + size, self._num_arms))
            features.write(embed(factor, self._columns.over_arms(rows, block, keep=True)), block, 0)
        return features

    def _refit(self, dtc: OnlineDTC, played: PlayedPanel, features: FeatureStore) -> None:
        """Compute all means and variances afresh from features. Cost: O(A m²)."""
        self._changes = self._num_shed = 0
        self._dtc, self._weights, self._played = dtc, dtc.weights, played.forgotten()
        self._lazy_panel = LazyPanel(self._prior_panel(features).fitted(dtc, dtc.weights), dtc, dtc.weights)

    def _prior_panel(self, features: FeatureStore) -> Panel:
        """Return the prior at the arms, whose features these are."""
        expected = None if self._expected is None else self._expected[: self._num_arms]
        return Panel.prior(self._prior_variance[: self._num_arms], expected, features)

    def _unexpected(self, sums: Tensor, counts: Tensor, rows: Tensor) -> Tensor:
        """Return sums (k,) of so many rewards (k,) at rows (k,) less their prior means."""
        return sums if self._expected is None else sums - counts * self._expected_at(rows)

    def _clear_drift(self, played_rows: Tensor) -> None:
        """Compute everything afresh from the features if the low-rank changes have drifted."""
        self._changes = 0
        dtc, listed = self._dtc.refreshed(), played_rows < self._num_arms
        # zᵀz is at most the prior variance, so a norm of the change bounds that of all variances.
        drift = (self._dtc.inverse - dtc.inverse).norm()
        if self._played.is_known or bool(listed.any()):
            prior, seen = self._prior_at(played_rows), self._features(played_rows).blocks()
            fresh = torch.cat([dtc.variance(prior[block], each) for block, each in seen])
            variance = self._arms.up_to_date().variance
            at_arms = beside(variance[beside(played_rows[listed], variance)], fresh).double() - fresh[listed]
            at_played = self._followed_variance(played_rows) - fresh
            drift = torch.maximum(drift, torch.cat([at_arms, at_played]).abs().max() / self._kernel_bound)
        if bool(drift > self.DRIFT[self._points.dtype]):
            self._refit(dtc, self._played, self._arms.features)

    def _spanning(self, rows: Tensor) -> Tensor:
        """Return those of rows (k,) that span all of them to rounding, the least explained first. Cost: O(k m²).

        In this order, that of pivoted Cholesky, rounding is not amplified however close points are.
        """
        if len(rows) <= _WHOLE_GRAM:
            values = beside(self._columns.between(rows, rows), self._weights)
            return rows[spanning_pivots(values, SPAN_TOLERANCE[self._points.dtype])]
        points, ones = self._points.rows(rows), self.no_points.new_ones(len(rows), dtype=torch.long)
        with torch.no_grad():
            played = PlayedPoints(points, self.kernel, self.regularization, ones)
            return rows[beside(greedy_pivots(played, len(rows), SPAN_TOLERANCE[self._points.dtype]), rows)]

    def _extend_rows(self, points: Tensor) -> None:
        self._columns = self._columns.extended(self._points)
