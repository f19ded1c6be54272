"""Problems on fixed arms, given by their means, or by rewards that were recorded."""

from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.base import ArmIndex, DynamicEnvironment, Environment, Known, noiseless
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


class FiniteArms(Environment):
    """Arms with known means and Gaussian noise; regret is measured against the means.

    Args:
        arms: (A, d); an arm that stands twice must have one mean.
        means: expected rewards (A,), in reward units.
        noise_scale: standard deviation of the noise, at least 0.
        seed: addresses the noise.
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.

    Cost: O(A d) time and memory once; then O(d) a row of any call, whatever A.
    """

    arms: Tensor

    def __init__(self, arms: Tensor, means: Tensor, noise_scale: float, seed: int, **known: Unpack[Known]) -> None:
        super().__init__(noise_scale, seed, **known)
        self._index = ArmIndex(arms)
        means = self._index.checked_means(means)
        self.arms, self.means, self.best_mean = self._index.arms, means, means.max()

    def indices(self, X: Tensor) -> list[int]:
        """Return the positions among the arms of the rows of X (q, d); of equal arms, the first."""
        return self._index.find(X).tolist()

    def mean(self, X: Tensor) -> Tensor:
        """Return the expected rewards (q,) of arms X (q, d)."""
        return self.means[self._index.find(X)]


class ReplayedArms(Environment):
    """Arms whose rewards were recorded: a pull returns one of an arm's records, so the noise is real.

    The mean of an arm is the mean of its records. Which record a round returns is addressed by (seed, round).

    Args:
        arms: (A, d).
        records: (A, S) rewards.
        seed: addresses the records.
        simultaneous: whether the S columns were recorded together, as readings of many sensors at a time. Then all rows
            of a pull come from one column; otherwise each row of a pull draws a record of its own.
        noise_scale: R for an algorithm; the root of the variance within arms, averaged over arms, unless given. Either
            way it is no bound: records of one arm may spread wider than those of another.
        known: kernel, regularization, norm_bound and center: as in ``Environment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named.
    """

    arms: Tensor

    def __init__(
        self,
        arms: Tensor,
        records: Tensor,
        seed: int,
        *,
        simultaneous: bool,
        noise_scale: float | None = None,
        **known: Unpack[Known],
    ) -> None:
        records = checks.finite("records", checks.rows("records", records))
        if records.dim() != 2:
            raise InputError(f"records must be (A, S), got {checks.describe(records)}.")
        means = records.mean(1)
        if noise_scale is None:
            noise_scale = float(records.var(1, correction=0).mean().sqrt())
        super().__init__(noise_scale, seed, noise=self._recorded, **known)
        self._index = ArmIndex(arms)
        self._index.checked_means(means)
        self.arms, self.means, self.best_mean = self._index.arms, means, means.max()
        self.records, self.simultaneous = records, checks.flag("simultaneous", simultaneous)

    def mean(self, X: Tensor) -> Tensor:
        """Return the mean records (q,) of arms X (q, d)."""
        return self.means[self._index.find(X)]

    def _recorded(self, X: Tensor, means: Tensor, round: int) -> Tensor:
        rows = self._index.find(X)
        number, draws = self.records.shape[1], 1 if self.simultaneous else len(rows)
        chosen = torch.randint(number, (draws,), generator=generator_for(self.seed, round, "record"), device="cpu")
        return self.records[rows, chosen.to(rows.device)]


class SensorReplay(DynamicEnvironment):
    """Recorded readings, a row for each round: an arm is a sensor, its reward the reading of that time.

    Readings are the mean rewards, and nothing is added to them: what moves from row to row is the problem. Regret is
    against the sensor that reads highest in the round.

    Args:
        arms: (A, d), where the sensors are.
        readings: (T, A), in the order of time, in reward units.
        seed: draws nothing.
        noise_scale: R for an algorithm, in reward units; 0 if unknown.
        known: kernel, regularization, norm_bound and center: as in ``DynamicEnvironment``.

    Raises:
        InputError: on shapes, dtypes or values that do not fit, each named; if two sensors are in one place.
    """

    def __init__(
        self, arms: Tensor, readings: Tensor, seed: int, *, noise_scale: float = 0.0, **known: Unpack[Known]
    ) -> None:
        readings = checks.finite("readings", checks.rows("readings", readings))
        if readings.dim() != 2 or len(readings) == 0:
            raise InputError(f"readings must be (T, A) with T >= 1, got {checks.describe(readings)}.")
        super().__init__(arms, noise_scale, seed, rounds=len(readings), noise=noiseless, **known)
        checks.same_kind("readings", readings, self.arms)
        if readings.shape[1] != len(self.arms):
            raise InputError(
                f"arms must be (A, d) and readings (T, A); got {checks.describe(self.arms)} and "
                f"{checks.describe(readings)}."
            )
        self.readings = readings

    def means(self, round: int) -> Tensor:
        """Return the readings (A,) of a round."""
        return self.readings[round].clone()
