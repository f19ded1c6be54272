"""How the examples leave their results behind: whole or not at all, with the versions that made them."""

import json
import platform
from argparse import ArgumentParser
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from torch_kbandits.files import write_text, write_whole

PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def make_folder(parser: ArgumentParser, folder: Path) -> None:
    """Make the folder that an option names; one that cannot be made ends the program with a message."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output must name a folder that can be made: {error}.")


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON record; NaN and infinity, which JSON lacks, raise ValueError."""
    write_text(path, json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure in the format that the suffix names, at 150 dots per inch."""
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or None, dpi=150)
    write_whole(path, content.getvalue())
