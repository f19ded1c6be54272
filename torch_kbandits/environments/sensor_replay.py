"""Recorded readings that are played back in the order of their times."""

import math
from typing import Unpack

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.problem import Known, noiseless
from torch_kbandits.environments.sensor_csv import read_locations, read_sensor_csv
from torch_kbandits.environments.sensor_learning import learn
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel


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
        self,
        arms: Tensor,
        readings: Tensor,
        seed: int,
        *,
        noise_scale: float = 0.0,
        **known: Unpack[Known],
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


def sensor_replay(
    csv: str,
    *,
    locations: str | None = None,
    train_fraction: float = 0.2,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    delimiter: str = ",",
    seed: int,
) -> SensorReplay:
    """Readings of a CSV file in the order of time: each round, find the sensor that reads highest now.

    One row is one round, in the order of the file; times are not interpreted, so rows should be equally far apart.

    Args:
        csv: path of the file; rows are times in order, columns are sensors. The first row may name the sensors, the
            first column may have times.
        locations: path of a file with the name and the coordinates of each sensor, which then are the arms, (A, d).
            None: arms are the numbers 0 … A − 1, (A, 1).
        train_fraction: share of the rows, rounded down, that are learned from and not replayed. They give ``center``, λ
            and, without locations, the empirical covariance as ``kernel``. 0: all rows are replayed, and the three are
            unknown.
        noise_fraction: R² = λ as a fraction of the average empirical variance.
        gaps: "refuse" or "drop" rows with a missing reading, or take the "previous" one of the sensor.
        header: whether the first row names the sensors; None: it does if none of its cells is a number.
        times: whether the first column has times; None: it has if none of its cells is a number.
        delimiter: between cells, in both files.
        seed: draws nothing; runs with several seeds differ in the algorithm's randomness alone.

    Raises:
        InputError: on a file that does not fit, with line and column; if training has fewer than two rows or nothing is
            left; if a sensor is constant in training.
    """
    if (train_fraction := checks.non_negative("train_fraction", train_fraction)) >= 1.0:
        raise InputError(f"train_fraction must be at least 0 and below 1, got {train_fraction}.")
    checks.whole_number("seed", seed)
    readings = read_sensor_csv(csv, gaps=gaps, header=header, times=times, delimiter=delimiter)
    names, values, _ = readings
    if locations is None:
        arms = torch.arange(len(names), dtype=torch.float64).unsqueeze(-1)
    else:
        arms = read_locations(locations, names, delimiter=delimiter)
    if train_fraction == 0.0:
        return SensorReplay(arms, values, seed)
    covariance, center, noise_variance, rest = learn(csv, readings, train_fraction, noise_fraction)
    return SensorReplay(
        arms,
        rest,
        seed,
        noise_scale=math.sqrt(noise_variance),
        kernel=PrecomputedKernel(covariance) if locations is None else None,
        regularization=noise_variance,
        center=center,
    )
