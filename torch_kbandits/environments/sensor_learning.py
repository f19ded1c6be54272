"""What the first rows of sensor readings say about the others: a covariance, a level and a noise."""

import math
from typing import NamedTuple

from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.sensor_csv import Readings
from torch_kbandits.errors import InputError


class Learned(NamedTuple):
    """What training rows say.

    Args:
        covariance: (A, A), the empirical covariance of the sensors.
        center: the overall mean.
        noise_variance: a fraction of the average empirical variance.
        rest: (times, A), the rows that were not learned from.
    """

    covariance: Tensor
    center: float
    noise_variance: float
    rest: Tensor


def learn(path: str, readings: Readings, train_fraction: float, noise_fraction: float) -> Learned:
    """Learn from the first rows and keep the others.

    Args:
        path: the file, for error messages.
        readings: what it holds.
        train_fraction: in (0, 1), the share of the rows to learn from, rounded down.
        noise_fraction: R² as a fraction of the average empirical variance.

    Raises:
        InputError: if training has fewer than two rows or nothing is left; if a sensor is constant in training.
    """
    names, values, times = readings
    number = math.floor(train_fraction * len(values) + 1e-9)  # 0.29 of 100 rows are 29, whatever 0.29 is in binary
    train, rest = values[:number], values[number:]
    if len(train) < 2 or len(rest) < 1:
        raise InputError(
            f"{path} has {len(values)} usable row(s) of readings, of which {len(train)} are to learn from and "
            f"{len(rest)} to replay: at least 2 and 1 are needed. Give more rows or another train_fraction."
        )
    constant = (train == train[0]).all(0).nonzero().flatten().tolist()
    if constant:
        first = 1 if times is None else 2
        listed = ", ".join(f"{i + first} ({names[i]})" for i in constant)
        raise InputError(f"{path}: column(s) {listed} are constant over the {len(train)} training rows; remove them.")
    covariance = train.T.cov()
    noise_variance = checks.positive("noise_fraction", noise_fraction) * float(covariance.diagonal().mean())
    return Learned(covariance, float(train.mean()), noise_variance, rest)
