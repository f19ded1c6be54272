"""Few arms with all their covariances in the course of plain rounds."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain
from torch_kbandits.beliefs.course import Choice, Course
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.few_arms import FewArms
from torch_kbandits.numerics.shallow import changed


class CovarianceCourse(Course):
    """What is believed of the arms together, and which rewards made it so. Cost of a round: O(A²).

    Args:
        table: before.
        arms: its arms.
    """

    def __init__(self, table: CovarianceTable, arms: FewArms) -> None:
        self._known, self._arms = (table, 0), arms  # a table that learned so many of the rewards
        self._choices, self._rewards, self._number = list[Choice](), list[float](), 0

    @classmethod
    def of(cls, table: CovarianceTable) -> Self | None:
        """Return the course that begins with a table; None if there is none."""
        believed = table.gaussian
        return None if believed is None else cls(table, FewArms(table, believed, table.counts))

    @property
    def belief(self) -> CovarianceTable:
        """The table that learned all rewards told."""
        table, number = self._known
        if number < self._number:
            Y = torch.tensor(self._rewards[number : self._number], dtype=torch.float64)
            table = table.followed(self._points(number), Y, self._arms.believed)
            self._known = table, self._number
        return table

    @property
    def begun_anew(self) -> Self:
        """The course that begins with the table that learned all rewards told."""
        return changed(self, _known=(self.belief, 0), _choices=[], _rewards=[], _number=0)

    @property
    def number(self) -> int:
        """How many rewards were told since the course began."""
        return self._number

    @property
    def points(self) -> Tensor:
        """The points told since the course began, (k, d), in order."""
        return self._points(0)

    def _points(self, first: int) -> Tensor:
        return torch.cat([choice.point for choice in self._choices[first : self._number]])

    @property
    def rewards(self) -> list[float]:
        """Their rewards."""
        return self._rewards[: self._number]

    @property
    def num_observations(self) -> int:
        """Number t of observations, those before the course included."""
        table, number = self._known
        return table.num_observations + self._number - number

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
        arms, number = self._arms.told(choice.place, y), self._number
        if arms is None:
            return None
        del self._choices[number:], self._rewards[number:]  # what an interrupted call left
        self._choices.append(choice)
        self._rewards.append(y)
        return changed(self, _arms=arms, _number=number + 1)

    def remember(self, choice: Choice) -> None:
        """Do nothing: the table knows its arms."""
