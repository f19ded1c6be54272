"""What the examples share: options, colours, and results written whole, with the versions that made them."""

import json
import platform
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch_kbandits.files import write_text

#: Colours that those who see fewer can tell apart, by Okabe and Ito.
BLUE, SKY, GREEN, ORANGE, YELLOW, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#CC79A7"
BLACK, GREY = "#000000", "#666666"

PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def whole_number(least: int = 1, most: int | None = None) -> Callable[[str], int]:
    """Return the type of an option that takes a whole number in a range."""

    def read(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            expected = f"at least {least}" if most is None else f"from {least} to {most}"
            raise ArgumentTypeError(f"must be {expected}, got {value}")
        return value

    read.__name__ = "whole number"  # which is how a text that is none is told
    return read


def make_folder(parser: ArgumentParser, folder: Path) -> None:
    """Make the folder that an option names; one that cannot be made ends the program with a message."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output must name a folder that can be made: {error}.")


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a JSON record; NaN and infinity, which JSON lacks, raise ValueError."""
    write_text(path, json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
