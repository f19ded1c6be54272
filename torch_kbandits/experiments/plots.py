"""Finished runs as figures: regret, its average, dictionary growth and time."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from torch_kbandits.environments.options import pick
from torch_kbandits.errors import InputError
from torch_kbandits.experiments.summary import Record, group
from torch_kbandits.plotting import style

#: Marks on a curve; inches of a panel; and what is further apart at the end is drawn on a logarithmic axis.
_MARKS, _PANEL, _APART = 6, (5.0, 3.6), 20.0


def plot(records: Sequence[Record], directory: str | Path, *, scale: str = "auto", format: str = "png") -> list[Path]:
    """Draw medians over seeds between their quartiles, with a panel for each environment.

    Args:
        records: finished runs.
        directory: where the files go; made if it does not exist.
        scale: of regret: "linear", "log", or "auto", which is "log" where algorithms end more than 20 times apart.
        format: "png", "pdf" or "svg".

    Returns:
        The files regret, average-regret, regret-against-time, dictionary and time.
    """
    pick("format", "format of figures", format, style.FORMATS)
    return style.write_figures(figures(records, scale), directory, format)


def figures(records: Sequence[Record], scale: str = "auto") -> dict[str, Any]:
    """Return the figures by name, in the order of ``plot``, whose arguments and errors these are."""
    pick("scale", "scale", scale, style.SCALES)
    if not records:
        raise InputError("There is no finished run to draw.")
    groups = group(records)
    numbers = {len(runs) for runs in groups.values()}
    number = f"{numbers.pop()} seeds" if len(numbers) == 1 and numbers != {1} else "seeds"
    legend = f"medians over {number}; band: quartiles"
    rounds = [np.array(runs[0].recorded_rounds, dtype=float) for runs in groups.values()]
    regrets, seconds, sizes = (
        [np.array([getattr(run, name) for run in runs], dtype=float) for runs in groups.values()]
        for name in ("cumulative_regret", "cumulative_seconds", "dictionary_size")
    )
    average = [values / t for values, t in zip(regrets, rounds, strict=True)]
    clock = [np.median(values, axis=0) for values in seconds]
    t, label, spent = "round t", "cumulative regret (reward units)", "processor seconds of ask and tell, cumulative"
    shown: dict[str, tuple[list[ndarray], list[ndarray], *tuple[str, ...]]] = {
        "regret": (rounds, regrets, t, label, scale),
        "average-regret": (rounds, average, t, "cumulative regret / t", scale),
        "regret-against-time": (clock, regrets, spent, label, scale, "log"),
        "dictionary": (rounds, sizes, t, "dictionary size (points)"),
        "time": (rounds, seconds, t, spent),
    }
    return {name: _draw(groups, x, y, legend, *axes) for name, (x, y, *axes) in shown.items()}


# ---------------------------------------------------------------- inside


def _draw(
    groups: Iterable[tuple[str, str]],
    x: Sequence[ndarray],
    y: Sequence[ndarray],
    legend: str,
    xlabel: str,
    ylabel: str,
    yscale: str = "linear",
    xscale: str = "linear",
) -> Any:
    """Return a figure with values (S, k) at x (k,) for each group, and a panel for each environment."""
    environments, algorithms = (list(dict.fromkeys(labels)) for labels in zip(*groups, strict=True))
    columns = min(len(environments), 2 if len(environments) == 4 else 3)
    rows = math.ceil(len(environments) / columns)
    figure = style.new_figure(_PANEL[0] * columns, _PANEL[1] * rows + 0.24 * (1 + len(algorithms) / columns))
    panels, named = figure.subplots(rows, columns, squeeze=False).flatten(), dict[str, Any]()
    for panel, environment in zip(panels, environments, strict=False):
        ends = []
        for (where, algorithm), at, values in zip(groups, x, y, strict=True):
            if where == environment:
                named[algorithm] = _line(panel, at, values, algorithms.index(algorithm), len(algorithms))
                ends.append(np.median(values[:, -1]))
        panel.set(title=environment, xlabel=xlabel, ylabel=ylabel, xscale=xscale)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.25, linewidth=0.6)
        _scale(panel, yscale, [end for end in ends if end > 0.0])
    for panel in panels[len(environments) :]:
        panel.set_axis_off()
    words = {"ncols": columns, "title": legend, "title_fontsize": "small", "frameon": False, "handlelength": 3.5}
    figure.legend(named.values(), named.keys(), loc="outside lower center", **words)
    return figure


def _line(panel: Any, x: ndarray, values: ndarray, number: int, of: int) -> Any:
    """Draw the median of values (S, k) between their quartiles, the curve of this number; return its legend's entry."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    colour, step = style.COLOURS[number % len(style.COLOURS)], max(1, len(x) // _MARKS)
    if len(values) > 1:
        panel.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    words = {"linestyle": style.DASHES[number % len(style.DASHES)], "linewidth": 1.6, "markersize": 5}
    words |= {"marker": style.MARKERS[number % len(style.MARKERS)], "markerfacecolor": "white"}
    # The marks of curves that lie on each other do not.
    (handle,) = panel.plot(x, middle, color=colour, markevery=(step * number // of, step), **words)
    return handle


def _scale(panel: Any, scale: str, ends: list[float]) -> None:
    """Give a panel its vertical axis, of the ends of curves that are positive."""
    if not ends or scale == "linear" or (scale == "auto" and max(ends) <= _APART * min(ends)):
        panel.set_ylim(bottom=0.0)
        return
    panel.set_yscale("log")
    low, high = panel.get_ylim()
    # Few decades leave room for more labels than one a decade.
    style.plain_logarithmic(panel.yaxis, (1.0, 2.0, 5.0) if high < 1_000.0 * low else (1.0,))
