"""Packages of the ``experiments`` extra, which only tables, figures and the command line need."""

import importlib
from types import ModuleType

from torch_kbandits.errors import KernelBanditError


class MissingExtraError(KernelBanditError, ImportError):
    """A package of an extra is not installed; the message has the command that installs it."""


def require(module: str) -> ModuleType:
    """Import a module of the ``experiments`` extra.

    Raises:
        MissingExtraError: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs the package {error.name!r}, which is not installed. "
            "Install what experiments need: pip install 'torch-kbandits[experiments]'"
        ) from None
