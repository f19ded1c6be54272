"""Sensors as arms: the covariance is learned from some readings and the others are replayed."""

import math

import torch

from torch_kbandits import checks
from torch_kbandits.environments.covariances import norm_of_values
from torch_kbandits.environments.options import choice, whole_number
from torch_kbandits.environments.replay import ReplayedArms
from torch_kbandits.environments.sensor_csv import read_sensor_csv
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import PrecomputedKernel


def sensors(
    csv: str,
    *,
    train_fraction: float = 0.5,
    noise_fraction: float = 0.05,
    gaps: str = "refuse",
    header: bool | None = None,
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
        gaps: "refuse" or "drop" rows with a missing reading.
        header: whether the first row names the sensors; None: it does if none of its cells is a number.
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
    whole_number("seed", seed)
    names, readings = read_sensor_csv(csv, gaps=gaps, header=header, delimiter=delimiter)
    number = math.floor(fraction * len(readings) + 1e-9)  # 0.29 of 100 rows are 29, whatever 0.29 is in binary
    train, test = readings[:number], readings[number:]
    if len(train) < 2 or len(test) < 1:
        raise InputError(
            f"{csv} has {len(readings)} usable row(s) of readings, of which {len(train)} are to learn from and "
            f"{len(test)} to replay: at least 2 and 1 are needed. Give more rows or another train_fraction."
        )
    constant = (train == train[0]).all(0).nonzero().flatten().tolist()
    if constant:
        listed = ", ".join(f"{i + 1} ({names[i]})" for i in constant)
        raise InputError(f"{csv}: column(s) {listed} are constant over the {len(train)} training rows; remove them.")
    covariance = train.T.cov()
    noise_variance = checks.positive("noise_fraction", noise_fraction) * float(covariance.diagonal().mean())
    center = float(train.mean())
    return ReplayedArms(
        torch.arange(len(names), dtype=torch.float64).unsqueeze(-1),
        test.T.contiguous(),
        seed,
        simultaneous=True,
        noise_scale=math.sqrt(noise_variance),
        kernel=PrecomputedKernel(covariance),
        regularization=noise_variance,
        norm_bound=norm_of_values(covariance, test.mean(0) - center, norm),
        center=center,
    )
