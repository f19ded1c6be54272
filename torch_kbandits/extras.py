"""Packages that are installed by name, as extras: only who uses the part needs them."""

import importlib
from types import ModuleType

from torch_kbandits.errors import KernelBanditError


class MissingExtraError(KernelBanditError, ImportError):
    """A package of an extra is not installed; the message has the command that installs it."""


def how_to_install(extra: str) -> str:
    """Return the words of a message that say how an extra is installed: from a clone, as long as none is published."""
    return f"Install it with what goes with it, in a clone of torch_kbandits: pip install -e '.[{extra}]'"


def require(module: str, extra: str = "experiments") -> ModuleType:
    """Import a module that an extra installs.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs the package {error.name!r}, which is not installed. {how_to_install(extra)}"
        ) from None
