"""The belief of what counts at a time, under a memory, and how much: the table of that alone."""

from dataclasses import replace
from typing import Self, cast

import torch
from torch import Tensor

from torch_kbandits.beliefs.base import BeliefOf, Lookahead
from torch_kbandits.beliefs.covariances import CovarianceTable, Gaussian
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.joint import JointPosterior, Place
from torch_kbandits.beliefs.joint_lookahead import JointLookahead
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample, PlayedPoints, Selection
from torch_kbandits.memory import KeepAll, Memory
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.places import beside, on_host
from torch_kbandits.numerics.rows import RowIndex, distinct_in_order, row_keys
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.observations.counted import Counted
from torch_kbandits.observations.experts import Answers
from torch_kbandits.observations.ledger import History
from torch_kbandits.posteriors.online_dtc import OnlineDTC

#: Answers of an expert have at least this share of λ as their noise variance: without any, numbers lose all digits.
_LEAST_VARIANCE = 1e-6

#: Points that no longer count leave the dictionary once they are more than one in so many of it.
_PATIENCE = 8

#: When observations were made, (q,), how many fresh ones each counts for, (q,), and how many came before each, (q,).
_Counting = tuple[Tensor, Tensor, Tensor]


class CountedBelief(BeliefOf):
    """The posterior of what counts under a memory, by a table over arms, or without arms at points of any kind.

    What no longer counts is taken back from the table as it was told to it, by changes of low rank. Where observations
    age, all weights change with the time, and the table is computed afresh from its features: no kernel is evaluated. A
    dictionary stays as it is until the next reward, whatever is forgotten.

    An exact posterior has all played points in the dictionary but for those that the others span to rounding; where
    points nearly coincide, means may be off by about 1e-7 of the rewards for that, times the prior deviation over that
    of the noise.

    Args:
        table: before any observation; taken over.
        memory: which observations count at a time, and with what noise; None where all do for ever.
        online: whether the dictionary rule decides about each point once, when it is told.
        place: what is known of points that are no arms, if the table has none.

    Cost of a round: that of the table, and one more change of rank one; see ``FeatureTable.reweighted`` where
    observations age. Without arms: O(m² + u m) for u distinct points, and as much for each point that joins or leaves;
    O((u + m) m k) where k features that are nearly spanned are to stand behind a point that joins.
    """

    has_course = True

    def __init__(
        self, table: TableBelief, memory: Memory | None, *, online: bool = False, place: Place | None = None
    ) -> None:
        example = table.no_points
        words = {"exact": table.exact, "mean": table.prior_mean}
        super().__init__(example, table.kernel, float(table.regularization), **words)
        self._table, self._memory, self._online = table, KeepAll() if memory is None else memory, online
        self.branches, self._now = table.branches, -torch.inf
        self._counted, self._num_told = Counted.none(example, table.books), 0
        self._numbers = RowIndex.of({})
        self._dictionary = Selection(example[:0], example.new_ones(0), None)
        self._sample: OnlineSample | None = None
        self._place = place
        self._joint: JointPosterior | None = None  # of a table that may be an older one

    # ---------------------------------------------------------------- what is known

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return len(self._counted)

    @property
    def posterior(self) -> TableBelief:
        """The table of what counts."""
        return self._table

    @property
    def forgets(self) -> bool:
        """Whether what counts changes with the time, or how much."""
        return not isinstance(self._memory, KeepAll)

    @property
    def counted(self) -> Counted:
        """The observations that count, in the order told."""
        return self._counted

    @property
    def observations(self) -> tuple[Tensor, Tensor]:
        """The points (n, d) and the rewards (n,) that count, in the order told."""
        X = self._counted.X
        return X, beside(self._counted.Y, X)

    @property
    def noise(self) -> Tensor | None:
        """Noise variances (n,) of the observations that count, None if that of each is λ and stays it."""
        weights = self._counted.weights
        if self._memory.keeps_noise and bool((weights == 1.0).all()):
            return None
        return beside((self._level / weights).to(self._counted.Y), self._counted.X)

    @property
    def _level(self) -> Tensor:
        """λ in double precision, 0-dim."""
        return on_host(self.regularization).double()

    @property
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d): all played points that count if the posterior is exact."""
        return self._table.inducing_points if self.exact else self._dictionary.points

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        return self._dictionary.weights

    @property
    def latest(self) -> Tensor:
        """The point learned last, (1, d); none before any."""
        return self._counted.X[-1:]

    @property
    def memory(self) -> Memory:
        """Which observations count at a time, and with what noise."""
        return self._memory

    @property
    def now(self) -> float:
        """The present time."""
        return self._now

    @property
    def num_told(self) -> int:
        """How many rewards with times were ever told."""
        return self._num_told

    @property
    def sample(self) -> OnlineSample | None:
        """The dictionary in the form in which points are offered to it; None before any was, or without such a rule."""
        return self._sample

    @property
    def joint(self) -> JointPosterior:
        """The posterior at points that are no arms."""
        if self._joint is None or self._joint.table is not self._table:
            self._joint = None
            # Of a copy: what holds itself goes only when Python looks for it, which in long runs it rarely does.
            self._joint = JointPosterior(shallow_copy(self), cast(FeatureTable, self._table), self._place or Place())
        return self._joint

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        if self._place is None:
            return self._table.moments(X)
        at = self.joint.embed(X)
        return self.joint.mean_at(at).to(X), self.joint.variance_at(at).to(X)

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> Lookahead:
        """Return the posterior with points (k, d) pending."""
        return self._table.lookahead(pending) if self._place is None else JointLookahead(self.joint, pending)

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of what counts as a BoTorch model of its own."""
        return self.model(*self.observations, self.inducing_points, self.noise)

    # ---------------------------------------------------------------- forgetting

    def at(self, now: float) -> Self:
        """Return the belief at a time, which is not before the present one; this one stays as it is."""
        if now == self._now or isinstance(self._memory, KeepAll):
            return self
        other = shallow_copy(self)
        other._now = now
        other._weigh(self._weights(self._counted.times, now))
        return other

    def _weights(self, times: Tensor, now: float) -> Tensor:
        """Return how many fresh observations those of these times (n,) count for, (n,)."""
        level = self._level
        return level / self._memory.noise(times, now, level)

    def _weigh(self, weights: Tensor) -> None:
        """Give the observations other weights (n,), and forget those that have none."""
        if torch.equal(weights, self._counted.weights):
            return
        self._counted, left, gone, is_same = self._counted.weighed(weights)
        self._table = self._table.forgotten(left, gone) if is_same else self._table.reweighted(left)

    # ---------------------------------------------------------------- learning

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the belief conditioned on more rewards, made now if they have no times."""
        other = shallow_copy(self)
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        if isinstance(self._memory, KeepAll):
            other._learn(told.X, told.Y, None, rule, generator)
            return other
        times = self._times_of(told)
        weights = self._weights(torch.cat([self._counted.times, times]), self._now)
        before, new = weights.tensor_split([len(self._counted)])
        other._weigh(before)
        counts = new > 0.0
        if bool(counts.all()):
            other._learn(told.X, told.Y, (times, new, other._numbered(counts)), rule, generator)
            return other
        counting = times[counts], new[counts], other._numbered(counts)
        if bool(counts.any()):
            rows = beside(counts.nonzero().squeeze(-1), told.X)
            other._learn(told.X[rows], told.Y[rows], counting, rule, generator)
        return other

    def _numbered(self, counts: Tensor) -> Tensor:
        """Note that more was told (q,), bool whether it counts, and return the numbers (k,) of what does."""
        numbers = torch.arange(self._num_told, self._num_told + len(counts), device=counts.device)
        self._num_told += len(counts)
        return numbers[counts]

    def _times_of(self, told: History) -> Tensor:
        times = self._counted.times
        return times.new_full((len(told.Y),), self._now) if told.times is None else beside(told.times, times)

    def _learn(
        self,
        X: Tensor,
        Y: Tensor,
        counting: _Counting | None,
        rule: DictionaryRule | None,
        generator: torch.Generator | None,
    ) -> None:
        """Condition on rewards Y (q,) at X (q, d), and say since when and how much they count; None: always in full."""
        selection = None
        if rule is not None and self._online:
            before, self._sample = self._sample, self._offered(X, cast(OnlineRule, rule), generator)
            points, selection = self._sample.points, self._dictionary
            if self._sample is not before:
                selection = Selection(points, points.new_ones(len(points)), None, self._sample.weights)
        table = self._table.with_points(X)
        if rule is not None and not self._online:
            selection = rule.select(self._preview(table, X, counting), generator)
        self._condition(table, X, Y, counting, selection)

    def _offered(self, X: Tensor, rule: OnlineRule, generator: torch.Generator | None) -> OnlineSample:
        """Return the dictionary once points (q, d) were offered to it."""
        sample = self._sample
        if sample is None:
            Z, weights = self._dictionary.points, self._dictionary.weights
            weights = Z.new_ones(len(Z), dtype=torch.float64) if weights is None else weights
            sample = rule.online_sample(self.kernel, float(self.regularization), Z, weights)
        if not isinstance(self._memory, KeepAll):
            counting = self._table.is_played(sample.points)
            if int((~counting).sum()) > sample.size // _PATIENCE:
                sample = self._pruned(sample, counting, rule, generator)
        uniforms = torch.rand(X.shape[0], generator=generator, dtype=torch.float64, device="cpu")
        return rule.offered(sample, X, uniforms, *cast(FeatureTable, self._table).known_values(sample.points, X))

    def _pruned(
        self, sample: OnlineSample, kept: Tensor, rule: OnlineRule, generator: torch.Generator | None
    ) -> OnlineSample:
        """Return the dictionary with those points (m,) bool that are kept; what counts is offered again for the others.

        A point that was not taken with probability p̃ when all were there, and would be with p̃' now, is taken with
        (p̃' − p̃)/(1 − p̃): so it was kept from joining as little as if those that left had never been there.
        """
        counting = self._table.played
        chances = sample.chances(counting)
        uniforms = torch.rand(len(counting), generator=generator, dtype=torch.float64, device="cpu").to(chances.device)
        left = sample.keeping(kept.nonzero().squeeze(-1))
        return rule.offered(left, counting, chances + (1.0 - chances) * uniforms, None, None)

    def _preview(self, table: TableBelief, X: Tensor, counting: _Counting | None) -> PlayedPoints:
        """Return the unique played points that count, with X (q, d), by the current posterior."""
        played = table.preview(X)
        played = replace(played, numbers=self._numbers.places(played.points) if len(self._numbers) else None)
        if counting is not None and bool((counting[1] != 1.0).any()):
            missing = (1.0 - counting[1]).to(played.counts)
            less = torch.zeros_like(played.counts).index_add(0, table.places_of(X), missing)
            played = replace(played, counts=played.counts - less, new_counts=cast(Tensor, played.new_counts) - less)
        if self._dictionary.weights is None:
            return played
        known = dict(zip(row_keys(self._dictionary.points), self._dictionary.weights.tolist(), strict=True))
        handed_back = self._dictionary.weights.new_tensor([known.get(key, 0.0) for key in row_keys(played.points)])
        return replace(played, weights=handed_back)

    def _condition(
        self,
        table: TableBelief,
        X: Tensor,
        Y: Tensor,
        counting: _Counting | None,
        selection: Selection | None,
    ) -> None:
        """Take over a table once it learned rewards, as ``_learn`` says."""
        if selection is not None:
            self._dictionary = selection
        # The table keeps what a rule wants handed back with played points, and these may be gone.
        self._table = table.updated(X, Y, None if selection is None else selection._replace(weights=None))
        if counting is None:
            self._counted = self._counted.followed(X, beside(Y, self._counted.Y))
            return
        times, weights, numbers = counting
        places = beside(self._table.places_of(X), weights)
        self._counted = self._counted.followed(X, beside(Y, weights), times, weights, places, numbers)
        if not bool((weights == 1.0).all()):
            self._table = self._table.reweighted(self._counted.plays())

    def advised(self, answers: Answers) -> Self:
        """Return the belief conditioned on an expert's answers as well, which are made now; this one stays as it is.

        The points asked about join the dictionary. To choose by in this round: the next reward is told to this belief.
        """
        if len(answers.X) == 0:
            return self
        other, level, number = shallow_copy(self), self._level, len(self._counted)
        if len(self._counted.weights) < number:
            other._counted = self._counted.in_full(beside(self._table.places_of(self._counted.X), self._counted.Y))
        variance = beside(answers.variance, self._counted.Y).double()
        weights = level / variance.clamp_min(_LEAST_VARIANCE * level)
        selection, table = None, self._table.with_points(answers.X)
        if not self.exact:
            points, _ = distinct_in_order(torch.cat([self._dictionary.points, answers.X]))
            selection = Selection(points, points.new_ones(len(points)), None)
        counting = torch.full_like(weights, self._now), weights, torch.full_like(weights, number, dtype=torch.long)
        other._condition(table, answers.X, answers.Y, counting, selection)
        # What is learned last stays last, since searches start from it.
        last = torch.arange(len(other._counted), device=weights.device).roll(-number)
        other._counted = other._counted.rows(last)
        return other

    def followed(self, X: Tensor, Y: Tensor, dtc: OnlineDTC, features: Tensor, prior: Tensor) -> Self:
        """Return the belief after rewards Y (q,) of joint points X (q, d) that the dictionary refused, one by one.

        Other arguments as for ``FeatureTable.followed``.
        """
        other = shallow_copy(self)
        other._table = cast(FeatureTable, self._table).followed(X, Y, self._dictionary, dtc, features, prior)
        other._counted = self._counted.followed(X, beside(Y, self._counted.Y))
        return other

    def windowed(
        self, told: Tensor, counting: tuple[Tensor, Tensor, Tensor], numbers: Tensor, believed: Gaussian, now: float
    ) -> Self:
        """Return the belief at a time, after rewards of arms were told one by one, of which the latest count.

        Args:
            told: the arms, (q, d).
            counting: points (n, d), rewards (n,) and times (n,) of what counts.
            numbers: how many were told before each of these, (n,).
            believed: of the arms of the table, which are few.
            now: the time.
        """
        (X, Y, times), other = counting, shallow_copy(self)
        other._table = cast(CovarianceTable, self._table).windowed(X, Y, believed)
        other._counted = Counted(X, Y, times, torch.ones_like(Y), other._table.places_of(X), numbers)
        other._numbers, other._num_told = self._numbers.with_rows(told), self._num_told + told.shape[0]
        other._now = now
        return other

    def restored(self, told: History, dictionary: Selection) -> Self:
        """Return the empty belief conditioned, at the present time, on what counts of a history."""
        other, times = shallow_copy(self), self._times_of(told)
        weights = self._weights(times, self._now)
        counts = weights > 0.0
        if told.times is not None:
            other._numbers = self._numbers.with_rows(told.X)
        selection = None if self.exact else dictionary
        counting, rows = (times[counts], weights[counts], other._numbered(counts)), counts.nonzero().squeeze(-1)
        rows = beside(rows, told.X)
        other._condition(self._table, told.X[rows], told.Y[rows], counting, selection)
        return other
