"""What every table over arms has in common: which row a point is, what was played, and the choice of arms."""

from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property, partial
from itertools import groupby
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, SomeOf, rule_loops
from torch_kbandits.beliefs.base import Belief, Lookahead, padded
from torch_kbandits.candidates.sources import ArmSource, as_source
from torch_kbandits.dictionaries import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.errors import InputError
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.numerics.compiled import runs_compiled
from torch_kbandits.numerics.gram import prior_mean, prior_variance
from torch_kbandits.numerics.places import beside, known, listed, on_host, sent
from torch_kbandits.numerics.prior_draws import LowRankDraws, PriorDraws, prior_draws
from torch_kbandits.numerics.random import ROUNDING_SHARE, highest, tie_rank, tie_width
from torch_kbandits.numerics.rows import Rows, distinct, row_keys
from torch_kbandits.numerics.shallow import shallow_copy
from torch_kbandits.numerics.waves import WavePrior
from torch_kbandits.observations.ledger import History
from torch_kbandits.observations.played import Located, PlayedLog, Plays
from torch_kbandits.tables.columns import prior_means, prior_variances
from torch_kbandits.tables.points import PointList


def wave_prior(kernel: Kernel, dimension: int) -> WavePrior:
    """Return what draws of the prior are made of where they must be functions of the point (d,) alone.

    Raises:
        InputError: if there are no waves of the kernel.
    """
    try:
        return WavePrior(kernel, dimension)
    except UnsupportedError as error:
        raise InputError(
            "Thompson sampling on arms in files, blocks or shards draws a sum of random waves, one function of all "
            f"points. {error} Take RBFKernel or MaternKernel, scaled or not; or give Arms a tensor; or take "
            "UpperConfidenceRule, ExpectedImprovementRule or ProbabilityOfImprovementRule."
        ) from error


#: Returns what to add to a prior draw for a draw of f − mean at the arms, (A,) or more, given what returns the draw's
#: values (k,) at rows (k,), and all other randomness.
Correction = Callable[[Callable[[Tensor], Tensor], torch.Generator], Tensor]


class TableBelief(Belief):
    """Mean and variance of every arm, kept up to date.

    Rewards of one arm are kept as a count and a sum. Points told that are no arms take part as further rows that have
    no score.

    Args:
        arms: (A, d), or a source of them.
        kernel: the prior covariance.
        regularization: λ.
        seed: addresses the order in which ties between arms are broken.
        exact: whether the posterior is the exact one.
        mean: the prior mean; None for zero.
    """

    #: The share of the arms that was looked at for the last choice.
    visited_share: float = 1.0

    #: Whether there are arms that another table has, so that draws of the prior must be functions of the point alone.
    is_part: ClassVar[bool] = False

    #: Whether what concerns the points played alone is on the host where there are arms on a device.
    keeps_books: ClassVar[bool] = False

    #: What the dictionary rule wants handed back, (u,) over the unique played points; None if nothing.
    _rule_weights: Tensor | None = None

    #: Rows (k,) that count as observed at their posterior means, in the books; None for none.
    _hallucinated_rows: Tensor | None = None

    def __init__(
        self,
        arms: Tensor | ArmSource,
        kernel: Kernel,
        regularization: float,
        seed: int,
        *,
        exact: bool,
        mean: Mean | None = None,
    ) -> None:
        self._points = PointList(as_source(arms))
        self.no_points = self._points.block(0, 0).clone()
        super().__init__(self.no_points, kernel, regularization, exact=exact, mean=mean)
        self._num_arms = self._points.num_arms
        self._prior_variances, means = Rows(prior_variances(self.kernel, self._points)), prior_means(mean, self._points)
        self._prior_means = None if means is None else Rows(means)
        self._kernel_bound = self._prior_variance.max() if self._num_arms else self._prior_variance.sum()
        #: Device of rows and of what is kept of the points played.
        self.books = torch.device("cpu") if self.keeps_books and self._num_arms else self.no_points.device
        # Prior variances and means of all rows in the books, where these are elsewhere; else None.
        self._prior_in_books: tuple[Rows, Rows | None] | None = None
        if self.books != self.no_points.device:
            self._prior_in_books = Rows(self._prior_variance.cpu()), None if means is None else Rows(means.cpu())
            self._kernel_bound = self._kernel_bound.cpu()
        self._log = PlayedLog(self.no_points, self.books)
        self._rows_played = Rows(torch.zeros(0, dtype=torch.long, device=self.books))
        self._dictionary_rows = self._played_rows
        self._last_located: tuple[Tensor, Located, Rows] | None = None
        self._known_held = (self._played_rows, self._dictionary_rows, self._played_rows.bool())
        self._num_observations = 0
        self._rule_memory: dict[Any, Any] = {}  # what a dictionary rule keeps to be faster, shared by later tables
        self._known_prior: tuple[Tensor, Tensor] | None = None  # of points evaluated last
        self._prior_draws: PriorDraws | None = None
        self.tie_rank: Tensor = tie_rank(self._num_arms, seed).to(self.no_points.device)

    # ---------------------------------------------------------------- what is known

    @property
    def _prior_variance(self) -> Tensor:
        """Prior variances of all rows, (N,)."""
        return self._prior_variances.tensor

    @property
    def _expected(self) -> Tensor | None:
        """Prior means of all rows, (N,); None where they are zero."""
        return None if self._prior_means is None else self._prior_means.tensor

    @property
    def _played_rows(self) -> Tensor:
        """The rows of the unique played points, (u,)."""
        return self._rows_played.tensor

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""

    @property
    @abstractmethod
    def _played_mean(self) -> Tensor:
        """Posterior means of the unique played points, (u,), in the books."""

    @property
    @abstractmethod
    def _played_variance(self) -> Tensor:
        """Posterior variances of the unique played points, (u,), in the books; rounding may have made them negative."""

    @abstractmethod
    def _variance_at(self, rows: Tensor) -> Tensor:
        """Return the posterior variances of a few rows (k,), (k,), in the books; some < 0 by rounding."""

    def _learned_variance_at(self, rows: Tensor) -> Tensor:
        """Return the same with what a full dictionary does not span learned, see ``learned_residual``, (k,), >= 0."""
        return self._variance_at(rows).clamp_min(0.0)

    @abstractmethod
    def _mean_at(self, rows: Tensor) -> Tensor:
        """Return the posterior means of a few rows (k,), (k,), in the books."""

    @property
    def num_observations(self) -> int:
        """Number t of observations."""
        return self._num_observations

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a point played or hallucinated, 0-dim; 0 before any."""
        means, rows = self._played_mean, self._hallucinated_rows
        means = means if rows is None else torch.cat([means, self._mean_at(rows)])
        return self._shown(means.max() if len(means) else means.new_zeros(()))[0]

    @property
    def played(self) -> Tensor:
        """The unique points played, (u, d), in order of first play."""
        return self._log.points

    def recommend(self) -> Tensor:
        """Return the played point (1, d) of the largest posterior mean."""
        return self._log.points[self._played_mean.argmax(), None].clone()

    @property
    def dictionary_weights(self) -> Tensor | None:
        """What the dictionary rule wants handed back of each of ``inducing_points``, (m,); None if nothing."""
        if self._rule_weights is None:
            return None
        return self._rule_weights[self._log.locate(row_keys(self.inducing_points)).positions]

    def kernel_bound(self) -> Tensor:
        """Return the largest prior variance of an arm, 0-dim; without arms that of the points told."""
        return self._kernel_bound

    def means_under(self, mean: Mean | None) -> Tensor | None:
        """Return the means of the arms under a prior mean before any reward, (A,); None if they are zero."""
        means = prior_means(mean, self._points)
        return None if means is None else means[: self._num_arms]

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior means and variances at points X (q, d), each (q,)."""
        table = self.with_points(X)
        rows = table.rows_of(X)
        mean, variance = self._shown(table._mean_at(rows), table._learned_variance_at(rows))
        return mean, variance

    def _shown(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return numbers in the books where the points are, in their dtype."""
        return values if values[0].is_cpu == self.no_points.is_cpu else sent(self.no_points, *values)

    # ---------------------------------------------------------------- telling

    def learned(self, told: History, rule: DictionaryRule | None, generator: torch.Generator | None) -> Self:
        """Return the table conditioned on more rewards, with the dictionary that a rule chooses."""
        table = self.with_points(told.X)
        selection = None if rule is None else rule.select(table.preview(told.X), generator)
        return table.updated(told.X, told.Y, selection)

    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X, scored by the current posterior."""
        if (table := self.with_points(X)) is not self:
            return table.preview(X)
        located, played = self._located(X)
        rows = played.tensor
        fresh = rows[len(self._log) :]
        points, counts = self._log.points_with(X, located)
        variance = self._played_variance.to(points.dtype)
        if fresh.shape[0]:
            variance = torch.cat([variance, self._variance_at(fresh)])
        scores = variance.clamp_min(0.0) / on_host(self.regularization)
        held = None if self.exact else self._held(rows)
        new = self._log.new_counts(X, located)
        counts, new, scores = self._shown(counts.to(points.dtype), new.to(points.dtype), scores)
        if held is not None and not points.is_cpu and held.is_cpu:
            held = known(self._shown(held)[0].bool(), held)
        weights = padded(self._rule_weights, points.shape[0])
        others = (self.kernel, self.regularization, counts, scores, held, new, weights)
        return PlayedPoints(points, *others, most_new=X.shape[0], memory=self._rule_memory)

    def _held(self, rows: Tensor) -> Tensor:
        """Return which rows (u,) are in the dictionary, (u,); remembered while neither changes."""
        known_rows, known_dictionary, held = self._known_held
        if known_rows is not rows or known_dictionary is not self._dictionary_rows:
            is_longer = known_dictionary is self._dictionary_rows and known_rows is self._played_rows
            new = rows[known_rows.shape[0] :] if is_longer else rows
            number, dictionary = new.shape[0], self._dictionary_rows
            is_there = torch.isin(new, dictionary) if number > 1 else (dictionary == new).any()
            held = torch.cat([held[: rows.shape[0] - number], is_there.expand(number)])
            self._known_held = rows, self._dictionary_rows, held
        return held

    def leverage_scores(self, rows: Tensor) -> Tensor:
        """Return the ridge leverage scores of rows (k,) under the current posterior, (k,)."""
        return self._shown(self._variance_at(rows).clamp_min(0.0) / on_host(self.regularization))[0]

    def updated(self, X: Tensor, Y: Tensor, selection: Selection | None) -> Self:
        """Return the table conditioned on rewards Y (q,) at X (q, d), at the dictionary selected from ``preview(X)``.

        Without a selection the posterior is the exact one, or must become it: all played points are in the dictionary.
        """
        table = self.with_points(X)
        table._points.verify()
        located, played = table._located(X)
        after = table._conditioned(X, Y, selection, located, played)
        # A dictionary often changes in several rounds one after another, and a course takes a round to begin and end.
        after.has_course = type(self).has_course or after._dictionary_rows is self._dictionary_rows
        after._note(self._log, X, Y, selection, located, played)
        return after

    def _note(
        self, log: PlayedLog, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows
    ) -> None:
        """Write down what was told, beside a log of what was told before, and what a rule wants handed back."""
        self._log = log.with_rewards(X, Y, located)
        self._rule_weights = _weights_of(selection, self._log)
        self._rows_played = played
        is_known = self._known_held[0] is played.tensor and self._known_held[1] is self._dictionary_rows
        if selection is not None and selection.indices is not None and not is_known:
            chosen = beside(selection.indices, played.tensor)
            held = torch.zeros_like(played.tensor, dtype=torch.bool).index_fill_(0, chosen, True)
            self._known_held = played.tensor, self._dictionary_rows, held
        self._last_located = X, Located(located.positions, [], located.keys), played
        self._num_observations += X.shape[0]

    @abstractmethod
    def _conditioned(self, X: Tensor, Y: Tensor, selection: Selection | None, located: Located, played: Rows) -> Self:
        """Return a table whose posterior is as ``updated`` says; what was played is that of this one still.

        Args:
            X: (q, d).
            Y: (q,).
            selection: the dictionary, None for an exact posterior.
            located: where the rows of X stand in the log.
            played: the rows of the unique played points as they will be.
        """

    @abstractmethod
    def forgotten(self, left: Plays, gone: Plays) -> Self:
        """Return the table without rewards told before; the dictionary stays.

        Args:
            left: what is left, by the old places of the played points, in the order in which they stand from now on.
            gone: what is taken back, by these places.
        """

    @abstractmethod
    def reweighted(self, plays: Plays) -> Self:
        """Return the table with other counts and sums of the played points; the dictionary stays.

        Args:
            plays: by the old places of the played points, in the order in which they stand from now on. Counts need not
                be whole: an observation of noise λ_s counts λ/λ_s, and its reward so many times.
        """

    def at(self, now: float) -> Self:
        """Return this belief: what it learned counts at any time."""
        return self

    def shown(self, told: History) -> NystromGP | OnlineGP:
        """Return the posterior of the rewards learned as a BoTorch model of its own."""
        return self.model(told.X, told.Y, self.inducing_points)

    # ---------------------------------------------------------------- looking ahead

    @abstractmethod
    def contenders(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> tuple[Tensor | None, Tensor]:
        """Return rows (k,) among which are all arms of the highest score, None for all arms, and their scores (k,)."""

    def highest(self, scores: Tensor, beta: Tensor, rows: Tensor | None = None) -> int:
        """Return the row of the highest score.

        Scores that differ by rounding only are ties, broken by an order of the arms that is drawn once from the
        bandit's seed; so equal posteriors choose equal arms however they were computed.

        Args:
            scores: of all arms (A,), or of some.
            beta: the multiplier of σ, which sets the scale of rounding.
            rows: the rows that have the scores; None for all.
        """
        if runs_compiled(scores, beta, self._kernel_bound):
            bound = self._kernel_bound
            share = ROUNDING_SHARE[bound.dtype]
            number, _, is_alone = rule_loops.highest(scores.numpy(), beta.item(), bound.item(), share)
            if is_alone:
                return number if rows is None else int(rows[number])
        ranks = self.tie_rank if rows is None else self.tie_rank[rows]
        return self._row_at(highest(scores, ranks, self.tie_width(scores.max(), beta), rows))

    @abstractmethod
    def _row_at(self, place: Tensor) -> int:
        """Return a row (1,) that was chosen."""

    def tie_width(self, best: Tensor, beta: Tensor) -> Tensor:
        """Return by how much a score may lie below the best one and be its equal but for rounding, 0-dim."""
        return tie_width(best, beta, self._kernel_bound)

    def hallucinated(self, rows: Tensor, times: Tensor) -> Self:
        """Return the table conditioned on the posterior means at rows (k,), so many times (k,) at each."""
        ahead, before = self._hallucinated(rows, times), self._hallucinated_rows
        ahead._hallucinated_rows = rows if before is None else torch.cat([before, rows])
        return ahead

    @abstractmethod
    def _hallucinated(self, rows: Tensor, times: Tensor) -> Self:
        """Return a copy of the table whose variances are as ``hallucinated`` says."""

    @property
    @abstractmethod
    def _basis_rows(self) -> Tensor:
        """The rows whose values the correction of a prior draw rests on."""

    @abstractmethod
    def _draw_correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        """Return what to add to a prior draw; a ``Correction``."""

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean from the joint posterior of the arms, (A,); see ``corrected``."""
        return self.corrected(seed, self._draw_correction)

    def corrected(self, seed: int, correct: Correction) -> Tensor:
        """Return a draw of f − mean, (A,): a prior draw and what a posterior of these arms adds to it.

        Equal arms get equal values: the same bits if all arms are in memory here, else the same to rounding. Then the
        prior draw is made of waves, which are the same function for whoever has some of the arms.

        Source: Matheron's rule, Wilson et al., ICML 2020: a prior draw is corrected by what the posterior knows.

        Raises:
            InputError: if the arms are not all in memory here and there are no waves of the kernel.

        Cost: that of the prior draw, and O(A m); memory of a block of arms and O(A) numbers. See ``Waves``.
        """
        arms, generator = slice(self._num_arms), torch.Generator().manual_seed(seed)
        if self.is_part or self._points.source.tensor is None:
            waves = self._wave_prior.draw(generator)
            prior = torch.cat([waves.at(block) for _, block in self._points.source.blocks()])
            correction = correct(lambda rows: waves.at(self.points_of(rows)), generator)
            return (prior + correction[arms]).to(self._points.dtype)
        values = self._draws_of_prior().draw(generator)[self._distinct_rows]
        correction = correct(lambda rows: values[rows], generator)
        return (values[arms] + correction[arms])[self._twins[arms]]

    @cached_property
    def _wave_prior(self) -> WavePrior:
        """What draws of the prior are made of where they must be functions of the point alone."""
        return wave_prior(self.kernel, self._points.dimension)

    def _draws_of_prior(self) -> PriorDraws:
        """Return draws of the prior at the distinct rows, set up anew only where they depend on the dictionary."""
        if self._prior_draws is None:
            self._distinct_points, self._distinct_rows = points, _ = distinct(cast(Tensor, self._points.tensor))
            first = torch.full((len(points),), len(self._points), device=points.device)
            order = torch.arange(len(self._points), device=points.device)
            self._twins = first.scatter_reduce(0, self._distinct_rows, order, "amin")[self._distinct_rows]
        elif not isinstance(self._prior_draws, LowRankDraws) or torch.equal(self._drawn_at, self._basis_rows):
            return self._prior_draws
        drawn_at = self._basis_rows
        first = self._distinct_rows[drawn_at].unique()
        self._prior_draws, self._drawn_at = prior_draws(self.kernel, self._distinct_points, first), drawn_at
        return self._prior_draws

    def lookahead(self, pending: Tensor, stages: Tensor | None = None) -> "ArmLookahead":
        """Return the table with points (k, d) pending."""
        return ArmLookahead(self.with_points(pending) if pending.shape[0] else self, pending)

    # ---------------------------------------------------------------- rows of the table

    def arm(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d); not to be written to."""
        return self._points.arm(row)

    def points_of(self, rows: Tensor) -> Tensor:
        """Return the points of rows (k,), (k, d); played ones without reading arms, which may be gone."""
        positions = {row: position for position, row in enumerate(self._played_rows.tolist())}
        played = [positions.get(row) for row in rows.tolist()]
        return self._points.rows(rows) if None in played else self._log.points[played]

    def row_list(self, points: Tensor) -> list[int]:
        """Return the row of each point (k, d), all of which are in the table."""
        return cast(list[int], self._points.find(points))

    def rows_of(self, points: Tensor) -> Tensor:
        """Return the same as a tensor, (k,), in the books."""
        return beside(torch.from_numpy(np.array(self.row_list(points), dtype=np.int64)), self._played_rows)

    def with_points(self, points: Tensor, prior: Tensor | None = None) -> Self:
        """Return a table that has rows for points (k, d), whose prior variances (k,) may be known: itself if it has."""
        rows = self._points.find(points)
        if None not in rows:
            return self
        unknown = {key: index for index, key in enumerate(self._points.keys(points)) if rows[index] is None}
        if len(unknown) < points.shape[0]:
            new = list(unknown.values())
            points, prior = points[new], None if prior is None else prior[new]
        other = shallow_copy(self)
        other._points = self._points.with_points(points)
        known = self._known_prior if prior is None else (points, prior)
        if known is None or not (known[0] is points or torch.equal(known[0], points)):
            with torch.no_grad():
                known = self._known_prior = points, prior_variance(self.kernel, points)
        other._prior_variances = self._prior_variances.followed(known[1])
        is_one = known[1].shape[0] == 1 and known[1].is_cpu  # elsewhere comparing numbers means to wait
        if self._num_arms == 0 and not (is_one and known[1].item() <= self._kernel_bound.item()):
            other._kernel_bound = torch.maximum(self._kernel_bound, known[1].max())
        if self._prior_means is not None and self.prior_mean is not None:
            other._prior_means = self._prior_means.followed(prior_mean(self.prior_mean, points))
        if self._prior_in_books is not None:
            (variances, means), new = self._prior_in_books, slice(len(self._points), None)
            if means is not None and other._expected is not None:
                means = means.followed(other._expected[new].cpu())
            other._prior_in_books = variances.followed(other._prior_variance[new].cpu()), means
        other._prior_draws = None
        other._extend_rows(points)
        return other

    def _expected_at(self, rows: Tensor) -> Tensor | float:
        """Return the prior means of rows (k,), in double precision, (k,), in the books."""
        means = self._expected_rows
        return 0.0 if means is None else means[rows].double()

    @property
    def _expected_rows(self) -> Tensor | None:
        """The prior means of all rows, (N,), in the books; None where they are zero."""
        if self._prior_in_books is None:
            return self._expected
        means = self._prior_in_books[1]
        return None if means is None else means.tensor

    def _prior_of(self, rows: Tensor) -> Tensor:
        """Return the prior variances of rows (k,), (k,), in the books."""
        prior = self._prior_variances if self._prior_in_books is None else self._prior_in_books[0]
        return prior.tensor[rows]

    def is_played(self, points: Tensor) -> Tensor:
        """Return which of points (k, d) are among those played that count, (k,) bool."""
        places = self._log.locate(row_keys(points)).positions
        return torch.tensor(places, dtype=torch.long, device=points.device) < len(self._log)

    def places_of(self, X: Tensor) -> Tensor:
        """Return where points (q, d), all of which were played, stand among the unique played ones, (q,)."""
        return beside(torch.from_numpy(np.array(self._located(X)[0].positions, np.int64)), X)

    def _located(self, X: Tensor) -> tuple[Located, Rows]:
        """Return where points (q, d) stand in the log, and the rows of the played points as they will be."""
        if self._last_located is None or self._last_located[0] is not X:
            located = self._log.locate(self._points.keys(X))
            self._last_located = X, located, self._rows_with(X, located)
        return self._last_located[1:]

    def _rows_with(self, X: Tensor, located: Located) -> Rows:
        """Return the rows of the unique played points as they will be once X (q, d) is told."""
        if not located.fresh:
            return self._rows_played
        rows = self.row_list(located.first_plays(X))
        played = self._rows_played.followed(np.array(rows, dtype=np.int64))
        if not played.tensor.is_cpu:
            known(played.tensor, torch.tensor([*listed(self._played_rows), *rows]), stays=True)
        return played

    @abstractmethod
    def _extend_rows(self, points: Tensor) -> None:
        """Compute the posterior at the last rows, points (k, d) that were just appended."""


def _weights_of(selection: Selection | None, log: PlayedLog) -> Tensor | None:
    """Return what a rule wants handed back, (u,), 0 where a point of the log was not selected; None if nothing."""
    if selection is None or selection.weights is None:
        return None
    indices = selection.indices
    if indices is None:
        indices = torch.tensor(log.locate(row_keys(selection.points)).positions, device=log.points.device)
    weights = selection.weights
    return weights.new_zeros(len(log)).index_copy(0, indices, weights)


class ArmLookahead(Lookahead):
    """The posterior over the arms with points pending: their variance shrinks, the means stay.

    Pending points are hallucinated when a variance is asked for, so that rules which draw do not pay for them.
    Cost: O(A m) for a choice and for a pending point.
    """

    def __init__(self, table: TableBelief, pending: Tensor) -> None:
        super().__init__(pending)
        self._table, self.tie_rank = table, table.tie_rank
        self._rows: list[int] = table.row_list(pending) if pending.shape[0] else []
        self._hallucinated: TableBelief = table
        self._waiting = self._rows

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return self._table.mean

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), with pending points hallucinated."""
        return self._with_pending().variance

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a point played or pending, 0-dim."""
        return self._with_pending().incumbent

    def deviation(self, seed: int) -> Tensor:
        """A draw of f − mean, (A,)."""
        return self._table.deviation(seed)

    def contenders(self, rule: AcquisitionRule, beta: Tensor, seed: int) -> tuple[Tensor | None, Tensor]:
        """Return rows (k,) among which are all arms of the highest score, None for all arms, and their scores (k,)."""
        if not rule.grows_with_mean_and_variance:
            self.visited_share = 1.0
            return None, rule.on_arms(self, beta, seed)
        table = self._with_pending()
        contenders = table.contenders(rule, beta, seed)
        self.visited_share = table.visited_share
        return contenders

    def choose(self, rule: AcquisitionRule, beta: Tensor, seed: int, domain: Domain | None = None) -> Tensor:
        """Return the arm (1, d) of the highest score, of those that the domain allows."""
        if rule.needs_incumbent:
            rule = rule.scaled_to(self._table)
        if domain is not None and domain.allowed is not None:
            rows, known = domain.allowed, domain.eligible(self.pending)
            known = known if domain.incumbent is None else torch.cat([domain.incumbent, known])
            incumbent = self._table._mean_at(self._table.rows_of(known)).max() if len(known) else None
            scores, self.visited_share = rule.on_arms(SomeOf(self, rows, incumbent), beta, seed), 1.0
        else:
            rows, scores = self.contenders(rule, beta, seed)
        self.best_score = partial(float, scores.max())  # which can be pickled, and keeps no scores
        return self.chosen(self._table.highest(scores, beta, rows))

    def offered(self, domain: Domain | None) -> Self:
        """Return this posterior, which is over all arms."""
        return self

    def chosen(self, row: int) -> Tensor:
        """Return the arm of a row, (1, d)."""
        return self._table.arm(row)

    def _add(self, point: Tensor, times: int) -> None:
        self._table, self._hallucinated = self._table.with_points(point), self._hallucinated.with_points(point)
        rows = [self._table.row_list(point)[0]] * times
        self._rows, self._waiting = [*self._rows, *rows], [*self._waiting, *rows]

    def pending_scores(self) -> Tensor:
        """Return the scores of the pending points without anything pending, (k,)."""
        return self._table.leverage_scores(torch.tensor(self._rows, device=self._table.books))

    def variance_ratio(self) -> Tensor:
        """Return the largest ratio over the arms of the variance without and with pending points, 0-dim."""
        least = torch.finfo(self.variance.dtype).eps * self._table.kernel_bound()
        return ((self._table.variance + least) / (self.variance + least)).max()

    def _with_pending(self) -> TableBelief:
        """Return the table with the pending points hallucinated."""
        if len(self._waiting):
            runs = [[row, len(list(run))] for row, run in groupby(self._waiting)]
            rows, times = torch.tensor(runs, device=self._table.books).unbind(-1)
            self._hallucinated = self._hallucinated.hallucinated(rows, times)
            self._waiting = []
        return self._hallucinated
