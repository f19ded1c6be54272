"""Few arms with all their covariances in the course of plain rounds."""

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, Domain, UpperConfidenceRule, rule_loops
from torch_kbandits.acquisition.rules import MIN_VARIANCE
from torch_kbandits.beliefs.course import Choice, Course
from torch_kbandits.beliefs.covariances import CovarianceTable, Gaussian, correction
from torch_kbandits.numerics.random import ROUNDING_SHARE
from torch_kbandits.numerics.shallow import changed


class CovarianceCourse(Course):
    """What is believed of the arms together, and which rewards made it so. Cost of a round: O(A²).

    Args:
        table: before.
        believed: its arms.
    """

    def __init__(self, table: CovarianceTable, believed: Gaussian) -> None:
        self._known, self._believed = (table, 0), believed  # a table that learned so many of the rewards
        self._choices, self._rewards, self._number = list[Choice](), list[float](), 0
        self._noise, self._bound = float(table.regularization), float(table.kernel_bound())
        self._played = table.counts  # of each row of a played arm, in the order of first play

    @classmethod
    def of(cls, table: CovarianceTable) -> Self | None:
        """Return the course that begins with a table that was told something; None if there is none."""
        believed = table.gaussian
        return None if believed is None else cls(table, believed)

    @property
    def belief(self) -> CovarianceTable:
        """The table that learned all rewards told."""
        table, number = self._known
        if number < self._number:
            X = torch.cat([choice.point for choice in self._choices[number : self._number]])
            Y = torch.tensor(self._rewards[number : self._number], dtype=torch.float64)
            table = table.followed(X, Y, self._believed)
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
        return torch.cat([choice.point for choice in self._choices[: self._number]])

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
        return self.regularization.new_tensor(0.5 * self._believed.log_det)

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return torch.from_numpy(self._believed.mean)

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return torch.from_numpy(self._believed.variance)

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a played point, 0-dim."""
        return torch.from_numpy(self._believed.mean[[*self._played]].max(keepdims=True)).squeeze(0)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,)."""
        return self._known[0].corrected(seed, self._correction)

    def _correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        rows, counts = torch.tensor([*self._played]), torch.tensor([*self._played.values()], dtype=torch.float64)
        return correction(torch.from_numpy(self._believed.covariance), rows, counts, self._noise, prior_at, generator)

    def choose(
        self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int], domain: Domain | None = None
    ) -> Choice:
        """Return the arm of the highest score."""
        table, (_, variance, mean, *_), row = self._known[0], self._believed, None
        if type(rule) is UpperConfidenceRule:
            share = ROUNDING_SHARE[torch.float64]
            known = mean, variance, float(beta), MIN_VARIANCE, self._bound, share
            number, _, is_alone = rule_loops.highest_upper_confidence(*known)
            row = number if is_alone else None
        if row is None:
            row = table.highest(rule.on_arms(self, beta, seed()), beta)
        return Choice(table.arm(row), row, float(mean[row]), float(variance[row]))

    def told(self, choice: Choice, y: float) -> Self | None:
        """Return the course after the reward of an arm; None where the posterior would not be finite."""
        believed = self._believed.observed(choice.place, y, self._noise)
        if believed is None:
            return None
        number, row = self._number, choice.place
        del self._choices[number:], self._rewards[number:]  # what an interrupted call left
        self._choices.append(choice)
        self._rewards.append(y)
        played = {**self._played, row: self._played.get(row, 0.0) + 1.0}
        return changed(self, _believed=believed, _number=number + 1, _played=played)

    def remember(self, choice: Choice) -> None:
        """Do nothing: the table knows its arms."""
