"""Packages that are installed by name, as extras: only who uses the part needs them."""

import importlib
from types import ModuleType

from torch_kbandits.errors import KernelBanditError


class MissingExtraError(KernelBanditError, ImportError):
    """A package of an extra is not installed; the message has the command that installs it."""


def require(module: str, extra: str = "experiments") -> ModuleType:
    """Import a module that an extra installs.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs the package {error.name!r}, which is not installed. "
            f"Install it with what goes with it: pip install 'torch-kbandits[{extra}]'"
        ) from None
