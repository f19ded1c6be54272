import hashlib
from copy import copy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.candidates.base import Belief, Candidates, ConfidenceAcquisition, PlayedLog
from torch_kbandits.candidates.columns import KernelColumns
from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.dtc import DTCFactors, embed
from torch_kbandits.errors import InputError, NumericalError
from torch_kbandits.linalg import jittered_cholesky, non_negative_variance
from torch_kbandits.random import generator_for

#: Arms embedded at a time when the dictionary changes, so that temporaries stay in cache.
_BLOCK = 4096

#: A point whose Schur complement is below this fraction of its prior variance is in the dictionary's span already.
_SPAN_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


class Arms(Candidates):
    """A finite set of arms.

    Args:
        arms: (A, d), A >= 1, finite, of a floating dtype. Duplicate rows are allowed.
        column_memory: bytes that kernel columns of played arms may occupy; beyond, they are computed again when the
            dictionary changes.

    Raises:
        InputError: if there is no arm or the tensor does not fit.
    """

    def __init__(self, arms: Tensor, column_memory: int = 2**29) -> None:
        checks.points("candidates", arms)
        if arms.dim() != 2 or len(arms) == 0:
            raise InputError(f"candidates must be (A, d) with at least one arm, got {checks.describe(arms)}.")
        self.arms = arms.detach().clone()
        self.column_memory = checks.positive_integer("column_memory", column_memory)

    @property
    def example(self) -> Tensor:
        """The first arm, (1, d)."""
        return self.arms[:1]

    def belief(self, kernel: Kernel, regularization: float, seed: int) -> "ArmTable":
        """Return the table before any observation."""
        return ArmTable(self.arms, kernel, regularization, seed, self.column_memory)

    def describe(self) -> dict[str, object]:
        """Return the shape, dtype and a digest of the arms."""
        return {"arms": f"{tuple(self.arms.shape)} {self.arms.dtype} {digest(self.arms)}"}


class ArmTable(Belief):
    """Mean and variance of every arm, kept up to date in one pass over the A × m embedding a round.

    Between dictionary changes a reward changes all means and variances by a rank-one term; a new dictionary point
    adds one feature. Any other change of the dictionary embeds all arms again. Rewards of one arm are kept as a count
    and a sum. Points told that are no arms take part as further rows that are never chosen.

    Source: the posterior and the counts are those of Calandriello et al., COLT 2019, §3.1–3.2. Differs: the paper
    embeds all arms afresh in every round; here rounding that builds up in the rank-one terms is cleared by a fresh
    embedding every ``REFRESH`` of them.

    Cost of a round: O(A m) at an unchanged dictionary, O(A m) a point added, else O(A m²). Memory: O(A m), and the
    kernel columns of played arms within their budget.
    """

    #: Rank-one changes between fresh embeddings.
    REFRESH = 1000

    def __init__(self, arms: Tensor, kernel: Kernel, regularization: float, seed: int, column_memory: int) -> None:
        super().__init__(arms[:1], kernel, regularization)
        self._num_arms = len(arms)
        self._points = arms
        self._columns = KernelColumns(self.kernel, arms, column_memory)
        self._prior_variance = self._columns.diagonal()
        self._tie_rank = torch.rand(len(arms), generator=generator_for(seed, 0, "ties")).to(arms.device)
        self._last_asked: dict[bytes, int] = {}
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
        """The dictionary, (m, d)."""
        return self._points[self._dictionary_rows]

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim. Cost: O(u)."""
        variance = self._variance[self._played_rows].clamp_min(0.0)
        return (self._log.counts * variance).sum() / self.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats. Cost: O(1)."""
        return 0.5 * self._log_det

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim."""
        return self._prior_variance.max()

    # ---------------------------------------------------------------- telling

    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior."""
        rows = self._rows_with(X)
        points, counts = self._log.points_with(X)
        variance = self._variance[rows].clamp_min(0.0)
        return PlayedPoints(points, self.kernel, self.regularization, counts, variance / self.regularization)

    def update(self, X: Tensor, Y: Tensor, selection: Selection) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the selected dictionary; everything or nothing."""
        played_rows = self._rows_with(X)
        if selection.indices is None:
            dictionary_rows = self._rows_of(selection.points)
        else:
            dictionary_rows = played_rows[selection.indices]
        added = self._added(dictionary_rows)
        if added is not None and self._is_cheap(len(added), len(X)):
            positions, _ = self._log.locate(X)
            self._extend(added, played_rows[positions], Y)
        else:
            self._replace(dictionary_rows, played_rows, X, Y)
        self._log.add(X, Y)
        self._played_rows = played_rows
        self._num_observations += len(X)

    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        """Condition the empty table on a whole history at a known dictionary."""
        self.update(X, Y, Selection(inducing_points, inducing_points.new_ones(len(inducing_points)), None))

    # ---------------------------------------------------------------- asking

    def maximize(self, acquisition: ConfidenceAcquisition, beta: Tensor, q: int, seed: int) -> Tensor:
        """Return the q arms (q, d) of the highest scores, each hallucinated before the next is sought.

        Scores that differ by rounding only are ties, broken by an order of the arms that is drawn once from the
        bandit's seed; so equal posteriors choose equal arms however they were computed.
        """
        # A shallow copy is enough: growing and observing replace tensors and write to unused features only.
        ahead = copy(self)
        chosen: list[int] = []
        for _ in range(q):
            if chosen:
                ahead._hallucinate(chosen[-1])
            chosen.append(int(self._argmax(acquisition.score(self.mean, ahead.variance, beta), beta)))
        arms = self._points[chosen]
        self._last_asked = {arm.cpu().numpy().tobytes(): row for arm, row in zip(arms, chosen, strict=True)}
        return arms

    def _argmax(self, scores: Tensor, beta: Tensor) -> Tensor:
        """Return the row of the best score; ties are scores within rounding, on the scale of the prior's band."""
        best = scores.max()
        scale = torch.maximum(best.abs(), beta * self._prior_variance.max().sqrt())
        tolerance = torch.finfo(scores.dtype).eps ** (2 / 3) * scale
        return torch.where(scores >= best - tolerance, self._tie_rank, -1.0).argmax()

    def _hallucinate(self, row: int) -> None:
        """Condition on the posterior mean at an arm, with the arm added to the dictionary.

        Counts and sums stay: features that join later vanish at the arm, so they never ask for them.
        """
        rows = self._played_rows.new_tensor([row])
        self._grow(row, self._columns.block(rows, slice(None))[0])
        self._observe(row, self._mean[row])

    # ---------------------------------------------------------------- the algebra

    def _extend(self, added: Tensor, rows: Tensor, Y: Tensor) -> None:
        """Add dictionary points and rewards Y (q,) of rows (q,) by rank-one changes; everything or nothing."""
        columns = self._columns.block(added, slice(None))
        before = dict(vars(self))  # the changes replace tensors and write to unused features only
        try:
            for row, column in zip(added.tolist(), columns, strict=True):
                self._grow(row, column)
            for row, y in zip(rows.tolist(), Y, strict=True):
                self._observe(row, y)
            self._require_finite()
        except BaseException:
            vars(self).update(before)
            raise

    def _replace(self, dictionary_rows: Tensor, played_rows: Tensor, X: Tensor, Y: Tensor) -> None:
        """Embed all points at another dictionary, with rewards Y (q,) at X added; everything or nothing."""
        before = self._dictionary_rows
        _, counts = self._log.points_with(X)
        try:
            self._rebuild(dictionary_rows, played_rows, counts, self._log.sums_with(X, Y))
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
        self._dictionary_rows = dictionary_rows
        self._num_features = m
        self._precision_inverse = torch.cholesky_inverse(factors.precision_factor)
        self._log_det = 2.0 * factors.information_gain()
        self._changes = 0

    def _grow(self, row: int, column: Tensor) -> None:
        """Add a dictionary point, given its kernel column (N,), on the data so far. Cost: O(N m + u m)."""
        self._changes += 1
        self._dictionary_rows = torch.cat([self._dictionary_rows, self._dictionary_rows.new_tensor([row])])
        m = self._num_features
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

    def _observe(self, row: int, y: Tensor) -> None:
        """Condition on one reward at an unchanged dictionary. Cost: O(N m)."""
        self._changes += 1
        features = self._embedding[: self._num_features]
        own = features[:, row]
        solved = self._precision_inverse @ own
        projected = own @ solved  # the DTC variance at the arm without the residual k − zᵀz
        total = self.regularization + projected
        covariance = solved @ features
        self._mean = self._mean + covariance * ((y - self._mean[row]) / total)
        self._variance = self._variance - covariance.square() / total
        self._precision_inverse = self._precision_inverse - torch.outer(solved, solved) / total
        self._log_det = self._log_det + torch.log1p(projected / self.regularization)

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

    def _rows_with(self, X: Tensor) -> Tensor:
        """Return the rows of the unique played points as they will be once X (q, d) is told."""
        _, fresh = self._log.locate(X)
        return torch.cat([self._played_rows, self._rows_of(X[fresh])])

    def _rows_of(self, points: Tensor) -> Tensor:
        """Return the row of each point (k, d); points that are not in the table are appended to it."""
        rows = [self._find(point) for point in points]
        unknown = [index for index, row in enumerate(rows) if row is None]
        if unknown:
            for row, index in enumerate(unknown, start=len(self._points)):
                rows[index] = row
            self._append(points[unknown])
        return torch.tensor(rows, dtype=torch.long, device=points.device)

    def _append(self, points: Tensor) -> None:
        """Append points (k, d) that are no arms; everything or nothing."""
        old = dict(vars(self))
        try:
            self._points = torch.cat([self._points, points])
            self._columns = self._columns.extended(self._points)
            self._prior_variance = self._columns.diagonal()
            self._embedding = self._points.new_empty(0, len(self._points))
            self._rebuild(self._dictionary_rows, self._played_rows, self._log.counts, self._log.sums)
        except BaseException:
            vars(self).update(old)
            raise

    def _find(self, point: Tensor) -> int | None:
        """Return the first row that equals the point, if there is one. Cost: O(N d) unless it was just asked."""
        row = self._last_asked.get(point.cpu().numpy().tobytes())
        if row is None:
            matches = (self._points == point).all(-1).nonzero()
            row = int(matches[0]) if len(matches) else None
        return row


def digest(values: Tensor) -> str:
    """Return a short fingerprint of the exact bytes of a tensor."""
    return hashlib.sha256(values.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]
