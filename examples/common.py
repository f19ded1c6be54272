"""What the examples share: options, runs of several seeds, results written whole, tables, and how figures look."""

import json
import multiprocessing
import platform
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torch_kbandits.files import write_text
from torch_kbandits.plotting.style import write_figure

#: Colours that those who see fewer can tell apart, by Okabe and Ito.
BLUE, SKY, GREEN, ORANGE, YELLOW, PURPLE = "#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#CC79A7"
BLACK, GREY, DASHED = "#000000", "#666666", (0, (4, 2))
#: Of lines, so that they differ in print, too.
STYLES = ("solid", DASHED, (0, (6, 1.5, 1, 1.5)), (0, (1, 1.5)), (0, (8, 2)), (0, (2, 1)))

#: What a script finds, as JSON has it.
Record = dict[str, Any]

_PACKAGES = ("torch-kbandits", "torch", "gpytorch", "botorch", "numpy", "scikit-learn")


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


def options_of(
    name: str,
    doc: str | None,
    arguments: Sequence[str] | None,
    size: tuple[str, int, int, str, int | None] | None = None,
    seed: int = 0,
    more: Record | None = None,
    **within: int,
) -> Namespace:
    """Return the options of an example, and make the folder to write to; what is wrong ends the program.

    A run has a size within a range: its name, value, value in a quick run, what it is, and how many runs there are.
    """
    parser = ArgumentParser(description=(doc or "").splitlines()[0], formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seed", type=int, default=seed, help="of the first run; the next has the next")
    parser.add_argument("--output", type=Path, default=Path("runs") / name, help="folder to write to")
    if size is not None:
        what, default, quick, about, runs = size
        parser.add_argument(f"--{what}", dest="size", type=whole_number(**within), default=default, help=about)
        parser.add_argument("--quick", action="store_true", help=f"one run of {quick} {what}")
        if runs is not None:
            parser.add_argument("--runs", type=whole_number(), default=runs, help="how often all of it starts anew")
    for flag, words in (more or {}).items():
        parser.add_argument(flag, **words)
    options = parser.parse_args(arguments)
    if size is not None and options.quick:
        options.size, options.runs = size[2], 1
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--output must name a folder that can be made: {error}.")
    options.started = time.perf_counter()
    return options


def play(run: Callable[[int, int], Record], options: Namespace, processes: int = 2) -> list[Record]:
    """Return what comes of each run, which takes its seed and size; several share some processes."""
    seeds = range(options.seed, options.seed + options.runs)
    if options.runs == 1 or processes == 1:
        return [run(seed, options.size) for seed in seeds]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(run, seeds, repeat(options.size)))


Report = Callable[[Record], Iterable[Table | str]]
Draw = Callable[[Record], Figure]


def script(
    name: str, doc: str | None, run: Any, report: Report, draw: Draw, settings: Record, processes: int = 2, **words: Any
) -> Callable[..., None]:
    """Return the program that plays all runs, then writes record and figure; the words are those of `options_of`."""

    def main(arguments: Sequence[str] | None = None) -> None:
        options = options_of(name, doc, arguments, **words)
        known = {words["size"][0]: options.size, "seed": options.seed} | settings
        finish(options, {"settings": known, "runs": play(run, options, processes)}, report, figure=draw)

    return main


def finish(options: Namespace, record: Record, report: Report, **figures: Draw) -> None:
    """Write the record, with versions and seconds, and figures by their names; print the report of it."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
    seconds = time.perf_counter() - options.started
    record = {"versions": versions, "total_seconds": seconds} | record
    # NaN and infinity JSON lacks.
    text = json.dumps(record, indent=1, allow_nan=False, ensure_ascii=False, default=_plain)
    write_text(options.output / "record.json", text + "\n")
    for name, draw in figures.items():
        write_figure(options.output / f"{name}.png", draw(record))
    console = Console(width=max(Console().width, 130))  # a pipe would get 80 columns and cut the cells
    for each in report(record):
        console.print(each, highlight=False)
    written = " and ".join(str(options.output / name) for name in ("record.json", *(f"{each}.png" for each in figures)))
    console.print(f"{seconds:.0f} seconds in all. Wrote {written}.", highlight=False, soft_wrap=True)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str] | None]) -> Table:
    """Return a table, in which a row of None begins a section; the first column is of words."""
    found = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        found.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        if row is None:
            found.add_section()
        else:
            found.add_row(*row)
    return found


def spread(values: Sequence[Any] | np.ndarray, form: str = ".3f") -> str:
    """Return mean ± standard deviation; of a single value it alone."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):{form}}"


def runs_of(runs: Sequence[Record]) -> str:
    """Return how many runs there are, in words."""
    return f"{len(runs)} run{'s' * (len(runs) > 1)}"


def tidy(panels: Sequence[Axes], letters: str = "", plain: Sequence[Axes] = ()) -> None:
    """Give panels letters before their titles, and all but the plain ones a faint grid and no frame above and right."""
    for axes, letter in zip(panels, letters, strict=False):
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11, color="black")
        axes.set_title("")
    for axes in panels:
        if axes not in plain:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color="0.92", linewidth=0.8)
            axes.set_axisbelow(True)


def below(axes: Axes, handles: Sequence[Any], columns: int = 2, offset: float = -0.12) -> None:
    """Put the legend under the axis label, where it hides nothing."""
    where = {"loc": "upper center", "bbox_to_anchor": (0.5, offset)}
    axes.legend(handles=list(handles), fontsize=9, ncols=columns, frameon=False, **where)


def line(label: str, **words: Any) -> Line2D:
    """Return an entry of a legend, a grey line unless the words say otherwise."""
    return Line2D([], [], label=label, **{"color": GREY, "linewidth": 2.0, **words})


def curves_of(axes: Axes, numbers: Any, curves: Any, color: str, **words: Any) -> list[Line2D]:
    """Draw a curve of each run thinly, (runs, n), and their mean; return the mean's for the legend."""
    axes.plot(numbers, np.transpose(curves), color=color, linewidth=0.6, alpha=0.4)
    return axes.plot(numbers, np.mean(curves, axis=0), color=color, linewidth=2.2, **words)


def ticks(axis: Axis, places: Sequence[float]) -> None:
    """Mark some places of an axis, and no others."""
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
