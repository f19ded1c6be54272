"""Finished runs as figures: regret, its average, its difference from a baseline, dictionary growth and time."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from torch_kbandits.environments.options import pick
from torch_kbandits.errors import InputError
from torch_kbandits.experiments.summary import Group, Record, group, outside_median
from torch_kbandits.plotting import style

#: Marks on a curve; inches of a panel; and what is further apart at the end is drawn on a logarithmic axis.
_MARKS, _PANEL, _APART = 6, (5.0, 3.6), 20.0


class _Curve(NamedTuple):
    """A line (k,) at x (k,), and what to shade between, if anything."""

    x: ndarray
    line: ndarray
    shade: tuple[ndarray, ndarray] | None = None


def plot(
    records: Sequence[Record],
    directory: str | Path,
    *,
    scale: str = "auto",
    baseline: str | None = None,
    format: str = "png",
) -> list[Path]:
    """Draw medians over seeds between their quartiles, with a panel for each environment.

    Args:
        records: finished runs.
        directory: where the files go; made if it does not exist.
        scale: of regret: "linear", "log", or "auto", which is "log" where algorithms end more than 20 times apart.
        baseline: the label of the algorithm from which differences of regret are drawn; None for no such figure.
        format: "png", "pdf" or "svg".

    Returns:
        The files regret, average-regret, regret-against-time, dictionary, time, and difference if there is a baseline.
    """
    pick("format", "format of figures", format, style.FORMATS)
    return style.write_figures(figures(records, scale=scale, baseline=baseline), directory, format)


def figures(records: Sequence[Record], *, scale: str = "auto", baseline: str | None = None) -> dict[str, Any]:
    """Return the figures by name, in the order of ``plot``, whose arguments and errors these are."""
    pick("scale", "scale", scale, style.SCALES)
    if not records:
        raise InputError("There is no finished run to draw.")
    groups = group(records, baseline)
    numbers = {len(entry.runs) for entry in groups}
    number = f"{numbers.pop()} seeds" if len(numbers) == 1 and numbers != {1} else "seeds"
    legend = f"medians over {number}; band: quartiles"
    rounds = [np.array(entry.runs[0].recorded_rounds, dtype=float) for entry in groups]
    regrets, seconds, sizes = (
        [np.array([getattr(run, name) for run in entry.runs], dtype=float) for entry in groups]
        for name in ("cumulative_regret", "cumulative_seconds", "dictionary_size")
    )
    average = [values / t for values, t in zip(regrets, rounds, strict=True)]
    clock = [np.median(values, axis=0) for values in seconds]
    t, label, spent = "round t", "cumulative regret (reward units)", "seconds of ask and tell, cumulative"
    shown: dict[str, tuple[list[ndarray], list[ndarray], *tuple[str, ...]]] = {
        "regret": (rounds, regrets, t, label, scale),
        "average-regret": (rounds, average, t, "cumulative regret / t", scale),
        "regret-against-time": (clock, regrets, spent, label, scale, "log"),
        "dictionary": (rounds, sizes, t, "dictionary size (points)"),
        "time": (rounds, seconds, t, spent),
    }
    found = {name: _draw(groups, list(map(_over_seeds, x, y)), legend, *axes) for name, (x, y, *axes) in shown.items()}
    if baseline is not None:
        least = min((len(entry.pairs) for entry in groups if entry.pairs), default=0)
        around = "95% interval of the median" if outside_median(least) else "smallest to largest"
        legend = f"cumulative regret less that of {baseline}, paired by seed: medians; band: {around}"
        differences = [_difference(at, entry.pairs, least) for at, entry in zip(rounds, groups, strict=True)]
        axes = t, "difference of regret (reward units)", scale
        found["difference"] = _draw(groups, differences, legend, *axes)
    return found


# ---------------------------------------------------------------- inside


def _over_seeds(x: ndarray, values: ndarray) -> _Curve:
    """Return the quartiles of values (S, k) over seeds, with nothing to shade for one seed."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    return _Curve(x, middle, (low, high) if len(values) > 1 else None)


def _difference(x: ndarray, pairs: list[tuple[Record, Record]], least: int) -> _Curve | None:
    """Return the median of paired differences with its interval, or with all of them where the least pairs are few."""
    if not pairs:
        return None
    own, other = (np.array([runs[i].cumulative_regret for runs in pairs]) for i in range(2))
    ordered, outside = np.sort(own - other, axis=0), outside_median(len(pairs)) if outside_median(least) else 1
    return _Curve(x, np.median(ordered, axis=0), (ordered[outside - 1], ordered[-outside]) if len(pairs) > 1 else None)


def _draw(
    groups: Sequence[Group],
    curves: Sequence[_Curve | None],
    legend: str,
    xlabel: str,
    ylabel: str,
    yscale: str = "linear",
    xscale: str = "linear",
) -> Any:
    """Return a figure of a curve for each group, or none, with a panel for each environment."""
    environments = list(dict.fromkeys(entry.environment for entry in groups))
    # Of all groups, so that an algorithm looks the same in every figure.
    algorithms = list(dict.fromkeys(entry.algorithm for entry in groups))
    columns = min(len(environments), 2 if len(environments) == 4 else 3)
    rows = math.ceil(len(environments) / columns)
    figure = style.new_figure(_PANEL[0] * columns, _PANEL[1] * rows + 0.24 * (1 + len(algorithms) / columns))
    panels, named = figure.subplots(rows, columns, squeeze=False).flatten(), dict[str, Any]()
    for panel, environment in zip(panels, environments, strict=False):
        drawn = zip(groups, curves, strict=True)
        here = {entry.algorithm: curve for entry, curve in drawn if curve and entry.environment == environment}
        for algorithm, curve in here.items():
            named[algorithm] = _line(panel, curve, algorithms.index(algorithm), len(algorithms))
        panel.set(title=environment, xlabel=xlabel, ylabel=ylabel, xscale=xscale)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(alpha=0.25, linewidth=0.6)
        _scale(panel, yscale, [curve.line for curve in here.values()])
    for panel in panels[len(environments) :]:
        panel.set_axis_off()
    words = {"ncols": columns, "title": legend, "title_fontsize": "small", "frameon": False, "handlelength": 3.5}
    figure.legend(named.values(), named.keys(), loc="outside lower center", **words)
    return figure


def _line(panel: Any, curve: _Curve, number: int, of: int) -> Any:
    """Draw a curve, the one of this number, and return what the legend shows."""
    colour, step = style.COLOURS[number % len(style.COLOURS)], max(1, len(curve.x) // _MARKS)
    if curve.shade is not None:
        panel.fill_between(curve.x, *curve.shade, color=colour, alpha=0.15, linewidth=0)
    words = {"linestyle": style.DASHES[number % len(style.DASHES)], "linewidth": 1.6, "markersize": 5}
    words |= {"marker": style.MARKERS[number % len(style.MARKERS)], "markerfacecolor": "white"}
    # The marks of curves that lie on each other do not.
    (handle,) = panel.plot(curve.x, curve.line, color=colour, markevery=(step * number // of, step), **words)
    return handle


def _scale(panel: Any, scale: str, lines: list[ndarray]) -> None:
    """Give a panel its vertical axis; what may be negative has no logarithm."""
    ends = [abs(line[-1]) for line in lines if line[-1] != 0.0]
    is_far = bool(ends) and scale != "linear" and (scale == "log" or max(ends) > _APART * min(ends))
    has_sign = any((line < 0.0).any() for line in lines)
    if is_far and not has_sign:
        panel.set_yscale("log")
        low, high = panel.get_ylim()
        # Few decades leave room for more labels than one a decade.
        style.plain_logarithmic(panel.yaxis, (1.0, 2.0, 5.0) if high < 1_000.0 * low else (1.0,))
    elif is_far:
        panel.set_yscale("symlog", linthresh=min(ends))
        panel.yaxis.set_major_formatter("{x:g}")
    elif not has_sign:
        panel.set_ylim(bottom=0.0)
    if has_sign:
        panel.axhline(0.0, color="black", linewidth=0.8)
