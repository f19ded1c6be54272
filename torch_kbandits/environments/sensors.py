"""Sensors as arms: the covariance is learned from some readings and the others are replayed."""

import math

import torch

from torch_kbandits import checks
from torch_kbandits.environments.covariances import norm_of_values
from torch_kbandits.environments.options import choice
from torch_kbandits.environments.replay import ReplayedArms
from torch_kbandits.environments.sensor_csv import read_sensor_csv
from torch_kbandits.environments.sensor_learning import learn
from torch_kbandits.kernels import PrecomputedKernel


def sensors(
    csv: str,
    *,
    train_fraction: float = 0.5,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
    times: bool | None = None,
    delimiter: str = ",",
    norm: str | None = None,
    seed: int,
) -> ReplayedArms:
    """Sensors of a CSV file as arms: find the one that reads highest, with their empirical covariance as kernel.

    The first rows give the covariance of the sensors and their overall mean; the others are the test rows. A pull reads
    all played sensors in one test row, addressed by (seed, round); the mean of an arm is its mean over the test rows.

    Source: Chowdhury & Gopalan, ICML 2017, §6, after Srinivas et al., ICML 2010. Differs: the paper takes each test row
    as a function of its own and averages over them; here a round draws a row, so there is one best sensor. The prior
    mean is one constant, ``center``.

    Args:
        csv: path of the file; rows are times in order, columns are sensors, the first row may name them.
        train_fraction: share of the rows to learn from, rounded down.
        noise_fraction: R² as a fraction of the average empirical variance. R is what the paper gives to its algorithms;
            readings of a sensor may well spread wider over the test rows.
        gaps: "refuse" or "drop" rows with a missing reading, or take the "previous" one of the sensor.
        header: whether the first row names the sensors; None: it does if none of its cells is a number.
        times: whether the first column has times, which are left out; None: it has if none of its cells is a number.
        delimiter: between cells.
        norm: "rkhs" or "printed" makes ``norm_bound`` √(fᵀK⁻¹f) or √(fᵀKf) of the centred means; None leaves it
            unknown. With fewer training rows than sensors K is singular and the first says little.
        seed: addresses the rows replayed.

    Returns:
        Arms (A, 1) holding 0 … A − 1, with a ``PrecomputedKernel`` on them; regularization λ = R².

    Raises:
        InputError: on a file that does not fit, with line and column; if training has fewer than two rows or the test
            none; if a sensor is constant in training.
    """
    fraction = checks.open_unit_interval("train_fraction", train_fraction)
    choice("norm", norm, ("rkhs", "printed", None))
    checks.whole_number("seed", seed)
    readings = read_sensor_csv(csv, gaps=gaps, header=header, times=times, delimiter=delimiter)
    covariance, center, noise_variance, test = learn(csv, readings, fraction, noise_fraction)
    return ReplayedArms(
        torch.arange(test.shape[1], dtype=torch.float64).unsqueeze(-1),
        test.T.contiguous(),
        seed,
        simultaneous=True,
        noise_scale=math.sqrt(noise_variance),
        kernel=PrecomputedKernel(covariance),
        regularization=noise_variance,
        norm_bound=norm_of_values(covariance, test.mean(0) - center, norm),
        center=center,
    )
