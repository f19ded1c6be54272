"""What to say about a name that is not known: where it stands and the nearest one that is."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch_kbandits import checks
from torch_kbandits.errors import InputError

#: Tables and lists within each other.
_DEEPEST = 20


def unknown(where: str, kind: str, name: object, valid: Iterable[str], own: str = "") -> InputError:
    """Return the error for a name that is none of the valid ones.

    Args:
        where: the place in the spec, such as "algorithms[0]".
        kind: what the name should be, such as "algorithm".
        name: what came.
        valid: the names that are known.
        own: how something of one's own may be named; nothing where it may not.
    """
    known = sorted(valid)
    near = checks.nearest_name(name, known, cutoff=0.4)
    guess = f"did you mean {near!r}? " if near else ""
    listed = f"Known: {', '.join(known)}." if known else "None may be given."
    listed += f" Your own is {own}." if own else ""
    return InputError(f"{where}: {name!r} is no {kind}; {guess}{listed}")


def table(where: str, value: Any) -> Mapping[str, Any]:
    """Return ``value`` if it is a table: a mapping from names to values."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} must be a table of names and values, got {checks.describe(value)}.")
    return value


def check_depth(where: str, value: Any) -> None:
    """Refuse tables and lists that are nested so deeply that no spec means it."""
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST:
            raise InputError(f"{where} is nested too deeply: {_DEEPEST} tables or lists within each other are enough.")
        inner = [part.values() if isinstance(part, Mapping) else part for part in level if _is_nest(part)]
        level, depth = [part for parts in inner for part in parts], depth + 1


def _is_nest(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def check_keys(where: str, kind: str, value: Mapping[str, Any], valid: Iterable[str]) -> None:
    """Refuse keys of a table that are none of the valid ones; the first is named."""
    known = set(valid)
    for key in value:
        if key not in known:
            raise unknown(where, kind, key, known)


def pick(where: str, kind: str, name: Any, valid: Iterable[str], own: str = "") -> str:
    """Return ``name`` if it is one of the valid ones; the words are those of ``unknown``."""
    known = list(valid)
    if name not in known:
        raise unknown(where, kind, name, known, own)
    return name
