"""Joint points in the course of plain rounds."""

from collections.abc import Callable
from typing import Self, cast

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule, rule_loops
from torch_kbandits.acquisition.rules import MIN_VARIANCE
from torch_kbandits.beliefs import embedded_loops
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.embedded import MOST_LOOPED, Array, Arrays, Embedded
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.joint_lookahead import best_of
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample
from torch_kbandits.numerics.formulas import known_formula
from torch_kbandits.numerics.gram import as_array
from torch_kbandits.numerics.random import ROUNDING_SHARE
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.ledger import History
from torch_kbandits.posteriors.residual import learned_residual


class JointCourse(Course):
    """The posterior of a dictionary, and which rewards made it so since a point that was offered was last taken.

    Cost of a round: O(m d + m²) for each action; where the dictionary changes, that of the belief.

    Args:
        belief: before; of joint points, which offers them to a dictionary one by one.
        sample: its dictionary, whose points span the posterior.
        table: its table.
        formula: of its kernel.
        places: where the points of the dictionary stand among those that span.
        rule: decides about them.
        generator: its randomness, given how many rewards were told before.
    """

    def __init__(
        self,
        belief: CountedBelief,
        sample: OnlineSample,
        table: FeatureTable,
        formula: Array,
        places: slice | Tensor,
        rule: OnlineRule,
        generator: Callable[[int], torch.Generator | None],
    ) -> None:
        self._known, self._rule, self._generator = (belief, 0), rule, generator  # it learned so many of the latest
        self.record, self._latest = (
            Record(),
            Record(),
        )  # the latter with how each was seen, since the dictionary changed
        self._before, self._most, self._sample, self._table = belief.num_observations, table.num_followed, sample, table
        self._posterior, self._bound, self._prior_told = table.posterior, belief.kernel_bound(), table.prior_told or 0.0
        self._formula, self._Z, self._places = formula, as_array(table.spanning_points), places

    @classmethod
    def of(
        cls, belief: CountedBelief, rule: OnlineRule, generator: Callable[[int], torch.Generator | None]
    ) -> Self | None:
        """Return the course that begins with a belief that was told something; None if there is none."""
        sample, table = belief.sample, belief.posterior
        if belief.forgets or sample is None or not isinstance(table, FeatureTable) or not table.num_followed:
            return None
        places, formula = table.places_of_dictionary(sample.points), known_formula(table.kernel, sample.points.shape[1])
        if places is None or formula is None:
            return None
        return cls(belief, sample, table, formula, places, rule, generator)

    @property
    def belief(self) -> CountedBelief:
        """The belief that learned all rewards told."""
        belief, first = self._known
        if first < self._latest.number:
            seen = [cast(Embedded, choice.seen) for choice in self._latest.choices(first)]
            features = torch.cat([each.coordinates for each in seen], dim=1)
            prior = torch.cat([each.prior_variance for each in seen])
            belief = belief.followed(*self._latest.columns(first), self._posterior, features, prior)
            self._known = belief, self._latest.number
        return belief

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the belief that learned all rewards told."""
        left, told = self._most - self._latest.number, self.num_observations
        new = {"record": Record(), "_latest": Record()}
        return changed(self, _known=(self.belief, 0), _most=left, _before=told, **new)

    @property
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""
        return self._before + self.record.number

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""
        return self._table.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return 0.5 * self._posterior.log_det

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim. Cost: O(m), and O(m² r) if r points are left out."""
        return self._posterior.effective_dimension(self._prior_at_all)

    def projection_error(self) -> Tensor:
        """Return what the dictionary does not span of the points played, 0-dim, in units of λ. Cost: as above."""
        return self._posterior.projection_error(self._prior_at_all)

    @property
    def _prior_at_all(self) -> Tensor:
        return self._bound.new_full((), self._prior_told) / self.regularization

    def kernel_bound(self) -> Tensor:
        """Return the largest k(x, x) known of, 0-dim."""
        return self._bound

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in reward units. Cost: O(m)."""
        return self._posterior.weights.norm()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice | None:
        """Return the action of the highest upper confidence bound."""
        arms = None if domain is None else domain.arms
        if arms is None or arms.shape[0] >= MOST_LOOPED or type(rule) is not UpperConfidenceRule:
            return None
        posterior, share = self._posterior, ROUNDING_SHARE[torch.float64]
        factors = posterior.factor_rows, *posterior.tracked_inverse.arrays, posterior.weights.numpy()
        given = self._formula, arms.numpy(), self._Z, False, embedded_loops.NOTHING, embedded_loops.NONE
        *parts, worst = embedded_loops.embedded(*given, *factors, posterior.arrays[2])
        if worst < 0.0:  # which may be beyond rounding
            return None
        found = Arrays(*parts)
        learned, variance = found.learned, found.variance
        if self._table.learns_residual:
            known = (torch.from_numpy(part) for part in (found.prior, found.spanned, variance))
            variance = learned_residual(*known).numpy()
        scored = learned, variance, float(beta), MIN_VARIANCE
        row, _, is_alone = rule_loops.highest_upper_confidence(*scored, self._bound.item(), share)
        if not is_alone:
            scores = torch.from_numpy(rule_loops.upper_confidence(*scored))
            row = best_of(scores, beta, self._bound, seed())[0]
        point, one = arms[row : row + 1].clone(), slice(row, row + 1)
        at = Embedded(point, None, Arrays(*(part[one] for part in found)))
        return Choice(point, row, float(learned[row]), float(variance[row]), at)

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where there is none of the belief that learned it."""
        after = self._followed(choice, y)
        return self._learned(choice, y) if after is None else after

    def _followed(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where the dictionary changes, or rounding is to be cleared."""
        at = cast(Embedded, choice.seen)
        if self._latest.number >= self._most:
            return None
        uniform = torch.rand(1, generator=self._generator(self.num_observations), dtype=torch.float64, device="cpu")
        offered = self._rule.offered(self._sample, choice.point, uniform, at.values[self._places], at.prior_variance)
        if offered is not self._sample:
            return None
        weight = 1.0 / self.regularization.item()
        arrays = cast(Arrays, at.arrays)
        posterior = self._posterior.told(arrays.rows[0], weight, weight * y)
        if posterior is None:
            return None
        bound = torch.maximum(self._bound, at.prior_variance.squeeze(0))
        # Copies, since the arrays show a part of those of all actions, which a record would keep.
        seen = choice._replace(seen=Embedded(choice.point, None, Arrays(*(part.copy() for part in arrays))))
        new = {"record": self._noted(choice, y), "_latest": self._latest.followed(seen, y)}
        told = self._prior_told + float(arrays.prior[0])
        return changed(self, _posterior=posterior, _bound=bound, _prior_told=told, **new)

    def _learned(self, choice: Choice, y: float) -> Self | None:
        """Return the course that begins with the belief that learned a reward; None if there is none."""
        self.remember(choice)
        number, Y = self.num_observations, torch.tensor([y], dtype=torch.float64)
        told = History(choice.point, Y, torch.tensor([number]))
        belief = self.belief.learned(told, cast(DictionaryRule, self._rule), self._generator(number))
        after = type(self).of(belief, self._rule, self._generator)
        return None if after is None else changed(after, _before=self._before, record=self._noted(choice, y))

    def _noted(self, choice: Choice, y: float) -> Record:
        return self.record.followed(choice._replace(seen=None), y)

    def remember(self, choice: Choice) -> None:
        """Let the belief find what was chosen as it was seen."""
        cast(FeatureTable, self.belief.posterior).remember(cast(Embedded, choice.seen))
