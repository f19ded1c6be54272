from collections.abc import Sequence
from copy import copy
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.candidates.base import Located
from torch_kbandits.candidates.columns import KernelColumns
from torch_kbandits.candidates.sources import ArmSource
from torch_kbandits.candidates.table import RowRewards, TableBelief, grouped
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.dtc import DTCFactors, embed
from torch_kbandits.errors import NumericalError
from torch_kbandits.linalg import jittered_cholesky

#: Arms embedded at a time when the dictionary changes, so that temporaries stay in cache.
_BLOCK = 4096

#: A point whose Schur complement is below this fraction of its prior variance is in the dictionary's span already.
_SPAN_TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-5}

#: After a point whose Schur complement is below this fraction the embedding is computed afresh, in a stabler order.
_FRAGILE = {torch.float64: 1e-6, torch.float32: 1e-3}

#: No rounding makes a Schur complement negative beyond this fraction of the prior variance.
_IMPOSSIBLE = -1e-2


class FeatureTable(TableBelief):
    """Mean and variance of every arm, kept up to date in one pass over the A × m embedding a round.

    Between dictionary changes a reward changes all means and variances by a rank-one term; a new dictionary point
    adds one feature. Any other change of the dictionary embeds all arms again. The exact posterior is the case where
    every played point is in the dictionary; points that the others span to rounding add no feature.

    Source: the posterior and the counts are those of Calandriello et al., COLT 2019, §3.1–3.2. Differs: the paper
    embeds all arms afresh in every round; here rounding that builds up in the rank-one terms is cleared by a fresh
    embedding every ``REFRESH`` of them.

    Cost of a round: O(A m) at an unchanged dictionary, O(A m) a point added, else O(A m²). Memory: O(A m), and the
    kernel columns of played arms within their budget.

    Args:
        arms: (A, d), or a source of them.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        column_memory: bytes that kernel columns may occupy.
        exact: whether every played point is in the dictionary.
    """

    #: Rank-one changes between fresh embeddings.
    REFRESH = 1000

    def __init__(
        self,
        arms: Tensor | ArmSource,
        kernel: Kernel,
        regularization: float,
        seed: int,
        column_memory: int = 2**29,
        *,
        exact: bool = False,
    ) -> None:
        super().__init__(arms, kernel, regularization, seed, exact=exact)
        self._columns = KernelColumns(self.kernel, self._points, column_memory)
        self._embedding = self._mean.new_empty(0, len(self._points))  # a buffer: rows [:m] are the features
        self._rebuild(self._played_rows, self._played_rows, self._log.counts, self._log.sums)

    # ---------------------------------------------------------------- what is known

    @property
    def _row_variances(self) -> Tensor:
        return self._variance

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points if the posterior is exact."""
        return self._log.points if self.exact else self.points_of(self._dictionary_rows)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim. Cost: O(u m)."""
        played = self._embedding[: self._num_features, self._played_rows]
        return (self._precision_inverse @ (played @ (self._log.sums / self.regularization))).norm()

    # ---------------------------------------------------------------- telling

    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        """Condition the empty table on a whole history at a known dictionary."""
        known = Selection(inducing_points, inducing_points.new_ones(len(inducing_points)), None)
        self.update(X, Y, None if self.exact else known)

    def _condition(
        self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played_rows: Tensor
    ) -> None:
        if selection is None:
            added = played_rows[len(self._played_rows) :]
            dictionary_rows = torch.cat([self._dictionary_rows, added])
        else:
            rows = None if selection.indices is None else played_rows[selection.indices]
            dictionary_rows = self.rows_of(selection.points) if rows is None else rows
            added = self._added(dictionary_rows)
        groups = grouped(located.positions, Y)
        if added is not None and self._is_cheap(len(added), len(groups)):
            self._extend(added, [(int(played_rows[position]), *sums) for position, sums in groups.items()])
        else:
            if selection is None:
                dictionary_rows = self._spanning(dictionary_rows)
            self._replace(dictionary_rows, played_rows, X, Y, located)

    # ---------------------------------------------------------------- looking ahead

    def hallucinated(self, row: int, times: int = 1) -> Self:
        """Return the table conditioned so many times on the posterior mean at a row, which joins the dictionary.

        Counts and sums stay: features that join later vanish at the row, so they never ask for them. One table that
        looks ahead at a time: they write to the buffer of this one. Cost: O(N m).
        """
        # A shallow copy is enough: growing and observing replace tensors and write to unused features only.
        ahead = copy(self)
        ahead._grow(row, ahead._columns.block(ahead._played_rows.new_tensor([row]), slice(None))[0])
        ahead._observe(row, times, times * ahead._mean[row])
        return ahead

    @property
    def _basis_rows(self) -> Tensor:
        return self._feature_rows

    def _draw_correction(self, prior: Tensor, generator: torch.Generator) -> Tensor:
        """Return Σ_j (w_j − g_j) z_j at all rows, w drawn from N(0, V⁻¹) and g the coordinates of the prior draw.

        The weights need no factor of V: V⁻¹(ξ₀ + Σ_s √(c_s/λ) z_s ξ_s) has covariance V⁻¹. Cost: O(N m + u m).
        """
        features = self._embedding[: self._num_features]
        if self.exact and prior.dtype == torch.float64:
            # The same in terms of the played points, so that a draw does not depend on the order of the features.
            noise = self.regularization / self._log.counts
            normals = torch.randn(len(noise), generator=generator, dtype=torch.float64).to(prior)
            values = (prior[self._played_rows] + noise.sqrt() * normals) / noise
            return -(self._precision_inverse @ (features[:, self._played_rows] @ values)) @ features
        at_dictionary = prior[self._feature_rows].unsqueeze(-1)
        coordinates = torch.linalg.solve_triangular(self._factor, at_dictionary, upper=False).squeeze(-1)
        counts = self._log.counts
        normals = torch.randn(len(coordinates) + len(counts), generator=generator, dtype=torch.float64).to(prior)
        noise = (counts / self.regularization).sqrt() * normals[len(coordinates) :]
        weights = self._precision_inverse @ (normals[: len(coordinates)] + features[:, self._played_rows] @ noise)
        return (weights - coordinates) @ features

    # ---------------------------------------------------------------- the algebra

    def _extend(self, added: Tensor, rewards: Sequence[RowRewards]) -> None:
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

    def _rebuild(self, dictionary_rows: Tensor, played_rows: Tensor, counts: Tensor, sums: Tensor) -> None:
        """Embed every point at a dictionary and condition on all rewards. Cost: O(N m² + m³ + u m²)."""
        m, size = len(dictionary_rows), len(self._points)
        if m > len(self._embedding):
            self._embedding = self._mean.new_empty(max(m, min(2 * len(self._embedding), size)), size)
        gram = self._columns.block(dictionary_rows, dictionary_rows)
        factor = self._factor = jittered_cholesky(gram)
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
        residual = self._prior_variance[row] - own @ own
        share = float(residual / self._prior_variance[row]) if bool(self._prior_variance[row] > 0.0) else 0.0
        if share < _IMPOSSIBLE:
            raise NumericalError(
                f"A posterior variance came out at {share:.3g} times the prior variance, beyond rounding: the kernel "
                "is not positive semi-definite, or single precision is not enough."
            )
        if share <= _FRAGILE[column.dtype]:
            self._changes = self.REFRESH
        if share <= _SPAN_TOLERANCE[column.dtype]:
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
        top = torch.cat([self._factor, self._factor.new_zeros(m, 1)], dim=1)
        self._factor = torch.cat([top, torch.cat([own, residual.sqrt().reshape(1)]).unsqueeze(0)])
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

    def _spanning(self, rows: Tensor) -> Tensor:
        """Return those of rows (k,) that span all of them to rounding, the least explained first. Cost: O(k m²).

        In this order, that of pivoted Cholesky, rounding is not amplified however close points are.
        """
        points = PlayedPoints(self._points.rows(rows), self.kernel, self.regularization, torch.ones_like(rows))
        with torch.no_grad():
            return rows[greedy_pivots(points, len(rows), _SPAN_TOLERANCE[self._points.dtype])]

    def _added(self, dictionary_rows: Tensor) -> Tensor | None:
        """Return the rows that join the dictionary, or None if rows leave it."""
        old, new = set(self._dictionary_rows.tolist()), dictionary_rows.tolist()
        added = [row for row in new if row not in old]
        return None if len(new) - len(added) < len(old) else dictionary_rows.new_tensor(added)

    def _is_cheap(self, num_added: int, num_rewards: int) -> bool:
        """Say whether one pass for each change beats embedding all arms afresh, and rounding has not built up."""
        passes = 3 * num_added + num_rewards
        return passes <= max(4, self._num_features // 4) and self._changes + num_added + num_rewards <= self.REFRESH

    def _extend_rows(self, points: Tensor) -> None:
        self._columns = self._columns.extended(self._points)
        self._embedding = self._mean.new_empty(0, len(self._points))
        self._rebuild(self._dictionary_rows, self._played_rows, self._log.counts, self._log.sums)
