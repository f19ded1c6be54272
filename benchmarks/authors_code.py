"""Code of other authors, which this repository has no copy of: where it lies, and words for where it does not."""

import importlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Checkout:
    """A checkout of a public source that an environment variable names; by one of its files a wrong one is told."""

    variable: str
    source: str
    file: str

    def missing(self) -> str | None:
        """Return what to do where the variable is not set; None where the checkout is there. Refuse another folder."""
        named = os.environ.get(self.variable)
        if not named:
            return f"not played: set {self.variable} to a checkout of {self.source}"
        if not (Path(named) / self.file).is_file():
            raise FileNotFoundError(
                f"{self.variable} is {named!r}, which has no {self.file}: name a checkout of {self.source}."
            )
        return None

    def folder(self) -> Path:
        """Return the checkout; without one FileNotFoundError says what to do."""
        if reason := self.missing():
            raise FileNotFoundError(reason)
        return Path(os.environ[self.variable]).resolve()

    def modules(self, *names: str) -> list[ModuleType]:
        """Import modules of the checkout by their names there, and leave no trace under those names."""
        folder = str(self.folder())
        before = set(sys.modules)
        sys.path.insert(0, folder)
        try:
            return [importlib.import_module(name) for name in names]
        finally:
            sys.path.remove(folder)
            for name in set(sys.modules) - before:
                if Path(getattr(sys.modules[name], "__file__", None) or "").is_relative_to(folder):
                    del sys.modules[name]
