"""The named algorithms, by name: each is the class of the module of its name."""

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from torch_kbandits import algorithms, checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InputError

#: Modules here that are no algorithms.
_OTHERS = ("arguments", "registry")


@cache
def _modules() -> dict[str, str]:
    """Return the modules of the algorithms, by the names of these."""
    found = sorted(each.name for each in iter_modules(algorithms.__path__))
    return {module.replace("_", "-"): module for module in found if module not in _OTHERS}


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_modules())


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
    if name not in _modules():
        near = checks.nearest_name(name, _modules())
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"There is no algorithm {name!r}: {hint}")
    module = import_module(f"{algorithms.__name__}.{_modules()[name]}")
    own = (kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__)
    return next(kind for kind in own if issubclass(kind, Bandit))
