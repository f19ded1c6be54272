"""What is believed of few arms in the course of plain rounds, and which of them is chosen."""

import math
from collections.abc import Callable, Mapping
from typing import Self

import torch
from torch import Tensor

from torch_kbandits.acquisition import AcquisitionRule, UpperConfidenceRule, rule_loops
from torch_kbandits.beliefs.course import Choice
from torch_kbandits.beliefs.covariances import CovarianceTable, Gaussian, correction
from torch_kbandits.models.normal import MIN_VARIANCE
from torch_kbandits.numerics.random import ROUNDING_SHARE
from torch_kbandits.numerics.shallow import changed


class FewArms:
    """The posterior at the arms, as ``ArmPosterior``. A value.

    Args:
        table: of these arms; what it was told does not matter.
        believed: of the arms.
        counts: how often each row was played of what counts, in the order of first play.
    """

    def __init__(self, table: CovarianceTable, believed: Gaussian, counts: Mapping[int, float]) -> None:
        self.table, self.believed, self.counts = table, believed, counts
        self._noise, self._bound = float(table.regularization), float(table.kernel_bound())

    @property
    def mean(self) -> Tensor:
        """Posterior means of the arms, (A,)."""
        return torch.from_numpy(self.believed.mean)

    @property
    def variance(self) -> Tensor:
        """Posterior variances of the arms, (A,), in reward units squared."""
        return torch.from_numpy(self.believed.variance)

    @property
    def incumbent(self) -> Tensor:
        """The largest posterior mean of a played point, 0-dim."""
        played = [*self.counts]
        best = self.believed.mean[played].max() if played else 0.0
        return torch.full((), best, dtype=torch.float64)

    def deviation(self, seed: int) -> Tensor:
        """Return a draw of f − mean, (A,)."""
        return self.table.corrected(seed, self._correction)

    def _correction(self, prior_at: Callable[[Tensor], Tensor], generator: torch.Generator) -> Tensor:
        rows = torch.tensor([*self.counts], dtype=torch.long)
        counts = torch.tensor([*self.counts.values()], dtype=torch.float64)
        return correction(torch.from_numpy(self.believed.covariance), rows, counts, self._noise, prior_at, generator)

    def information_gain(self) -> Tensor:
        """Return ½ log det V, 0-dim, in nats."""
        return self.table.regularization.new_tensor(0.5 * self.believed.log_det)

    def choice(self, rule: AcquisitionRule, beta: Tensor, seed: Callable[[], int]) -> Choice:
        """Return the arm of the highest score."""
        (_, variance, mean, *_), row = self.believed, None
        if type(rule) is UpperConfidenceRule:
            share = ROUNDING_SHARE[torch.float64]
            known = mean, variance, float(beta), MIN_VARIANCE, self._bound, share
            number, _, is_alone = rule_loops.highest_upper_confidence(*known)
            row = number if is_alone else None
        if row is None:
            row = self.table.highest(rule.scaled_to(self.table).on_arms(self, beta, seed()), beta)
        return Choice(self.table.arm(row), row, float(mean[row]), float(variance[row]))

    def observed(self, row: int, count: float, total: float) -> Self | None:
        """Return the same after so many rewards of a row, with this sum; None where something is not finite.

        Counts stay as they are. A negative count takes back rewards, whose sum is negative then.
        """
        believed = self.believed.observed(row, count, total, self._noise)
        return None if math.isnan(believed.wear) else changed(self, believed=believed)

    def told(self, row: int, y: float) -> Self | None:
        """Return the same after a reward of a row; None where something is not finite."""
        after = self.observed(row, 1.0, y)
        if after is not None:
            after.counts = {**self.counts, row: self.counts.get(row, 0.0) + 1.0}
        return after
