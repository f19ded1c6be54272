"""Public names of a package that are imported at their first use, as PEP 562 has it."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package, by its ``__name__``.

    The package imports its names under ``if TYPE_CHECKING:``, where type checkers and documentation find them, and
    this function reads them from its source. So each stands once. Submodules are found by their names, too. No exported
    name may be that of a submodule, to which Python would bind it when the submodule is imported.
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
