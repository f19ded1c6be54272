"""What is imported at its first use: public names of a package, as PEP 562 has it, and packages of an extra."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from torch_kbandits.errors import KernelBanditError


class MissingExtraError(KernelBanditError, ImportError):
    """A package of an extra is not installed; the message has the command that installs it."""


def how_to_install(extra: str) -> str:
    """Return the words of a message that say how an extra is installed: from a clone, as long as none is published."""
    return f"Install it with what goes with it, in a clone of torch_kbandits: pip install -e '.[{extra}]'"


def require(module: str, extra: str = "experiments") -> ModuleType:
    """Import a module that an extra installs, or say how."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs the package {error.name!r}, which is not installed. {how_to_install(extra)}"
        ) from None


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package, by its ``__name__``.

    Its names are read from the imports under ``if TYPE_CHECKING:`` in its source. Submodules are found, too. No name
    may be that of a submodule, to which Python would bind it when the submodule is imported.
    """
    module = sys.modules[package]
    source = module.__spec__.loader.get_source(package)  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    homes = {
        alias.name: str(node.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def resolve(name: str) -> Any:
        home = homes.get(name, package)
        if home != package:
            value = getattr(import_module(home), name)
        elif name.startswith("_"):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        else:
            try:
                value = import_module(f"{package}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{package}.{name}":
                    raise
                raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module) from None
        setattr(module, name, value)
        return value

    return resolve, lambda: sorted({*vars(module), *homes}), sorted(homes)
