"""The named algorithms, by name: each is the class of that name, whatever its case and hyphens."""

import inspect
from collections.abc import Callable
from typing import Any

from torch_kbandits import algorithms, checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InputError

_NAMES = """
    ada-bkb bbkb bkb bob-gp-ucb bpe cbbkb cbkb dms-gp-ucb dms-tv-gp-ucb ek-ucb et-gp-ucb gp-ei gp-pi gp-ts gp-ucb
    hp-gp-ts igp-ucb irgp-ucb k-ucb lb-gp-ucb lin-ucb master-gp-ucb mini-gp-ucb mvr pe-gp-ts pe-gp-ucb r-gp-ucb r-perp
    random rkb shared-lin-ucb sparq-gp-ucb sup-kernel-ucb sw-gp-ucb tv-gp-ucb ui-gp-ucb w-gp-ucb w-sparq-gp-ucb
"""


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_NAMES.split())


def signature(name: str | Callable[..., Any]) -> inspect.Signature:
    """Return the arguments that an algorithm takes by name; it is given as in ``build``."""
    own = inspect.signature(_find(name))
    kept = [word for word in own.parameters.values() if word.kind not in (word.VAR_POSITIONAL, word.VAR_KEYWORD)]
    return own.replace(parameters=kept)


def summary(name: str) -> str:
    """Return what an algorithm is, in one line: the first of its class's docstring."""
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
    if name not in names():
        near = checks.nearest_name(name, names())
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"There is no algorithm {name!r}: {hint}")
    classes = {kind.lower(): kind for kind in dir(algorithms) if not kind.islower()} | {"random": "RandomSearch"}
    return getattr(algorithms, classes[name.replace("-", "")])
