from collections.abc import Sequence
from copy import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.candidates.base import Belief, Located, PlayedLog
from torch_kbandits.candidates.columns import KernelColumns
from torch_kbandits.dictionaries import GreedyDictionary, PlayedPoints, Selection
from torch_kbandits.dtc import DTCFactors, embed
from torch_kbandits.errors import NumericalError
from torch_kbandits.linalg import jittered_cholesky, non_negative_variance
from torch_kbandits.prior_draws import PriorDraws, distinct, prior_draws

#: Arms embedded at a time when the dictionary changes, so that temporaries stay in cache.
_BLOCK = 4096

#: A point whose Schur complement is below this fraction of its prior variance is in the dictionary's span already.
_SPAN_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class ArmTable(Belief):
    """Mean and variance of every arm, kept up to date in one pass over the A × m embedding a round.

    Between dictionary changes a reward changes all means and variances by a rank-one term; a new dictionary point
    adds one feature. Any other change of the dictionary embeds all arms again. Rewards of one arm are kept as a count
    and a sum. Points told that are no arms take part as further rows that are never chosen. The exact posterior is the
    case where every played point is in the dictionary; points that the others span to rounding add no feature.

    Source: the posterior and the counts are those of Calandriello et al., COLT 2019, §3.1–3.2. Differs: the paper
    embeds all arms afresh in every round; here rounding that builds up in the rank-one terms is cleared by a fresh
    embedding every ``REFRESH`` of them.

    Cost of a round: O(A m) at an unchanged dictionary, O(A m) a point added, else O(A m²). Memory: O(A m), and the
    kernel columns of played arms within their budget.

    Args:
        arms: (A, d).
        kernel: the prior covariance.
        regularization: λ.
        column_memory: bytes that kernel columns may occupy.
        exact: whether every played point is in the dictionary.
    """

    #: Rank-one changes between fresh embeddings.
    REFRESH = 1000

    def __init__(
        self, arms: Tensor, kernel: Kernel, regularization: float, column_memory: int = 2**29, *, exact: bool = False
    ) -> None:
        super().__init__(arms[:1], kernel, regularization, exact=exact)
        self._num_arms = len(arms)
        self._points = arms
        self._columns = KernelColumns(self.kernel, arms, column_memory)
        self._prior_variance = self._columns.diagonal()
        self._kernel_bound = self._prior_variance.max()
        self._prior_draws: PriorDraws | None = None
        self._known_rows: dict[bytes, int] = {}
        self._log = PlayedLog(arms[:1])
        self._played_rows = torch.zeros(0, dtype=torch.long, device=arms.device)
        self._num_observations = 0
        self._embedding = arms.new_empty(0, len(arms))  # a buffer: rows [:m] are the features
        self._rebuild(self._played_rows, self._played_rows, self._log.counts, self._log.sums)

    # ---------------------------------------------------------------- what is known

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return self._num_observations

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._mean[: self._num_arms]

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return self._variance[: self._num_arms].clamp_min(0.0)

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points if the posterior is exact."""
        return self._log.points if self.exact else self._points[self._dictionary_rows]

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim. Cost: O(u)."""
        variance = self._variance[self._played_rows].clamp_min(0.0)
        return (self._log.counts * variance).sum() / self.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats. Cost: O(1)."""
        return 0.5 * self._log_det

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim."""
        return self._kernel_bound

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim. Cost: O(u m)."""
        played = self._embedding[: self._num_features, self._played_rows]
        return (self._precision_inverse @ (played @ (self._log.sums / self.regularization))).norm()

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a played point, 0-dim; 0 before any."""
        means = self._mean[self._played_rows]
        return means.max() if len(means) else means.new_zeros(())

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        return self._log.points[self._mean[self._played_rows].argmax(), None].clone()

    # ---------------------------------------------------------------- telling

    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior."""
        located = self._log.locate(X)
        rows = self._rows_with(X, located)
        points, counts = self._log.points_with(X, located)
        variance = self._variance[rows].clamp_min(0.0)
        return PlayedPoints(points, self.kernel, self.regularization, counts, variance / self.regularization)

    def leverage_scores(self, rows: list[int]) -> Tensor:
        """Return the ridge leverage scores of rows under the current posterior, (k,)."""
        return self._variance[rows].clamp_min(0.0) / self.regularization

    def update(self, X: Tensor, Y: Tensor, selection: Selection | None) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        located = self._log.locate(X)
        played_rows = self._rows_with(X, located)
        if selection is None:
            added = played_rows[len(self._played_rows) :]
            dictionary_rows = torch.cat([self._dictionary_rows, added])
        else:
            rows = None if selection.indices is None else played_rows[selection.indices]
            dictionary_rows = self.rows_of(selection.points) if rows is None else rows
            added = self._added(dictionary_rows)
        groups = _grouped(located.positions, Y)
        if added is not None and self._is_cheap(len(added), len(groups)):
            self._extend(added, [(int(played_rows[position]), *sums) for position, sums in groups.items()])
        else:
            self._replace(dictionary_rows, played_rows, X, Y, located)
        self._log.add(X, Y, located)
        self._played_rows = played_rows
        self._num_observations += len(X)

    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        """Condition the empty table on a whole history at a known dictionary."""
        if self.exact:
            played = self.preview(X)
            rule = GreedyDictionary(played.size, _SPAN_TOLERANCE[X.dtype])  # what the others span adds no feature
            self.update(X, Y, rule.select(played))
        else:
            self.update(X, Y, Selection(inducing_points, inducing_points.new_ones(len(inducing_points)), None))

    # ---------------------------------------------------------------- looking ahead

    def hallucinated(self, row: int, times: int = 1) -> "ArmTable":
        """Return the table conditioned on the posterior mean at a row, with the row added to the dictionary.

        Counts and sums stay: features that join later vanish at the row, so they never ask for them.
        """
        # A shallow copy is enough: growing and observing replace tensors and write to unused features only.
        ahead = copy(self)
        ahead._grow(row, ahead._columns.block(ahead._played_rows.new_tensor([row]), slice(None))[0])
        ahead._observe(row, times, times * ahead._mean[row])
        return ahead

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d); a copy."""
        return self._points[row, None].clone()

    def rows_of(self, points: Tensor) -> Tensor:
        """Return the row of each point (k, d); points that are not in the table are appended to it."""
        rows = [self._find(point) for point in points]
        unknown = [index for index, row in enumerate(rows) if row is None]
        if unknown:
            for row, index in enumerate(unknown, start=len(self._points)):
                rows[index] = row
            self._append(points[unknown])
        return torch.tensor(rows, dtype=torch.long, device=points.device)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the arms, (A,); equal arms get equal values.

        A prior draw at all rows is corrected by a draw of the weights of the features.

        Source: Matheron's rule, Wilson et al., ICML 2020, with the DTC weights N(·, V⁻¹), which are drawn without a
        factor: V⁻¹(ξ₀ + Σ_s √(c_s/λ) z_s ξ_s) has covariance V⁻¹. Cost: O(N m + u m) and the prior draw's.
        """
        if self._prior_draws is None:
            points, self._distinct_rows = distinct(self._points)
            self._prior_draws = prior_draws(self.kernel, points)
            first = torch.full((len(points),), len(self._points), device=points.device)
            order = torch.arange(len(self._points), device=points.device)
            self._twins = first.scatter_reduce(0, self._distinct_rows, order, "amin")[self._distinct_rows]
        generator = torch.Generator().manual_seed(seed)
        prior = self._prior_draws.draw(generator)[self._distinct_rows]
        features = self._embedding[: self._num_features]
        own = features[:, self._feature_rows]  # upper triangular: the transpose of the dictionary's Cholesky factor
        coordinates = torch.linalg.solve_triangular(own.mT, prior[self._feature_rows, None], upper=False).squeeze(-1)
        counts = self._log.counts
        normals = torch.randn(len(own) + len(counts), generator=generator, dtype=torch.float64).to(prior)
        noise = (counts / self.regularization).sqrt() * normals[len(own) :]
        weights = self._precision_inverse @ (normals[: len(own)] + features[:, self._played_rows] @ noise)
        draw = prior + (weights - coordinates) @ features
        return draw[self._twins[: self._num_arms]]

    # ---------------------------------------------------------------- the algebra

    def _extend(self, added: Tensor, rewards: Sequence[tuple[int, int, Tensor]]) -> None:
        """Add dictionary points, and rewards as (row, count, sum), by rank-one changes; everything or nothing."""
        columns = self._columns.block(added, slice(None)) if len(added) else ()
        before = dict(vars(self))  # the changes replace tensors and write to unused features only
        try:
            for row, column in zip(added.tolist(), columns, strict=True):
                self._grow(row, column)
            for row, count, total in rewards:
                self._observe(row, count, total)
            self._require_finite()
        except BaseException:
            vars(self).update(before)
            raise

    def _replace(self, dictionary_rows: Tensor, played_rows: Tensor, X: Tensor, Y: Tensor, located: Located) -> None:
        """Embed all points at another dictionary, with rewards Y (q,) at X added; everything or nothing."""
        before = self._dictionary_rows
        _, counts = self._log.points_with(X, located)
        try:
            self._rebuild(dictionary_rows, played_rows, counts, self._log.sums_with(Y, located))
            self._require_finite()
        except BaseException:
            self._rebuild(before, self._played_rows, self._log.counts, self._log.sums)
            raise

    def _require_finite(self) -> None:
        if not bool(torch.isfinite(self._mean).all() and torch.isfinite(self._variance).all()):
            raise NumericalError("The posterior is not finite: rewards or hyperparameters are too large for the dtype.")

    def _rebuild(self, dictionary_rows: Tensor, played_rows: Tensor, counts: Tensor, sums: Tensor) -> None:
        """Embed every point at a dictionary and condition on all rewards. Cost: O(N m² + m³ + u m²)."""
        m, size = len(dictionary_rows), len(self._points)
        if m > len(self._embedding):
            self._embedding = self._points.new_empty(max(m, min(2 * len(self._embedding), size)), size)
        gram = self._columns.block(dictionary_rows, dictionary_rows)
        factor = jittered_cholesky(gram)
        played = embed(factor, self._columns.block(dictionary_rows, played_rows))
        factors = DTCFactors.fit_embedded(factor, played, sums / counts, self.regularization / counts)
        mean, variance = torch.empty_like(self._prior_variance), torch.empty_like(self._prior_variance)
        for start in range(0, size, _BLOCK):
            block = slice(start, min(start + _BLOCK, size))
            embedding = factors.embed(self._columns.block(dictionary_rows, block))
            self._embedding[:m, block] = embedding
            mean[block] = factors.mean(embedding)
            variance[block] = factors.variance(self._prior_variance[block], embedding)
        self._mean, self._variance = mean, variance
        self._dictionary_rows = self._feature_rows = dictionary_rows
        self._num_features = m
        self._precision_inverse = torch.cholesky_inverse(factors.precision_factor)
        self._log_det = 2.0 * factors.information_gain()
        self._changes = 0

    def _grow(self, row: int, column: Tensor) -> None:
        """Add a dictionary point, given its kernel column (N,), on the data so far. Cost: O(N m + u m)."""
        self._changes += 1
        m = self._num_features
        joined = self._dictionary_rows.new_tensor([row])
        if not self.exact:
            self._dictionary_rows = torch.cat([self._dictionary_rows, joined])
        features = self._embedding[:m]
        own = features[:, row]
        residual = non_negative_variance(self._prior_variance[row] - own @ own, self._prior_variance[row])
        if residual <= _SPAN_TOLERANCE[column.dtype] * self._prior_variance[row]:
            return
        feature = (column - own @ features) / residual.sqrt()
        weights = self._log.counts / self.regularization
        played, played_feature = features[:, self._played_rows], feature[self._played_rows]
        cross = played @ (weights * played_feature)
        solved = self._precision_inverse @ cross
        schur = 1.0 + (weights * played_feature.square()).sum() - cross @ solved
        moment = played_feature @ (self._log.sums / self.regularization)
        direction = feature - solved @ features
        played_mean = self._mean[self._played_rows]
        # The new weight is (b₂ − crossᵀα) / schur, and crossᵀα is the old mean against the new feature.
        weight = (moment - (weights * played_feature) @ played_mean) / schur
        self._mean = self._mean + weight * direction
        self._variance = self._variance - feature.square() + direction.square() / schur
        self._log_det = self._log_det + schur.log()
        corner = torch.cat([-solved, solved.new_ones(1)])
        inverse = torch.outer(corner, corner) / schur
        inverse[:m, :m] += self._precision_inverse
        self._precision_inverse = inverse
        self._store(feature)
        self._feature_rows = torch.cat([self._feature_rows, joined])
        if self.exact:
            self._dictionary_rows = self._feature_rows

    def _observe(self, row: int, count: int, total: Tensor) -> None:
        """Condition on ``count`` rewards of one row at an unchanged dictionary, given their sum. Cost: O(N m)."""
        self._changes += 1
        features = self._embedding[: self._num_features]
        own = features[:, row]
        solved = self._precision_inverse @ own
        projected = own @ solved  # the DTC variance at the arm without the residual k − zᵀz
        noise = self.regularization / count
        spread = noise + projected
        covariance = solved @ features
        self._mean = self._mean + covariance * ((total / count - self._mean[row]) / spread)
        self._variance = self._variance - covariance.square() / spread
        self._precision_inverse = self._precision_inverse - torch.outer(solved, solved) / spread
        self._log_det = self._log_det + torch.log1p(projected / noise)

    def _store(self, feature: Tensor) -> None:
        """Append a feature to the embedding, whose buffer doubles when it is full."""
        m = self._num_features
        if m == len(self._embedding):
            grown = feature.new_empty(max(8, 2 * m), len(feature))
            grown[:m] = self._embedding[:m]
            self._embedding = grown
        self._embedding[m] = feature
        self._num_features = m + 1

    def _added(self, dictionary_rows: Tensor) -> Tensor | None:
        """Return the rows that join the dictionary, or None if rows leave it."""
        old, new = set(self._dictionary_rows.tolist()), dictionary_rows.tolist()
        added = [row for row in new if row not in old]
        return None if len(new) - len(added) < len(old) else dictionary_rows.new_tensor(added)

    def _is_cheap(self, num_added: int, num_rewards: int) -> bool:
        """Say whether one pass for each change beats embedding all arms afresh, and rounding has not built up."""
        passes = 3 * num_added + num_rewards
        return passes <= max(4, self._num_features // 4) and self._changes + num_added + num_rewards <= self.REFRESH

    # ---------------------------------------------------------------- rows of the table

    def _rows_with(self, X: Tensor, located: Located) -> Tensor:
        """Return the rows of the unique played points as they will be once X (q, d) is told."""
        if not located.fresh:
            return self._played_rows
        return torch.cat([self._played_rows, self.rows_of(X[located.fresh])])

    def _append(self, points: Tensor) -> None:
        """Append points (k, d) that are no arms; everything or nothing."""
        old = dict(vars(self))
        try:
            self._points = torch.cat([self._points, points])
            self._columns = self._columns.extended(self._points)
            self._prior_variance = self._columns.diagonal()
            self._embedding = self._points.new_empty(0, len(self._points))
            self._prior_draws = None
            self._rebuild(self._dictionary_rows, self._played_rows, self._log.counts, self._log.sums)
        except BaseException:
            vars(self).update(old)
            raise

    def _find(self, point: Tensor) -> int | None:
        """Return the first row that equals the point, if there is one. Cost: O(N d) the first time, then O(1)."""
        key = point.cpu().numpy().tobytes()
        row = self._known_rows.get(key)
        if row is None:
            matches = (self._points == point).all(-1).nonzero()
            if len(matches) == 0:
                return None
            row = self._known_rows[key] = int(matches[0])
        return row


def _grouped(positions: Sequence[int], Y: Tensor) -> dict[int, tuple[int, Tensor]]:
    """Return the number and the sum of the rewards Y (q,) of each position, in order of first appearance."""
    groups: dict[int, tuple[int, Tensor]] = {}
    for position, y in zip(positions, Y, strict=True):
        count, total = groups.get(position, (0, 0.0))
        groups[position] = (count + 1, total + y)
    return groups
