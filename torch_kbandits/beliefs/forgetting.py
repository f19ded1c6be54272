"""A table over arms that forgets: which observations count at a time, and the table of those alone."""

from copy import copy
from dataclasses import replace
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor

from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample, PlayedPoints, Selection
from torch_kbandits.memory import KeepAll, Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.appended import appended
from torch_kbandits.numerics.rows import RowIndex, row_keys
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import Plays


class _Counted(NamedTuple):
    """The observations that count, in the order told.

    Attributes:
        X: points (n, d).
        Y: rewards (n,).
        times: when each was made, (n,).
        places: where its point stands among the unique played ones, (n,).
    """

    X: Tensor
    Y: Tensor
    times: Tensor
    places: Tensor

    def rows(self, which: Tensor) -> "_Counted":
        """Return some of them, (n,) bool."""
        return _Counted(*(part[which] for part in self))

    def plays(self) -> Plays:
        """Return how often each point was played, in the order of first plays. Cost: O(n)."""
        size = int(self.places.max()) + 1 if len(self.places) else 0
        numbers = torch.arange(len(self.places), device=self.places.device)
        first = numbers.new_full((size,), len(numbers)).scatter_reduce(0, self.places, numbers, "amin")
        order = first.argsort()[: int((first < len(numbers)).sum())]
        counts = torch.bincount(self.places, minlength=size).to(self.times)
        sums = torch.zeros_like(counts).index_add(0, self.places, self.Y.to(counts))
        return Plays(order, counts[order], sums[order])


class ForgettingTable(Belief):
    """A table over arms for a memory under which observations keep their noise while they count.

    What no longer counts is taken back from the table as it was told to it, by changes of low rank. A dictionary stays
    as it is until the next reward, whatever is forgotten.

    Args:
        table: before any observation; taken over.
        memory: which observations count at a time; None where all do for ever.
        online: whether the dictionary rule decides about each point once, when it is told.

    Cost of a round: that of the table, and one more change of rank one.
    """

    def __init__(self, table: FeatureTable, memory: Memory | None, *, online: bool = False) -> None:
        example = table.no_points
        super().__init__(example, table.kernel, float(table.regularization), exact=table.exact)
        self.tie_rank = table.tie_rank
        self._table, self._memory, self._online = table, KeepAll() if memory is None else memory, online
        self._now = -torch.inf
        nothing = example.new_zeros(0, dtype=torch.float64)
        self._counted = _Counted(example[:0], example.new_zeros(0), nothing, nothing.long())
        self._numbers = RowIndex.of({})
        self._dictionary = Selection(example[:0], example.new_ones(0), None)
        self._sample: OnlineSample | None = None

    # ---------------------------------------------------------------- what is known

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return len(self._counted.X)

    @property
    def table(self) -> FeatureTable:
        """The table of what counts."""
        return self._table

    @property
    def observations(self) -> tuple[Tensor, Tensor]:
        """The points (n, d) and the rewards (n,) that count, in the order told."""
        return self._counted.X, self._counted.Y

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points that count if the posterior is exact."""
        return self._table.inducing_points if self.exact else self._dictionary.points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._dictionary.weights

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s) over what counts, 0-dim. Cost: O(u)."""
        return self._table.effective_dimension()

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._table.information_gain()

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim."""
        return self._table.kernel_bound()

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean, 0-dim. Cost: O(m)."""
        return self._table.mean_norm()

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean, of those that count."""
        return self._table.recommend()

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        return self._table.moments(X)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> Lookahead:
        """Return the table with points (k, d) pending."""
        return self._table.lookahead(pending)

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        return self.model(self._counted.X, self._counted.Y, self.inducing_points)

    # ---------------------------------------------------------------- forgetting

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one; this one stays as it is."""
        if now == self._now or isinstance(self._memory, KeepAll):
            return self
        other = copy(self)
        other._now = now
        other._keep(self._counts(self._counted.times, now))
        return other

    def _counts(self, times: Tensor, now: float) -> Tensor:
        """Return whether observations of these times (n,) count, (n,)."""
        return self._memory.noise(times, now, self.regularization.double()).isfinite()

    def _keep(self, counts: Tensor) -> None:
        """Forget all observations but those that count, (n,) bool."""
        if bool(counts.all()):
            return
        kept = self._counted.rows(counts)
        left, gone = kept.plays(), self._counted.rows(~counts).plays()
        moved = torch.empty_like(self._counted.places)
        moved[left.places] = torch.arange(len(left.places), device=moved.device)
        self._table, self._counted = self._table.forgotten(left, gone), kept._replace(places=moved[kept.places])

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more rewards, made now if they have no times."""
        other, times = copy(self), self._times_of(told)
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        if isinstance(self._memory, KeepAll):
            other._learn(told.X, told.Y, times, rule, generator)
            return other
        counts = self._counts(torch.cat([self._counted.times, times]), self._now)
        before, new = counts.tensor_split([len(self._counted.X)])
        other._keep(before)
        if bool(new.any()):
            other._learn(told.X[new], told.Y[new], times[new], rule, generator)
        return other

    def _times_of(self, told: History) -> Tensor:
        return told.Y.new_full((len(told.Y),), self._now, dtype=torch.float64) if told.times is None else told.times

    def _learn(
        self, X: Tensor, Y: Tensor, times: Tensor, rule: DictionaryRule | None, generator: torch.Generator | None
    ) -> None:
        table, selection = self._table.with_points(X), None
        if rule is not None and self._online:
            self._sample = self._offered(table, X, cast(OnlineRule, rule), generator)
            points = self._sample.points
            selection = Selection(points, points.new_ones(len(points)), None, self._sample.weights)
        elif rule is not None:
            selection = rule.select(self._preview(table, X), generator)
        self._condition(table, X, Y, times, selection)

    def _offered(
        self, table: FeatureTable, X: Tensor, rule: OnlineRule, generator: torch.Generator | None
    ) -> OnlineSample:
        """Return the dictionary once points (q, d) were offered to it; forgetting takes nothing out of it."""
        sample = self._sample
        if sample is None:
            Z, weights = self._dictionary.points, self._dictionary.weights
            weights = Z.new_ones(len(Z), dtype=torch.float64) if weights is None else weights
            sample = rule.online_sample(self.kernel, float(self.regularization), Z, weights)
        uniforms = torch.rand(len(X), generator=generator, dtype=torch.float64, device="cpu")
        return rule.offered(sample, X, uniforms, *table.known_values(sample.points, X)).sample

    def _preview(self, table: FeatureTable, X: Tensor) -> PlayedPoints:
        """Return the unique played points that count together with X (q, d), scored by the current posterior."""
        played = table.preview(X)
        numbers = self._numbers.places(played.points) if len(self._numbers) else None
        if self._dictionary.weights is None:
            return replace(played, numbers=numbers)
        known = dict(zip(row_keys(self._dictionary.points), self._dictionary.weights.tolist(), strict=True))
        weights = self._dictionary.weights.new_tensor([known.get(key, 0.0) for key in row_keys(played.points)])
        return replace(played, numbers=numbers, weights=weights)

    def _condition(self, table: FeatureTable, X: Tensor, Y: Tensor, times: Tensor, selection: Selection | None) -> None:
        """Take over a table once it learned rewards Y (q,) at X (q, d), made at times (q,)."""
        if selection is not None:
            self._dictionary = selection
        # The table keeps what a rule wants handed back with played points, and these may be gone.
        self._table = table.updated(X, Y, None if selection is None else selection._replace(weights=None))
        more = _Counted(X, Y, times, self._table.places_of(X))
        self._counted = _Counted(*(appended(*pair) for pair in zip(self._counted, more, strict=True)))

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned, at the present time, on what counts of a history."""
        other, times = copy(self), self._times_of(told)
        counts = self._counts(times, self._now)
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        selection = None if self.exact else dictionary
        other._condition(self._table, told.X[counts], told.Y[counts], times[counts], selection)
        return other
