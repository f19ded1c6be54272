"""The algorithms and environments that a spec may name, and what each may be given."""

import inspect
from collections.abc import Mapping
from typing import Any

from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.environments import registry as environments
from torch_kbandits.errors import InputError
from torch_kbandits.experiments.nearest import check_keys, pick

#: What a run gives an algorithm itself; a spec may not.
_GIVEN = ("candidates", "bounds", "seed")


def algorithm_options(name: str) -> dict[str, Any]:
    """Return the options of an algorithm with their defaults, ``inspect.Parameter.empty`` where there is none."""
    return {key: word.default for key, word in algorithms.signature(name).parameters.items() if key not in _GIVEN}


def environment_options(name: str) -> dict[str, Any]:
    """Return the options of an environment with their defaults, ``inspect.Parameter.empty`` where there is none."""
    return environments.describe(name)[1]


def check_algorithm(where: str, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an algorithm or an option that does not exist; the error has the nearest name."""
    pick(where, "algorithm", name, algorithms.names())
    check_keys(where, f"option of algorithm {name!r}", options, algorithm_options(name))


def check_environment(where: str, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an environment or an option that does not exist, and a needed option that is not there."""
    pick(where, "environment", name, environments.names())
    known = environment_options(name)
    check_keys(where, f"option of environment {name!r}", options, known)
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in options:
            raise InputError(f"{where}: environment {name!r} needs {key}.")
