"""Joint points in the course of plain rounds."""

from collections.abc import Callable
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule, rule_loops
from torch_kbandits.beliefs import embedded_loops
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.embedded import MOST_LOOPED, Array, Arrays, Embedded
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.joint_lookahead import best_of
from torch_kbandits.dictionaries import DictionaryRule, OnlineRule, OnlineSample
from torch_kbandits.models.normal import MIN_VARIANCE
from torch_kbandits.numerics.formulas import known_formula
from torch_kbandits.numerics.gram import as_array
from torch_kbandits.numerics.random import ROUNDING_SHARE
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.observations.ledger import History
from torch_kbandits.posteriors.residual import learned_residual

#: Of a point its coordinates (m,), and its prior variance.
_Seen = tuple[Array, float]


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
        uniform: the first that this draws.
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
        uniform: Callable[[int], float],
    ) -> None:
        self._known, self._rule, self._randomness = (belief, 0), rule, (generator, uniform)
        # The latter with coordinates and prior variance of each since the dictionary changed; the belief has so many.
        self.record, self._latest = Record(), Record()
        self._before, self._most, self._sample, self._table = belief.num_observations, table.num_followed, sample, table
        self._posterior, self._prior_told = table.posterior.rewarded, table.prior_told or 0.0
        self._noise, self._bound = table.regularization.item(), belief.kernel_bound().item()
        self._formula, self._Z = formula, as_array(table.spanning_points)
        self._places = places if isinstance(places, slice) else places.numpy()
        self._keeps_to_chances = cast(DictionaryRule, rule).keeps_to_chances

    @classmethod
    def of(
        cls,
        belief: CountedBelief,
        rule: OnlineRule,
        generator: Callable[[int], torch.Generator | None],
        uniform: Callable[[int], float],
    ) -> Self | None:
        """Return the course that begins with a belief that was told something; None if there is none."""
        sample, table = belief.sample, belief.posterior
        if belief.forgets or sample is None or not isinstance(table, FeatureTable) or not table.num_followed:
            return None
        places, formula = table.places_of_dictionary(sample.points), known_formula(table.kernel, sample.points.shape[1])
        if places is None or formula is None:
            return None
        return cls(belief, sample, table, formula, places, rule, generator, uniform)

    @property
    def belief(self) -> CountedBelief:
        """The belief that learned all rewards told."""
        belief, first = self._known
        if first < self._latest.number:
            rows, prior = zip(*(cast(_Seen, choice.seen) for choice in self._latest.choices(first)), strict=True)
            seen = torch.from_numpy(np.stack(rows)).mT, torch.tensor(prior, dtype=torch.float64)
            belief = belief.followed(*self._latest.columns(first), self._posterior.dtc, *seen)
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
        return self.regularization.new_full((), 0.5 * self._posterior.log_det)

    def effective_dimension(self) -> Tensor:
        """Return Σ_s τ(x_s), 0-dim. Cost: O(m), and O(m² r) if r points are left out."""
        return self._posterior.dtc.effective_dimension(self._prior_at_all)

    def projection_error(self) -> Tensor:
        """Return what the dictionary does not span of the points played, 0-dim, in units of λ. Cost: as above."""
        return self._posterior.dtc.projection_error(self._prior_at_all)

    @property
    def _prior_at_all(self) -> Tensor:
        return self.regularization.new_full((), self._prior_told) / self.regularization

    def kernel_bound(self) -> Tensor:
        """Return the largest k(x, x) known of, 0-dim."""
        return self.regularization.new_full((), self._bound)

    def mean_norm(self) -> Tensor:
        """Return the RKHS norm of the posterior mean less the prior one, 0-dim, in reward units. Cost: O(m)."""
        return torch.from_numpy(self._posterior.weights).norm()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice | None:
        """Return the action of the highest upper confidence bound."""
        arms = None if domain is None else domain.arms
        if arms is None or arms.shape[0] >= MOST_LOOPED or type(rule) is not UpperConfidenceRule:
            return None
        posterior, share = self._posterior, ROUNDING_SHARE[torch.float64]
        factors = posterior.start.factor_rows, *posterior.inverse, posterior.weights
        points = arms.numpy()
        given = self._formula, points, self._Z, False, embedded_loops.NOTHING, embedded_loops.NONE
        *parts, worst = embedded_loops.embedded(*given, *factors, posterior.start.arrays[2])
        if worst < 0.0:  # which may be beyond rounding
            return None
        found = Arrays(*parts)
        learned, variance = found.learned, found.variance
        if self._table.learns_residual:
            known = (torch.from_numpy(part) for part in (found.prior, found.spanned, variance))
            variance = learned_residual(*known).numpy()
        scored = learned, variance, float(beta), MIN_VARIANCE
        row, _, is_alone = rule_loops.highest_upper_confidence(*scored, self._bound, share)
        if not is_alone:
            scores = torch.from_numpy(rule_loops.upper_confidence(*scored))
            row = best_of(scores, beta, self.kernel_bound(), seed())[0]
        one = slice(row, row + 1)
        point = torch.from_numpy(points[one].copy())
        at = Embedded(point, None, Arrays(*(part[one] for part in found)))
        return Choice(point, row, float(learned[row]), float(variance[row]), at)

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where there is none of the belief that learned it."""
        after = self._followed(choice, y)
        return self._learned(choice, y) if after is None else after

    def _followed(self, choice: Choice, y: float) -> Self | None:
        """Return the course after a reward; None where the dictionary changes, or rounding is to be cleared."""
        at = cast(Arrays, cast(Embedded, choice.seen).arrays)
        if self._latest.number >= self._most or not self._stays(choice.point, at):
            return None
        weight = 1.0 / self._noise
        row, prior = at.rows[0], float(at.prior[0])
        posterior = self._posterior.told(row, weight, weight * y)
        if posterior is None:
            return None
        # A copy, since the row is a part of those of all actions, which a record would keep.
        seen = choice._replace(seen=(row.copy(), prior))
        new = {"record": self._noted(choice, y), "_latest": self._latest.followed(seen, y)}
        told, bound = self._prior_told + prior, max(self._bound, prior)
        return changed(self, _posterior=posterior, _bound=bound, _prior_told=told, **new)

    def _stays(self, point: Tensor, at: Arrays) -> bool:
        """Say whether the dictionary stays when a point (1, d) is offered to it."""
        uniform, cross = self._randomness[1](self.num_observations), at.values[:, self._places]
        if self._keeps_to_chances and self._sample.refuses(cross, at.prior, uniform):
            return True
        given = torch.tensor([uniform], dtype=torch.float64), torch.from_numpy(cross).mT, torch.from_numpy(at.prior)
        return self._rule.offered(self._sample, point, *given) is self._sample

    def _learned(self, choice: Choice, y: float) -> Self | None:
        """Return the course that begins with the belief that learned a reward; None if there is none."""
        self.remember(choice)
        number, Y = self.num_observations, torch.tensor([y], dtype=torch.float64)
        told = History(choice.point, Y, torch.tensor([number]))
        belief = self.belief.learned(told, cast(DictionaryRule, self._rule), self._randomness[0](number))
        after = type(self).of(belief, self._rule, *self._randomness)
        return None if after is None else changed(after, _before=self._before, record=self._noted(choice, y))

    def _noted(self, choice: Choice, y: float) -> Record:
        return self.record.followed(choice._replace(seen=None), y)

    def remember(self, choice: Choice) -> None:
        """Let the belief find what was chosen as it was seen."""
        cast(FeatureTable, self.belief.posterior).remember(cast(Embedded, choice.seen))
