"""Many arms in the coordinates of a dictionary in the course of plain rounds, while the dictionary stays."""

from collections.abc import Callable
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule, rule_loops
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.features import FeatureTable, Known
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.dictionaries.kept_draws import KeptDraws
from torch_kbandits.models.normal import MIN_VARIANCE
from torch_kbandits.numerics.random import ROUNDING_SHARE
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.posteriors.online_dtc import Rewarded
from torch_kbandits.posteriors.residual import learned_residual
from torch_kbandits.tables.panels import FALLS, observed
from torch_kbandits.tables.played import PlayedPanel, variances_after
from torch_kbandits.tables.store import FeatureStore

Array = NDArray[np.float64]


class Plays(NamedTuple):
    """What was played.

    Attributes:
        places: of the rows of the played points, by these, in order of first play.
        counts: how often each was played, (u,).
        held: whether it is in the dictionary, (u,) bool.
        prior: variances of the function at them, (u,).
        panel: has their features.
        variance: of the function at them, (u,); or if there was a reward since, what it was before that, (k,).
        is_behind: whether there was.
    """

    places: dict[int, int]
    counts: Array
    held: NDArray[np.bool_]
    prior: Array
    panel: PlayedPanel
    variance: Array
    is_behind: bool = False


class Passed(NamedTuple):
    """What a pass found.

    Attributes:
        mean: of the arms, (A,).
        variance: of the arms, (A,).
        posterior: of which they are.
    """

    mean: Array
    variance: Array
    posterior: Rewarded


class ArmsCourse(Course):
    """The posterior of arms at a dictionary that its rule draws again as it is, and which rewards made it so.

    Cost of a round: that of the table, O(A + m² + u m) where bounds help, else one pass of 2 rows.

    Args:
        table: before, of arms.
        draws: those that points keep.
        held: which of the played points are in the dictionary, (u,) bool.
        uniforms: which these and some more keep, (n,).
    """

    def __init__(self, table: FeatureTable, draws: KeptDraws, held: NDArray[np.bool_], uniforms: Array) -> None:
        self._known, self._table, self.record = (table, 0), table, Record()  # it learned so many of the rewards
        self._draws, self._uniforms, self._most = draws, uniforms, table.num_unchecked
        places = {row: place for place, row in enumerate(table.rows_of_played)}
        dtc, _, panel, self._arms = table.known
        self._plays = Plays(places, table.counts, held, table.prior_of_played, panel, table.variance_of_played)
        # Where passes are made the arms are as they were at first, and here is what passes found since: before the last
        # reward, and, once somebody asked, after it.
        self._posterior, self._before, self._passed = dtc.rewarded, cast(Passed | None, None), cast(Passed | None, None)
        (self._prior, self._expected), self._makes_passes = table.prior, self._arms.is_small
        self._prior_told, size = table.prior_told or 0.0, int(held.sum())
        self._is_full = size == draws.max_size
        # What the dictionary spans of the prior variances, where what it does not is learned.
        self._spanned = self._arms.spanned.numpy() if table.learns_residual else None
        self._noise, self._bound = table.regularization.item(), table.kernel_bound().item()

    @classmethod
    def of(
        cls, table: FeatureTable, rule: DictionaryRule, generator: Callable[[int], torch.Generator | None]
    ) -> Self | None:
        """Return the course that begins with a table; None if there is none."""
        draws = rule.kept_draws
        if draws is None or (held := table.held_alone) is None or not draws.are_of(int(held.sum())):
            return None
        return cls(table, draws, held, draws.uniforms(len(held) + 1, generator(table.num_observations)))

    @property
    def belief(self) -> FeatureTable:
        """The table that learned all rewards told."""
        table, first = self._known
        if first < self.record.number:
            rows = [*self._plays.places]
            table = table.followed_alone(*self.record.columns(first), self._all_known, rows)
            self._known = table, self.record.number
        return table

    @property
    def _all_known(self) -> Known:
        """What the table knows that learned all rewards told."""
        if not self.record.number:
            return self.belief.known
        dtc, arms, plays = self._posterior.dtc, self._arms, self._plays
        square = dtc.last_square(-1.0)
        if self._makes_passes:
            mean, variance, posterior = cast(Passed, self._passed or self._before)
            passed = torch.from_numpy(mean), torch.from_numpy(variance)
            arms = arms.passed(*passed, dtc if posterior is self._posterior else posterior.dtc)
            arms = arms if self._passed else arms.observed(square, dtc, dtc.weights)
        return Known(dtc, dtc.weights, plays.panel.knowing(torch.from_numpy(plays.variance), square), arms)

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the table that learned all rewards told."""
        return changed(self, _known=(self.belief, 0), _most=self._most - self.record.number, record=Record())

    @property
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""
        table, first = self._known
        return table.num_observations + self.record.number - first

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""
        return self._table.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self.regularization.new_full((), 0.5 * self._posterior.log_det)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ̃(x_s), 0-dim. Cost: O(m), and O(u m) if some of the points are left out."""
        noise, dtc, plays = self.regularization, self._posterior.dtc, self._plays
        if not dtc.left_out:
            return dtc.effective_dimension(noise.new_full((), self._prior_told) / noise)
        return torch.from_numpy(plays.counts) @ torch.from_numpy(self._variance_of_played()).clamp_min(0.0) / noise

    def kernel_bound(self) -> Tensor:
        """Return the largest k(x, x) of an arm, 0-dim."""
        return self._table.kernel_bound()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice:
        """Return the arm of the highest score."""
        table, features, share = self._table, self._table.features, 1.0
        is_bound = type(rule) is UpperConfidenceRule
        if self._makes_passes and not is_bound:
            self._arms, self._makes_passes = self._all_known.arms, False
        best = self._highest_bound(beta, features) if self._makes_passes else None
        if best is None:
            table = table.knowing(self._all_known) if is_bound else self.belief  # others may ask for all that was told
            rows, scores = table.contenders(rule.scaled_to(self), beta, seed())
            best, share = table.highest(scores, beta, rows), table.visited_share
        point = table.arm(best)
        (row,) = table.row_list(point)
        learned, change, spanned = self._posterior.moments_at(features.row(row))
        mean = learned if self._expected is None else learned + float(self._expected[row])
        prior = self._prior[row : row + 1]
        variance = prior + change
        known = np.maximum(variance, 0.0)
        if self._spanned is not None:
            known = _learned(prior, np.array([spanned]), known)
        return Choice(point, row, mean, float(known[0]), seen=float(variance[0]), share=share)

    def _highest_bound(self, beta: Tensor, features: FeatureStore) -> int | None:
        """Return the row of the highest upper confidence bound, after a pass; None where another may be its equal."""
        if self._passed is None:
            if (before := self._before) is None:
                panel = self._arms.up_to_date()
                found = panel.mean.numpy(), panel.variance.numpy()
            else:
                now = self._posterior
                found = observed(features, now.fallen, now.weights, self._expected, before.variance)
            self._passed = Passed(*found, self._posterior)
        mean, variance = self._passed[:2]
        if self._spanned is not None:
            variance = _learned(self._prior[: len(variance)], self._spanned, variance)
        known = mean, variance, beta.item(), MIN_VARIANCE, self._bound, ROUNDING_SHARE[torch.float64]
        row, _, is_alone = rule_loops.highest_upper_confidence(*known)
        return row if is_alone else None

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where the dictionary changes, or drift is to be looked for."""
        row, features, (places, counts, held, prior, panel, *_) = choice.place, self._table.features, self._plays
        number = len(counts)
        place = places.get(row, number)
        if self.record.number >= self._most or place >= len(self._uniforms):
            return None
        if self._makes_passes and self._passed is None:
            return None
        variance = scored = self._variance_of_played()
        if place < number:
            counts = counts.copy()
            counts[place] += 1.0
        else:
            scored = np.append(variance, cast(float, choice.seen))
            held, counts = np.append(held, False), np.append(counts, 1.0)
        played = held, scored, counts, self._noise, self._uniforms
        if not self._draws.again(*played, place if self._is_full else None):
            return None
        weight, expected, point = 1.0 / self._noise, 0.0, features.row(row)
        if self._expected is not None:
            expected = float(self._expected[row])
        after, arms = self._posterior.told(point, weight, weight * (y - expected)), self._arms
        if after is None:
            return None
        if place == number:
            panel, places, prior = panel.with_row(point), {**places, row: place}, np.append(prior, self._prior[row])
        if not self._makes_passes:
            dtc = after.dtc
            after, arms = dtc.rewarded, arms.observed(dtc.last_square(-1.0), dtc, dtc.weights)
        plays, record = Plays(places, counts, held, prior, panel, variance, True), self.record.followed(choice, y)
        new = {"_before": self._passed, "_passed": None, "_arms": arms}
        new["_prior_told"] = self._prior_told + float(self._prior[row])
        return changed(self, _posterior=after, _plays=plays, record=record, **new)

    def _variance_of_played(self) -> Array:
        """Return the variances of the played points, (u,)."""
        plays, now = self._plays, self._posterior
        if not plays.is_behind:
            return plays.variance
        store = cast(FeatureStore, plays.panel.store)
        return variances_after(store, now.fallen, FALLS, plays.variance, plays.prior, now.inverse)

    def remember(self, choice: Choice) -> None:
        """Let the table make the pass that it took to choose."""
        if self._makes_passes:
            self.belief.known.arms.up_to_date()


def _learned(prior: Array, spanned: Array, variance: Array) -> Array:
    """Return variances whose residual is learned, (k,); see ``learned_residual``."""
    return learned_residual(*map(torch.from_numpy, (prior, spanned, variance))).numpy()
