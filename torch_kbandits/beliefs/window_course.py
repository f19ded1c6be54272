"""Few arms with all their covariances in the course of plain rounds, of which the latest count."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.covariances import MOST_WEAR, CovarianceTable
from torch_kbandits.beliefs.few_arms import FewArms
from torch_kbandits.beliefs.few_rounds import Counting, rounds_of
from torch_kbandits.confidence import Width
from torch_kbandits.memory import LeavesInOrder
from torch_kbandits.numerics.shallow import changed


class Told(NamedTuple):
    """A reward.

    Attributes:
        row: of its arm.
        point: the arm, (1, d).
        reward: in reward units.
        time: the round.
        number: how many rewards were told before it.
    """

    row: int
    point: Tensor
    reward: float
    time: float
    number: int


class WindowCourse(Course):
    """What is believed of the arms together, and which rewards count. Cost of a round: O(A² + w).

    Args:
        belief: before, at the present time.
        arms: those of its table.
        told: what counts, in the order told.
        memory: says what does in a round.
    """

    def __init__(self, belief: CountedBelief, arms: FewArms, told: list[Told], memory: LeavesInOrder) -> None:
        self._known, self._arms, self._memory, self.record = (belief, 0), arms, memory, Record()
        # Rewards in a list that later values write behind, and which of them count: from the first to before the last.
        self._told, self._first, self._last = told, 0, len(told)
        self._now, self._num_told = belief.now, belief.num_told

    @classmethod
    def of(cls, belief: CountedBelief, memory: LeavesInOrder) -> Self | None:
        """Return the course that begins with a belief; None if there is none."""
        table = belief.posterior
        if not isinstance(table, CovarianceTable) or (believed := table.gaussian) is None:
            return None
        X, Y, times, _, _, numbers = belief.counted
        rows, points = (table.row_list(X), X.split(1)) if len(X) else ([], [])
        columns = rows, points, Y.tolist(), times.tolist(), numbers.tolist()
        told = [Told(*each) for each in zip(*columns, strict=True)]
        return cls(belief, FewArms(table, believed, table.counts), told, memory)

    @property
    def belief(self) -> CountedBelief:
        """The belief that learned all rewards told, at the present time."""
        belief, first = self._known
        if first < self.record.number:
            counting, none = self._told[self._first : self._last], self._arms.table.no_points
            points = torch.cat([none, *(each.point for each in counting)])
            rewards, times = (torch.tensor([each[i] for each in counting], dtype=torch.float64) for i in (2, 3))
            numbers, columns = torch.tensor([each.number for each in counting]).long(), (points, rewards, times)
            belief = belief.windowed(self.record.points(first), columns, numbers, self._arms.believed, self._now)
            self._known = belief, self.record.number
        return belief

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the belief that learned all rewards told."""
        told = self._told[self._first : self._last]
        new = {"_known": (self.belief, 0), "_told": told, "_first": 0, "_last": len(told)}
        return changed(self, record=Record(), **new)

    @property
    def num_observations(self) -> int:
        """Number t of observations that count."""
        return self._last - self._first

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""
        return self._arms.table.regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._arms.information_gain()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice:
        """Return the arm of the highest score."""
        return self._arms.choice(rule, beta, seed)

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course in the next round, after the reward of an arm; None where something is not finite."""
        arms, last, first, now = self._arms.told(choice.place, y), self._last, self._first, self._now + 1.0
        if arms is None:
            return None
        del self._told[last:]  # what an interrupted call left
        self._told.append(Told(choice.place, choice.point, y, self._now, self._num_told))
        while first <= last and not self._memory.keeps(self._told[first].time, now):
            first += 1
        if first > self._first:
            arms = self._forgetting(arms, self._told[self._first : first], self._told[first:])
            if arms is None:
                return None
        new = {"_arms": arms, "_first": first, "_last": last + 1, "_now": now, "_num_told": self._num_told + 1}
        return changed(self, record=self.record.followed(choice, y), **new)

    def played(
        self, rule: AcquisitionRule, width: Width, seed: Callable[[int], int], rewards: np.ndarray
    ) -> Self | None:
        """Return the course after rounds of which all rewards are known; see ``Course``."""
        told, number, gone = self._told[self._first : self._last], len(rewards), list[int]()
        times, first = [each.time for each in told] + [self._now + number for number in range(number)], 0
        for j in range(1, number + 1):
            while first < len(told) + j and not self._memory.keeps(times[first], self._now + j):
                first += 1
            gone.append(first)
        counting = Counting([each.row for each in told], [each.reward for each in told], gone, len(told))
        came = rounds_of(self._arms, rule, width, seed, rewards, counting)
        if came is None:
            return None
        del self._told[self._last :]  # what an interrupted call left
        for number, (choice, y) in enumerate(zip(came.choices, came.rewards, strict=True)):
            self._told.append(Told(choice.place, choice.point, y, self._now + number, self._num_told + number))
        number = len(came.choices)
        new = {"_first": self._first + gone[number - 1], "_last": self._last + number, "_now": self._now + number}
        record = self.record.extended(came.choices, came.rewards)
        return changed(self, _arms=came.arms, _num_told=self._num_told + number, record=record, **new)

    def _forgetting(self, arms: FewArms, gone: list[Told], left: list[Told]) -> FewArms | None:
        """Return the arms without rewards that are gone; None where something is not finite."""
        counts, sums, taken = dict[int, float](), dict[int, float](), dict[int, tuple[float, float]]()
        for each in left:
            counts[each.row] = counts.get(each.row, 0.0) + 1.0
            sums[each.row] = sums.get(each.row, 0.0) + each.reward
        for each in gone:
            count, total = taken.get(each.row, (0.0, 0.0))
            taken[each.row] = count + 1.0, total + each.reward
        after: FewArms | None = arms
        for row, (count, total) in taken.items() if len(counts) > len(taken) else ():
            after = None if after is None else after.observed(row, -count, -total)
        if after is None or len(counts) <= len(taken) or not after.believed.wear <= MOST_WEAR:
            after = FewArms(arms.table, arms.table.prior_gaussian, counts)
            for row, count in counts.items():
                after = None if after is None else after.observed(row, count, sums[row])
        return None if after is None else changed(after, counts=counts)

    def remember(self, choice: Choice) -> None:
        """Do nothing: the table knows its arms."""
