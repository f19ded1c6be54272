"""How the examples leave their results behind: whole or not at all, with the versions that made them."""

import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON record; NaN and infinity, which JSON lacks, raise ValueError."""
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False)
    _write_whole(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure in the format that the suffix names, at 150 dots per inch."""
    _write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150))


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target and rename, so that nobody ever reads half a file."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
