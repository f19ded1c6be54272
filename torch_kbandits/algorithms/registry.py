"""The named algorithms, by name."""

import difflib
import inspect
from typing import Any

from torch_kbandits.algorithms.bkb import BKB
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InputError

_ALGORITHMS: dict[str, type[Bandit]] = {"bkb": BKB}


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_ALGORITHMS)


def build(name: str, **config: Any) -> Bandit:
    """Make an algorithm by its name.

    Args:
        name: one of ``names()``.
        config: the arguments of its class.

    Raises:
        InputError: if there is no such algorithm (the message has the nearest name) or the arguments do not fit.
    """
    if name not in _ALGORITHMS:
        near = difflib.get_close_matches(str(name).lower(), _ALGORITHMS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"There is no algorithm {name!r}: {hint}")
    algorithm = _ALGORITHMS[name]
    try:
        inspect.signature(algorithm).bind(**config)
    except TypeError as error:
        raise InputError(f"{algorithm.__name__} takes other arguments: {error}.") from None
    return algorithm(**config)
