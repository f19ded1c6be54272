"""Finished runs as figures: regret, its average, its difference from a baseline, dictionary growth and time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.experiments.names import pick
from torch_kbandits.experiments.records import Record
from torch_kbandits.experiments.summary import Group, check_baseline, group, outside_median, pairs
from torch_kbandits.plotting.style import (
    COLOURS,
    DASHES,
    FORMATS,
    MARKERS,
    SCALES,
    new_figure,
    plain_logarithmic,
    write_figure,
)

#: Marks on a curve.
_MARKS = 6
#: Curves in a panel; where there are more of them, each panel has some, before all others in grey.
_MOST_CURVES = 6
#: Regrets at the end further apart than this are drawn on a logarithmic axis.
_APART = 20.0
#: Inches: of a panel; of a line of the legend, what it shows beside the words, and a letter.
_PANEL, _LEGEND_LINE, _HANDLE, _LETTER = (5.0, 3.6), 0.24, 0.9, 0.085
#: Panels beside each other, by their number; three for any other.
_COLUMNS = {1: 1, 2: 2, 4: 2}
_GREY = "0.8"

_BANDS = {
    "quartiles": "medians over {seeds}; band: quartiles",
    "error": "means over {seeds}; band: standard error",
    "deviation": "means over {seeds}; band: standard deviation",
    "seeds": "medians over {seeds}; thin: each seed",
    "none": "medians over {seeds}",
}


@dataclass(frozen=True)
class _Curve:
    """A line (k,) at x (k,), what to shade between if anything, and thin lines (S, k) if any."""

    x: Tensor
    line: Tensor
    shade: tuple[Tensor, Tensor] | None = None
    thin: Tensor | None = None


@dataclass(frozen=True)
class _Kind:
    """A figure: its axes, how a group is drawn, and what is said above the legend."""

    x: str
    y: str
    curve: Callable[[Group], _Curve | None]
    legend: str
    xscale: str = "linear"
    yscale: str = "linear"


def plot(
    records: Sequence[Record],
    directory: str | Path,
    *,
    band: str = "quartiles",
    scale: str = "auto",
    baseline: str | None = None,
    format: str = "png",
) -> list[Path]:
    """Draw the figures, one panel for each environment; several for one with more than six algorithms.

    Args:
        records: finished runs.
        directory: where the files go; made if it does not exist.
        band: "quartiles" over seeds around their medians; "error" or "deviation", the standard error or the standard
            deviation, around their means; "seeds", a thin line for each seed; or "none".
        scale: of regret: "linear", "log", or "auto", which is logarithmic in an environment in which algorithms end
            more than twenty times apart.
        baseline: the label of the algorithm from which differences of regret are drawn; None for no such figure.
        format: "png", "pdf" or "svg".

    Returns:
        The files regret, average-regret, regret-against-time, dictionary, time, and difference if there is a baseline.

    Raises:
        InputError: if there are no records, no run has the baseline's label, or another word does not exist.
    """
    pick("format", "format of figures", format, FORMATS)
    drawn = figures(records, band=band, scale=scale, baseline=baseline)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, figure in drawn.items():
        files.append(folder / f"{name}.{format}")
        write_figure(files[-1], figure)
    return files


def figures(
    records: Sequence[Record], *, band: str = "quartiles", scale: str = "auto", baseline: str | None = None
) -> dict[str, Any]:
    """Return the figures by name, in the order of ``plot``, whose arguments and errors these are."""
    pick("band", "band", band, _BANDS)
    pick("scale", "scale", scale, SCALES)
    if not records:
        raise InputError("There is no finished run to draw.")
    groups = group(records)
    check_baseline(groups, baseline)
    numbers = {len(entry.runs) for entry in groups}
    seeds = f"{numbers.pop()} seeds" if len(numbers) == 1 and numbers != {1} else "seeds"
    over, said = partial(_over_seeds, band=band), _BANDS[band].format(seeds=seeds)
    regret, spent = "cumulative regret (reward units)", "seconds of ask and tell, cumulative"
    kinds = {
        "regret": _Kind("round t", regret, lambda g: over(_rounds(g), _regret(g)), said, yscale=scale),
        "average-regret": _Kind(
            "round t",
            "cumulative regret / t",
            lambda g: over(_rounds(g), _regret(g) / _rounds(g)),
            said,
            yscale=scale,
        ),
        "regret-against-time": _Kind(
            spent, regret, lambda g: over(_seconds(g).median(0).values, _regret(g)), said, "log", scale
        ),
        "dictionary": _Kind(
            "round t", "dictionary size (points)", lambda g: over(_rounds(g), _series(g, "dictionary_size")), said
        ),
        "time": _Kind("round t", spent, lambda g: over(_rounds(g), _seconds(g)), said),
    }
    if baseline is not None:
        least = min(filter(None, (len(pairs(entry, groups, baseline)) for entry in groups)), default=0)
        around = "95% interval of the median" if outside_median(least) else "smallest to largest"
        said = f"cumulative regret less that of {baseline}, paired by seed: medians; band: {around}"
        y = "difference of regret (reward units)"
        kinds["difference"] = _Kind(
            "round t",
            y,
            lambda g: _difference(pairs(g, groups, baseline), least),
            said,
            yscale="linear" if scale == "linear" else "auto",  # what may be negative has no logarithm
        )
    return {name: _draw(groups, kind) for name, kind in kinds.items()}


# ---------------------------------------------------------------- a figure


def _draw(groups: Sequence[Group], kind: _Kind) -> Any:
    """Return a figure with a panel for each environment, or a row of them if it has many algorithms."""
    environments = list(dict.fromkeys(entry.environment for entry in groups))
    # Of all groups, so that an algorithm looks the same in every figure.
    parts = _parts(list(dict.fromkeys(entry.algorithm for entry in groups)))
    curves = [(entry, curve) for entry in groups if (curve := kind.curve(entry)) is not None]
    columns = len(parts) if len(parts) > 1 else _COLUMNS.get(len(environments), 3)
    rows = math.ceil(len(environments) * len(parts) / columns)
    width, longest = _PANEL[0] * columns, max(len(name) for part in parts for name in part)
    ncols = 1 if len(parts) > 1 else max(1, min(len(parts[0]), int(width / (_HANDLE + _LETTER * longest))))
    size = (width, _PANEL[1] * rows + _LEGEND_LINE * (1 + math.ceil(len(parts[0]) / ncols)))
    figure = new_figure(*size)
    panels = figure.subplots(rows, columns, squeeze=False, sharey="row" if len(parts) > 1 else False).flatten()
    named: list[dict[str, Any]] = [{} for _ in parts]
    for number, environment in enumerate(environments):
        here = [(entry.algorithm, curve) for entry, curve in curves if entry.environment == environment]
        row = panels[number * len(parts) : (number + 1) * len(parts)]
        for place, (panel, part) in enumerate(zip(row, parts, strict=True)):
            for algorithm, curve in here:
                if algorithm not in part:
                    panel.plot(curve.x.numpy(), curve.line.numpy(), color=_GREY, linewidth=1.0, zorder=1)
            for algorithm, curve in here:
                if algorithm in part:
                    handle = _line(panel, curve, part.index(algorithm), len(part))
                    named[place].setdefault(algorithm, handle)
            panel.set(title=environment, xlabel=kind.x, ylabel=kind.y)
            panel.grid(alpha=0.25, linewidth=0.6)
        for panel in row:  # when all are drawn, since they share an axis
            _scale(panel, kind, [curve for _, curve in here])
    for panel in panels[len(environments) * len(parts) :]:
        panel.set_axis_off()
    _name(figure, panels, named, kind.legend, ncols)
    return figure


def _parts(algorithms: list[str]) -> list[list[str]]:
    """Return the algorithms in parts of about equal size, which have a panel each."""
    size = math.ceil(len(algorithms) / math.ceil(len(algorithms) / _MOST_CURVES))
    return [algorithms[start : start + size] for start in range(0, len(algorithms), size)]


def _line(panel: Any, curve: _Curve, number: int, of: int) -> Any:
    """Draw a curve, the one of this number, and return what the legend shows."""
    colour, xs = COLOURS[number % len(COLOURS)], curve.x.numpy()
    for thin in [] if curve.thin is None else curve.thin:
        panel.plot(xs, thin.numpy(), color=colour, linewidth=0.6, alpha=0.4)
    if curve.shade is not None:
        low, high = (side.numpy() for side in curve.shade)
        panel.fill_between(xs, low, high, color=colour, alpha=0.15, linewidth=0)
    step = max(1, len(xs) // _MARKS)
    (handle,) = panel.plot(
        xs,
        curve.line.numpy(),
        color=colour,
        linestyle=DASHES[number % len(DASHES)],
        linewidth=1.6,
        marker=MARKERS[number % len(MARKERS)],
        # The marks of curves that lie on each other do not.
        markevery=(step * number // of, step),
        markersize=5,
        markerfacecolor="white",
    )
    return handle


def _scale(panel: Any, kind: _Kind, curves: list[_Curve]) -> None:
    """Give a panel its axes."""
    ends = [abs(float(curve.line[-1])) for curve in curves if float(curve.line[-1]) != 0.0]
    is_far = len(ends) > 1 and max(ends) > _APART * min(ends)
    has_sign = any(bool((curve.line < 0.0).any()) for curve in curves)
    if kind.xscale == "log":
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
    if kind.yscale == "log" or (kind.yscale == "auto" and is_far and not has_sign):
        panel.set_yscale("log")
        low, high = panel.get_ylim()
        # Few decades leave room for more labels than one a decade.
        plain_logarithmic(panel.yaxis, (1.0, 2.0, 5.0) if high < 1_000.0 * low else (1.0,))
    elif kind.yscale == "auto" and is_far:
        panel.set_yscale("symlog", linthresh=min(ends))
        panel.yaxis.set_major_formatter("{x:g}")
    elif not has_sign:
        panel.set_ylim(bottom=0.0)
    if has_sign:
        panel.axhline(0.0, color="black", linewidth=0.8)


def _name(figure: Any, panels: Any, named: list[dict[str, Any]], said: str, ncols: int) -> None:
    """Name the curves below all panels, or those of each column below it."""
    if len(named) == 1:
        (handles,) = named
        words = {"ncols": ncols, "title": said, "title_fontsize": "small"}
        figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", frameon=False, handlelength=3.5, **words
        )
        return
    for panel, handles in zip(panels[-len(named) :], named, strict=True):
        panel.legend(
            list(handles.values()),
            list(handles),
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            frameon=False,
            handlelength=3.5,
        )
    figure.supxlabel(f"{said}; grey: the others", fontsize="small")


# ---------------------------------------------------------------- what is drawn


def _rounds(entry: Group) -> Tensor:
    return torch.tensor(entry.runs[0].recorded_rounds, dtype=torch.float64)


def _regret(entry: Group) -> Tensor:
    return _series(entry, "cumulative_regret")


def _seconds(entry: Group) -> Tensor:
    return _series(entry, "cumulative_seconds")


def _series(entry: Group, name: str) -> Tensor:
    """Return a series of all runs, (S, k)."""
    return torch.tensor([getattr(run, name) for run in entry.runs], dtype=torch.float64)


def _over_seeds(x: Tensor, values: Tensor, band: str) -> _Curve:
    """Return the middle of values (S, k) over seeds, with nothing to shade for one seed."""
    if len(values) == 1:
        return _Curve(x, values[0])
    if band in ("error", "deviation"):
        mean, spread = values.mean(0), values.std(0) / (math.sqrt(len(values)) if band == "error" else 1.0)
        return _Curve(x, mean, (mean - spread, mean + spread))
    low, middle, high = values.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64), dim=0)
    return _Curve(x, middle, (low, high) if band == "quartiles" else None, values if band == "seeds" else None)


def _difference(both: list[tuple[Record, Record]], least: int) -> _Curve | None:
    """Return the median of paired differences with its interval, or with all of them where the least pairs are few."""
    if not both:
        return None
    values = torch.tensor(
        [
            [own - other for own, other in zip(run.cumulative_regret, base.cumulative_regret, strict=True)]
            for run, base in both
        ],
        dtype=torch.float64,
    )
    ordered, outside = values.sort(dim=0).values, outside_median(len(values)) if outside_median(least) else 1
    shade = (ordered[outside - 1], ordered[-outside]) if len(values) > 1 else None
    x = torch.tensor(both[0][0].recorded_rounds, dtype=torch.float64)
    return _Curve(x, ordered.quantile(0.5, dim=0), shade)
