"""The named algorithms, by name."""

import inspect
from collections.abc import Callable
from typing import Any

from torch_kbandits import algorithms, checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InputError

#: The class of each in ``torch_kbandits.algorithms``, which is imported when it is asked for.
_ALGORITHMS = {
    "bbkb": "BBKB",
    "bkb": "BKB",
    "bob-gp-ucb": "BOBGPUCB",
    "cbbkb": "CBBKB",
    "cbkb": "CBKB",
    "dms-gp-ucb": "DMSGPUCB",
    "dms-tv-gp-ucb": "DMSTVGPUCB",
    "ek-ucb": "EKUCB",
    "et-gp-ucb": "ETGPUCB",
    "gp-ei": "GPEI",
    "gp-pi": "GPPI",
    "gp-ts": "GPTS",
    "gp-ucb": "GPUCB",
    "igp-ucb": "IGPUCB",
    "k-ucb": "KUCB",
    "lin-ucb": "LinUCB",
    "mini-gp-ucb": "MiniGPUCB",
    "hp-gp-ts": "HPGPTS",
    "lb-gp-ucb": "LBGPUCB",
    "pe-gp-ts": "PEGPTS",
    "pe-gp-ucb": "PEGPUCB",
    "random": "RandomSearch",
    "w-gp-ucb": "WGPUCB",
    "ui-gp-ucb": "UIGPUCB",
    "tv-gp-ucb": "TVGPUCB",
    "sw-gp-ucb": "SWGPUCB",
    "r-gp-ucb": "RGPUCB",
    "sparq-gp-ucb": "SparQGPUCB",
    "sup-kernel-ucb": "SupKernelUCB",
}


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_ALGORITHMS)


def signature(name: str | Callable[..., Any]) -> inspect.Signature:
    """Return the arguments that an algorithm takes by name.

    Args:
        name: one of ``names()``, or a class or a function that makes one.

    Raises:
        InputError: if there is no such algorithm; the message has the nearest name.
    """
    own = inspect.signature(_find(name))
    kept = [word for word in own.parameters.values() if word.kind not in (word.VAR_POSITIONAL, word.VAR_KEYWORD)]
    return own.replace(parameters=kept)


def summary(name: str) -> str:
    """Return what an algorithm is, in one line: the first of its class's docstring.

    Raises:
        InputError: if there is no such algorithm; the message has the nearest name.
    """
    return (inspect.getdoc(_find(name)) or "").partition("\n")[0]


def build(name: str | Callable[..., Any], **config: Any) -> Bandit:
    """Make an algorithm by its name.

    Args:
        name: one of ``names()``, or a class or a function that makes one.
        config: the arguments of its class.

    Raises:
        InputError: if there is no such algorithm (the message has the nearest name) or the arguments do not fit.
    """
    made_by = _find(name)
    try:
        signature(made_by).bind(**config)
    except TypeError as error:
        raise InputError(f"{made_by.__name__} takes other arguments: {error}.") from None
    return made_by(**config)


def _find(name: str | Callable[..., Any]) -> Callable[..., Any]:
    if callable(name):
        return name
    if name not in _ALGORITHMS:
        near = checks.nearest_name(name, _ALGORITHMS)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"There is no algorithm {name!r}: {hint}")
    return getattr(algorithms, _ALGORITHMS[name])
