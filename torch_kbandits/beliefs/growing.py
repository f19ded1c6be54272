"""The posterior over joint points under a dictionary that only grows: no round looks at the whole history."""

from collections.abc import Iterator
from copy import copy
from typing import Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.beliefs.base import Belief, require_finite
from torch_kbandits.beliefs.box_search import BoxSearch
from torch_kbandits.beliefs.embedded import Embedded
from torch_kbandits.beliefs.joint_lookahead import JointLookahead
from torch_kbandits.beliefs.played_rows import PlayedRows
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample, PlayedPoints, Selection
from torch_kbandits.dictionaries.greedy import greedy_pivots
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import bordered, jittered_cholesky, non_negative_variance
from torch_kbandits.observations.ledger import History
from torch_kbandits.posteriors.dtc import DTCFactors
from torch_kbandits.posteriors.online_dtc import OnlineDTC
from torch_kbandits.tables.growth import SPAN_TOLERANCE, spanning_factor

#: After so many rewards the inverse is computed afresh from the precision, which clears what rounding left in it.
REFRESH = 512

#: More rewards at once than this, and than coordinates, are not followed one by one: that would take their Gram matrix.
_FEW = 32

#: Rows whose coordinates are computed at a time where they are not kept.
_BLOCK = 4096


class GrowingBelief(Belief):
    """The Nyström–DTC posterior of rewards at joint points, under an online dictionary rule.

    Every reward is a rank-one change, and a new dictionary point a bordered one that needs one pass over the history.
    Factors and precision are kept, not their inverses alone; the inverse is computed afresh every ``REFRESH`` rewards.

    Source: Zenati et al., AISTATS 2022, §4.3 and App. E.2. Differs: they update Λ = L⁻ᵀV⁻¹L⁻¹ and K_ZZ⁻¹ themselves, in
    which rounding builds up; and a point that the dictionary spans already to rounding brings no coordinate.

    Cost of a reward: O(m²), and O(n m) when a point joins; memory O(n m), O(n d + m²) beyond ``row_memory``, where a
    point that joins costs O(n m²).
    """

    def __init__(
        self, example: Tensor, kernel: Kernel, regularization: float, row_memory: int, search: BoxSearch | None = None
    ) -> None:
        super().__init__(example, kernel, regularization, exact=False)
        self._search = search
        self._noise = float(regularization)
        self._row_memory = row_memory
        self._rows = PlayedRows.empty(example, 0, features=row_memory > 0)
        self._dtc = OnlineDTC.empty(example)
        self._factor = self._dtc.precision_base
        self._spanning = example[:0]
        self._is_in_order = True  # the spanning points are those of the dictionary, in its order
        self._sample: OnlineSample | None = None
        self._dictionary, self._weights = example[:0], self._dtc.moment
        self._since_refresh = 0
        self._recent: Embedded | None = None
        self._built: NystromGP | None = None
        with torch.no_grad():
            self._kernel_bound = prior_variance(self.kernel, example).max()
        self._prior_sum = self._dtc.log_det

    # ---------------------------------------------------------------- what is known

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return self._rows.number

    @property
    def latest(self) -> Tensor:
        """The point learned last, (1, d); none before any."""
        return self._rows.points[-1:]

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d), in the order of joining."""
        return self._dictionary if self._sample is None else self._sample.points

    @property
    def dictionary_weights(self) -> Tensor:
        """What the rule remembers of each point of the dictionary, (m,)."""
        return self._weights if self._sample is None else self._sample.weights

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim. Cost: O(m)."""
        trace, inverse_trace = self._dtc.traces()
        captured = self._noise * (trace - self._dtc.size)
        outside = (self._prior_sum - captured).clamp_min(0.0) / self._noise
        return (outside + self._dtc.size - inverse_trace).to(self.regularization)

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return (0.5 * self._dtc.log_det).to(self.regularization)

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of a played point, 0-dim; for stationary kernels that of all points."""
        return self._kernel_bound

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim."""
        return self._dtc.weights.norm().to(self.regularization)

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean. Cost: O(n m)."""
        means = torch.cat([block @ self._dtc.weights for block in self._coordinate_blocks()])
        return self._rows.points[means.argmax(), None].clone()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,). Cost: O(q m d + q m²)."""
        with torch.no_grad():
            at = self.embed(X)
            return self.mean_at(at).to(X), self.variance_at(at).to(X)

    # ---------------------------------------------------------------- the posterior at points

    def embed(self, X: Tensor) -> Embedded:
        """Return points (k, d) as the posterior sees them. Cost: O(k m d + k m²)."""
        prior = prior_variance(self.kernel, X).double()
        if self._dtc.size == 0:
            nothing = prior.new_zeros(0, len(X))
            return Embedded(X, nothing, prior, nothing)
        values = gram(self.kernel, self._spanning, X).double()
        return Embedded(X, torch.linalg.solve_triangular(self._factor, values, upper=False), prior, values)

    def mean_at(self, at: Embedded) -> Tensor:
        """Return posterior means, (k,)."""
        return self._dtc.weights @ at.coordinates

    def variance_at(self, at: Embedded) -> Tensor:
        """Return posterior variances, (k,)."""
        variance = self._dtc.quick_variance(at.prior_variance, at.coordinates)
        return non_negative_variance(variance.to(at.points), at.prior_variance.to(at.points)).double()

    def covariance_at(self, left: Embedded, right: Embedded) -> Tensor:
        """Return posterior covariances, (k, l)."""
        prior = gram(self.kernel, left.points, right.points).double()
        spanned = left.coordinates.mT @ right.coordinates
        return prior - spanned + self._dtc.inverse_product(left.coordinates, right.coordinates)

    def hallucinated(self, points: Tensor) -> Self:
        """Return the posterior with points (k, d) observed, which join the dictionary; this one stays as it is.

        To read variances from: its mean is another. One posterior that looks ahead at a time, since it writes to rows
        that this one does not use yet. Cost: O(n m) for each point that the dictionary does not span.
        """
        ahead = copy(self)
        with torch.no_grad():
            ahead._sample, ahead._dictionary = None, torch.cat([self.inducing_points, points])
            ahead._recent = ahead._built = None
            at = self.embed(points)
            ahead._join(points, at.coordinates, at.prior_variance)
            coordinates, nothing = ahead.embed(points).coordinates, torch.zeros_like(at.prior_variance)
            ahead._dtc, _ = ahead._dtc.observed(coordinates, nothing + 1.0 / self._noise, nothing)
            ahead._rows = ahead._rows.extended(points, nothing, coordinates.mT)
        return ahead

    def remember(self, at: Embedded) -> None:
        """Keep a point (1, d) that was chosen, so that it need not be embedded again when it is told."""
        self._recent = at

    @property
    def posterior_model(self) -> NystromGP:
        """The posterior as a BoTorch model, whose factors are taken from here. Cost: O(m³) after a reward."""
        if self._built is None:
            parts = (self._factor, self._dtc.precision_factor, self._dtc.weights)
            factors = DTCFactors(*(part.to(self.regularization) for part in parts))
            X, Y = self._rows.points, self._rows.rewards.to(self.regularization)
            self._built = cast(NystromGP, self.model(X, Y, self._spanning, None, factors))
        return self._built

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> JointLookahead:
        """Return the posterior with points (k, d) pending."""
        return JointLookahead(self, pending, self._search)

    def at(self, now: float) -> Self:
        """Return this belief: what it learned counts at any time."""
        return self

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.model(told.X, told.Y, self.inducing_points)

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more rewards, whose points were offered to the dictionary."""
        other = copy(self)
        uniforms = torch.rand(len(told.X), generator=generator, dtype=torch.float64, device="cpu")
        with torch.no_grad():
            other._learn(told.X, told.Y.double(), cast(OnlineRule, rule), uniforms)
        return other

    def _learn(self, X: Tensor, Y: Tensor, rule: OnlineRule, uniforms: Tensor) -> None:
        sample = self._sample
        if sample is None:
            sample = rule.online_sample(self.kernel, self._noise, self._dictionary, self._weights)
        recent = self._recent
        at = recent if recent is not None and torch.equal(recent.points, X) else self.embed(X)
        self._recent = self._built = None
        known = at.values if self._is_in_order else None
        offer = rule.offered(sample, X, uniforms, known, at.prior_variance)
        weights = torch.full_like(Y, 1.0 / self._noise)
        if len(X) > max(self._dtc.size, _FEW):
            self._dtc = self._dtc.with_observations(at.coordinates, weights, Y * weights).refreshed()
        else:
            self._dtc, _ = self._dtc.observed(at.coordinates, weights, Y * weights)
        self._rows = self._rows.extended(X, Y, at.coordinates.mT)
        self._make_room(0)
        self._sample = offer.sample
        self._count_prior(at.prior_variance)
        if offer.sample.size > sample.size:
            self._join(X[offer.joined], at.coordinates[:, offer.joined], at.prior_variance[offer.joined])
        self._since_refresh += len(X)
        if self._since_refresh >= REFRESH:
            self._dtc, self._since_refresh = self._dtc.refreshed(), 0
        require_finite(self._dtc.moment, self._dtc.weights)

    def _join(self, points: Tensor, coordinates: Tensor, prior: Tensor) -> None:
        """Let points (a, d) of known coordinates (m, a) span; those that are spanned already to rounding do not."""
        schur = gram(self.kernel, points).double() - coordinates.mT @ coordinates
        kept, corner, is_fragile = spanning_factor(schur, prior, points.dtype)
        self._make_room(len(kept))
        if is_fragile:
            self._fit(self._rows.points, self._rows.rewards, self.inducing_points)
            return
        own, points = coordinates[:, kept].mT, points[kept]
        cross = torch.zeros_like(own.mT)
        parts, start = [], 0
        for block in self._coordinate_blocks():
            rows = self._rows.points[start : start + len(block)]
            values = gram(self.kernel, points, rows).double()
            parts.append(torch.linalg.solve_triangular(corner, values - own @ block.mT, upper=False))
            cross += block.mT @ parts[-1].mT
            start += len(block)
        new = torch.cat(parts, dim=1)
        self._dtc, _ = self._dtc.grown(
            own, corner, cross / self._noise, new @ new.mT / self._noise, new @ self._rows.rewards / self._noise
        )
        self._rows = self._rows.widened(new.mT)
        self._factor = bordered(self._factor, own.mT, corner)
        self._spanning = torch.cat([self._spanning, points])

    def _make_room(self, more: int) -> None:
        """Give up keeping coordinates where more of them would exceed the memory that they may occupy."""
        rows, width = self._rows, self._dtc.size + more
        if rows.features and 8 * rows.number * width > self._row_memory:
            self._rows = rows.without_features(self._dtc.size)

    def _coordinate_blocks(self) -> Iterator[Tensor]:
        """Return the coordinates of the played points in blocks (k, m), kept or computed."""
        if self._rows.features:
            yield self._rows.coordinates
            return
        for block in self._rows.points.split(_BLOCK):
            yield self.embed(block).coordinates.mT

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned on a whole history at a known dictionary. Cost: O(n m² + m³)."""
        other = copy(self)
        with torch.no_grad():
            other._fit(told.X, told.Y.double(), dictionary.points)
            for points in told.X.split(_BLOCK):
                other._count_prior(prior_variance(self.kernel, points).double())
        require_finite(other._dtc.moment, other._dtc.weights)
        other._dictionary, weights = dictionary.points, dictionary.weights
        other._weights = other._dtc.moment.new_ones(len(other._dictionary)) if weights is None else weights
        return other

    def _fit(self, X: Tensor, Y: Tensor, dictionary: Tensor) -> None:
        """Condition on rewards Y (n,) at X (n, d) from scratch, the least explained point of the dictionary first.

        In this order, that of pivoted Cholesky, rounding is not amplified however close the points are.
        """
        played = PlayedPoints(dictionary, self.kernel, self.regularization, torch.ones_like(dictionary[:, 0]))
        order = greedy_pivots(played, len(dictionary), SPAN_TOLERANCE[dictionary.dtype])
        self._spanning = dictionary[order]
        self._is_in_order = torch.equal(order, torch.arange(len(dictionary), device=order.device))
        self._factor = factor = jittered_cholesky(gram(self.kernel, self._spanning).double())
        self._dtc = OnlineDTC.fit(factor, factor[:, :0], factor[0, :0], factor[0, :0])
        self._rows = PlayedRows.empty(X, len(order), features=8 * len(X) * len(order) <= self._row_memory)
        for points, rewards in zip(X.split(_BLOCK), Y.split(_BLOCK), strict=True):
            coordinates = self.embed(points).coordinates
            weights = torch.full_like(rewards, 1.0 / self._noise)
            self._dtc = self._dtc.with_observations(coordinates, weights, rewards * weights)
            self._rows = self._rows.extended(points, rewards, coordinates.mT)
        self._dtc, self._since_refresh = self._dtc.refreshed(), 0

    def _count_prior(self, prior: Tensor) -> None:
        """Count the prior variances (k,) of points that were told."""
        self._prior_sum = self._prior_sum + prior.sum()
        self._kernel_bound = torch.maximum(self._kernel_bound, prior.max().to(self._kernel_bound))
