"""Figures as files."""

from io import BytesIO
from pathlib import Path
from typing import Any

from torch_kbandits.files import write_whole

#: What files of figures may be.
FORMATS = ("png", "pdf", "svg")

#: Dots per inch of formats that have dots.
_DOTS_PER_INCH = 150


def write_figure(path: Path, figure: Any, **words: Any) -> None:
    """Write a figure of matplotlib in the format that the suffix names, whole or not at all.

    Args:
        path: of the file.
        figure: any.
        words: further ones of ``savefig``.

    Raises:
        FileError: if it cannot be written; then an old file is as it was.
    """
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or None, dpi=_DOTS_PER_INCH, **words)
    write_whole(path, content.getvalue())
