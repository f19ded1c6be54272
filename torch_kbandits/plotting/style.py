"""How figures look, and how they become files: curves that print and the colour-blind tell apart, legible text."""

from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

from torch_kbandits.extras import require
from torch_kbandits.files import file_error, write_whole

#: What files of figures may be, and the scale of regret.
FORMATS, SCALES = ("png", "pdf", "svg"), ("auto", "linear", "log")
#: Okabe and Ito's colours, which the colour-blind tell apart; yellow is left out, it is too light for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
POSTERIOR, DICTIONARY, PENDING, RECOMMENDED, PLAYED = COLOURS[:5]
#: Curves differ in all three at once, so that they are told apart in print and by the colour-blind.
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
MARKERS = "os^DvPX"
#: In points; nothing is written smaller.
TEXT, SMALL = 9.0, 8.0
#: Dots per inch of formats that have dots.
_DOTS_PER_INCH = 150


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of matplotlib, of a size in inches."""
    return require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def write_figure(path: Path, figure: Any, **words: Any) -> None:
    """Write a figure of matplotlib in the format that the suffix names, whole or not at all; words of ``savefig``."""
    content = BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".") or None, dpi=_DOTS_PER_INCH, **words)
    write_whole(path, content.getvalue())


def write_figures(figures: Mapping[str, Any], directory: str | PathLike[str], format: str, **words: Any) -> list[Path]:
    """Write figures by their names into a directory, which is made if it does not exist; return their files."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("written", directory, error) from error
    files = {Path(directory) / f"{name}.{format}": figure for name, figure in figures.items()}
    for file, figure in files.items():
        write_figure(file, figure, **words)
    return list(files)


def labelled(ax: Any, x: str, y: str, title: str = "") -> Any:
    """Name what axes show, with a faint grid below and no frame above and on the right, and return their figure."""
    ax.set_xlabel(x, fontsize=TEXT)
    ax.set_ylabel(y, fontsize=TEXT)
    ax.set_title(title, fontsize=SMALL, loc="left", color="0.3")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=TEXT)
    return ax.get_figure(root=True)


def plain_logarithmic(axis: Any, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis with plain numbers, in each decade with these: 1, 2, 5, 10 and so on."""
    ticker = require("matplotlib.ticker")
    axis.set_major_locator(ticker.LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(ticker.NullFormatter())


def legend_below(ax: Any) -> None:
    """Put a legend of what has a label under the label of the horizontal axis."""
    number = len(ax.get_legend_handles_labels()[0])
    words = {"fontsize": SMALL, "frameon": False, "loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
    ax.legend(ncols=min(2, number), **words)
