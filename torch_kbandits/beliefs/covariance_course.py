"""Few arms with all their covariances in the course of plain rounds."""

from collections.abc import Callable
from typing import Self

import numpy as np
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.course import Choice, Course, Record
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.few_arms import FewArms
from torch_kbandits.beliefs.few_rounds import Counting, rounds_of
from torch_kbandits.confidence import Width
from torch_kbandits.numerics.shallow import changed


class CovarianceCourse(Course):
    """What is believed of the arms together, and which rewards made it so. Cost of a round: O(A²).

    Args:
        table: before.
        arms: its arms.
    """

    def __init__(self, table: CovarianceTable, arms: FewArms) -> None:
        self._known, self._arms, self.record = (table, 0), arms, Record()  # a table that learned so many of the rewards

    @classmethod
    def of(cls, table: CovarianceTable) -> Self | None:
        """Return the course that begins with a table; None if there is none."""
        believed = table.gaussian
        return None if believed is None else cls(table, FewArms(table, believed, table.counts))

    @property
    def belief(self) -> CovarianceTable:
        """The table that learned all rewards told."""
        table, first = self._known
        if first < self.record.number:
            table = table.followed(*self.record.columns(first), self._arms.believed)
            self._known = table, self.record.number
        return table

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the table that learned all rewards told."""
        return changed(self, _known=(self.belief, 0), record=Record())

    @property
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""
        table, first = self._known
        return table.num_observations + self.record.number - first

    @property
    def regularization(self) -> Tensor:
        """λ, 0-dim, in reward units squared."""
        return self._known[0].regularization

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self._arms.information_gain()

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice:
        """Return the arm of the highest score."""
        return self._arms.choice(rule, beta, seed)

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after the reward of an arm; None where the posterior would not be finite."""
        arms = self._arms.told(choice.place, y)
        return None if arms is None else changed(self, _arms=arms, record=self.record.followed(choice, y))

    def played(
        self, rule: AcquisitionRule, width: Width, seed: Callable[[int], int], rewards: np.ndarray
    ) -> Self | None:
        """Return the course after rounds of which all rewards are known; see ``Course``."""
        gone = [0] * len(rewards)
        came = rounds_of(self._arms, rule, width, seed, rewards, Counting((), (), gone, self.num_observations))
        return came and changed(self, _arms=came.arms, record=self.record.extended(came.choices, came.rewards))

    def remember(self, choice: Choice) -> None:
        """Do nothing: the table knows its arms."""
