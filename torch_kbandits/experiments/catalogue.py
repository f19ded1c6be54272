"""The algorithms and environments that a spec may name, and what each may be given."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from torch_kbandits.algorithms import registry as algorithms
from torch_kbandits.environments import AnyEnvironment
from torch_kbandits.environments import registry as environments
from torch_kbandits.errors import InputError
from torch_kbandits.experiments import own
from torch_kbandits.experiments.nearest import check_keys, pick

#: What a run gives an algorithm itself; a spec may not.
_GIVEN = ("candidates", "bounds", "seed")


def named(name: str) -> str | Callable[..., Any]:
    """Return what the registries take: a name of theirs as it is, and the class that another name stands for."""
    return own.load(name, name) if own.is_own(name) else name


def algorithm_options(name: str) -> dict[str, Any]:
    """Return the options of an algorithm with their defaults, ``inspect.Parameter.empty`` where there is none."""
    words = algorithms.signature(named(name)).parameters
    return {key: word.default for key, word in words.items() if key not in _GIVEN}


def environment_options(name: str) -> dict[str, Any]:
    """Return the options of an environment with their defaults, ``inspect.Parameter.empty`` where there is none."""
    return environments.describe(named(name))[1]


def check_algorithm(where: str, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an algorithm or an option that does not exist; the error has the nearest name."""
    if not own.is_own(name):
        pick(where, "algorithm", name, algorithms.names(), own.FORMS)
    elif isinstance(kind := own.load(where, name), type) and not plays(kind):
        raise InputError(
            f"{where}: {own.what(name)} is no algorithm: it must be a Bandit, have methods ask() and tell(x, y), or be "
            "a function that returns such an object."
        )
    check_keys(where, f"option of algorithm {own.what(name)!r}", options, algorithm_options(name))


def check_environment(where: str, name: str, options: Mapping[str, Any]) -> None:
    """Refuse an environment or an option that does not exist, and a needed option that is not there."""
    if not own.is_own(name):
        pick(where, "environment", name, environments.names(), own.FORMS)
    else:
        kind, bases = own.load(where, name), get_args(AnyEnvironment)
        if isinstance(kind, type) and not issubclass(kind, bases):
            raise InputError(
                f"{where}: {own.what(name)} is no environment: it must be a subclass of "
                f"{', '.join(base.__name__ for base in bases[:-1])} or {bases[-1].__name__}, such as FiniteArms, or a "
                "function that returns such an object."
            )
        if "seed" not in own.parameters(kind):
            raise InputError(
                f"{where}: {own.what(name)} must take seed, which addresses the noise and all else that is random."
            )
    known = environment_options(name)
    check_keys(where, f"option of environment {own.what(name)!r}", options, known)
    for key, default in known.items():
        if default is inspect.Parameter.empty and key not in options:
            raise InputError(f"{where}: environment {own.what(name)!r} needs {key}.")


def plays(player: Any) -> bool:
    """Whether an object, or those of a class, can be asked and told."""
    return all(callable(getattr(player, name, None)) for name in ("ask", "tell"))
