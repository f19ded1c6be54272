"""Checks of the options that name a problem in a spec: the error has what came and the nearest valid name."""

import math
from collections.abc import Iterable
from typing import Any

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Numbers in double precision that 2 GB hold.
_MOST_NUMBERS = 2**28


def choice(name: str, value: Any, valid: Iterable[Any]) -> Any:
    """Return ``value`` if it is one of the valid ones."""
    known = list(valid)
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}{nearest(value, known)}.")
    return value


def check_size(what: str, *counts: int) -> None:
    """Refuse a problem with more numbers in one tensor than 2 GB hold: the product of the counts.

    Args:
        what: names the counts, as "num_arms × dimension".
        counts: whole numbers.

    Raises:
        InputError: if it is too large.
    """
    if math.prod(counts) > _MOST_NUMBERS:
        raise InputError(
            f"{what} must be at most {_MOST_NUMBERS:,}, the numbers that fit into 2 GB; got "
            f"{' × '.join(map(checks.shown, counts))}: give fewer."
        )


def nearest(value: Any, known: Iterable[Any]) -> str:
    """Return " (did you mean …?)", or nothing if no known name is near."""
    near = checks.nearest_name(value, known)
    return f" (did you mean {near!r}?)" if near else ""


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false, got {checks.describe(value)}.")
    return value
