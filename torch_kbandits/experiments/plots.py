"""Finished runs as figures: regret, regret against time, dictionary growth and time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_kbandits.errors import InputError
from torch_kbandits.experiments.nearest import pick
from torch_kbandits.experiments.records import Record
from torch_kbandits.experiments.summary import Group, group
from torch_kbandits.extras import require
from torch_kbandits.looking.figures import FORMATS, write_figure
from torch_kbandits.looking.palette import COLOURS
from torch_kbandits.looking.units import plain_logarithmic

#: The next seven algorithms get the colours again with another of these.
_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
#: Inches of a line of the legend.
_LEGEND_LINE = 0.24
_PANEL = (5.0, 3.6)
_COLUMNS = 3
BANDS = ("error", "deviation", "none")


@dataclass(frozen=True)
class _Curve:
    """A mean over seeds (k,) at x (k,), and what to shade on both sides."""

    x: Tensor
    mean: Tensor
    spread: Tensor


def plot(
    records: Sequence[Record],
    directory: str | Path,
    *,
    band: str = "error",
    log: bool = False,
    format: str = "png",
) -> list[Path]:
    """Draw the figures, one panel for each environment.

    Args:
        records: finished runs.
        directory: where the files go; made if it does not exist.
        band: what is shaded around the means: "error", the standard error over seeds, "deviation", their standard
            deviation, or "none".
        log: whether regret has a logarithmic axis, for algorithms that differ by orders of magnitude.
        format: "png", "pdf" or "svg".

    Returns:
        The files: regret, regret-against-time, dictionary, time.

    Raises:
        InputError: if there are no records, or the band or the format is another one.
    """
    pick("format", "format of figures", format, FORMATS)
    drawn = figures(records, band=band, log=log)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, figure in drawn.items():
        files.append(folder / f"{name}.{format}")
        write_figure(files[-1], figure)
    return files


def figures(records: Sequence[Record], *, band: str = "error", log: bool = False) -> dict[str, Any]:
    """Return the figures by name: regret, regret-against-time, dictionary, time; one panel for each environment.

    Args:
        records: finished runs.
        band: as in ``plot``.
        log: as in ``plot``.

    Raises:
        InputError: if there are no records, or the band is another one.
    """
    pick("band", "band", band, BANDS)
    if not records:
        raise InputError("There is no finished run to draw.")
    groups = group(records)
    shade = {"error": "band: standard error", "deviation": "band: standard deviation", "none": ""}[band]
    regret = {"yscale": "log"} if log else {}
    kinds: dict[str, tuple[str, str, Callable[[Group], _Curve], dict[str, str]]] = {
        "regret": ("round t", "cumulative regret (reward units)", lambda g: _regret(g, band), regret),
        "regret-against-time": (
            "seconds of ask and tell, cumulative",
            "cumulative regret (reward units)",
            lambda g: _regret_against_time(g, band),
            {"xscale": "log"} | regret,
        ),
        "dictionary": ("round t", "dictionary size (points)", lambda g: _dictionary(g, band), {}),
        "time": ("round t", "seconds of ask and tell, cumulative", lambda g: _time(g, band), {}),
    }
    return {name: _draw(groups, curve, x, y, scales, shade) for name, (x, y, curve, scales) in kinds.items()}


def _draw(
    groups: Sequence[Group], curve: Callable[[Group], _Curve], x: str, y: str, scales: dict[str, str], shade: str
) -> Any:
    """Return a figure with a panel for each environment and one legend below them all."""
    environments = list(dict.fromkeys(entry.environment for entry in groups))
    algorithms = list(dict.fromkeys(entry.algorithm for entry in groups))
    columns = min(_COLUMNS, len(environments))
    rows = math.ceil(len(environments) / columns)
    legend_columns = min(len(algorithms), 2 * columns)
    legend_height = _LEGEND_LINE * (1 + math.ceil(len(algorithms) / legend_columns))
    size = (_PANEL[0] * columns, _PANEL[1] * rows + legend_height)
    figure = require("matplotlib.figure").Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    handles: dict[str, Any] = {}
    for panel, environment in zip(panels, environments, strict=False):
        for entry in groups:
            if entry.environment != environment:
                continue
            number = algorithms.index(entry.algorithm)
            style = {
                "color": COLOURS[number % len(COLOURS)],
                "linestyle": _STYLES[number // len(COLOURS) % len(_STYLES)],
            }
            line = curve(entry)
            xs, mean, spread = line.x.numpy(), line.mean.numpy(), line.spread.numpy()
            # A curve of one point would be invisible as a line.
            (handle,) = panel.plot(xs, mean, linewidth=1.6, marker="o" if len(xs) == 1 else None, **style)
            if bool(line.spread.any()):
                panel.fill_between(xs, mean - spread, mean + spread, color=style["color"], alpha=0.18, linewidth=0)
            handles.setdefault(entry.algorithm, handle)
        panel.set(title=environment, xlabel=x, ylabel=y, **scales)
        panel.grid(alpha=0.25, linewidth=0.6)
        if "xscale" in scales:
            panel.xaxis.set_major_formatter("{x:g}")
        if "yscale" in scales:
            low, high = panel.get_ylim()
            # Few decades leave room for more labels than one a decade.
            subs = (1.0, 2.0, 5.0) if high < 1_000.0 * low else (1.0,)
            plain_logarithmic(panel.yaxis, subs)
        else:
            panel.set_ylim(bottom=0.0)
    for panel in panels[len(environments) :]:
        panel.set_axis_off()
    seeds = {len(entry.runs) for entry in groups}
    over = f"means over {seeds.pop()} seeds" if len(seeds) == 1 and seeds != {1} else "means over seeds"
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=legend_columns,
        frameon=False,
        title=f"{over}; {shade}" if shade else over,
        title_fontsize="small",
    )
    return figure


# ---------------------------------------------------------------- what is drawn


def _regret(entry: Group, band: str) -> _Curve:
    return _over_seeds(_rounds(entry), _series(entry, "cumulative_regret"), band)


def _dictionary(entry: Group, band: str) -> _Curve:
    return _over_seeds(_rounds(entry), _series(entry, "dictionary_size"), band)


def _regret_against_time(entry: Group, band: str) -> _Curve:
    seconds = _series(entry, "cumulative_seconds").mean(0)
    return _over_seeds(seconds, _series(entry, "cumulative_regret"), band)


def _time(entry: Group, band: str) -> _Curve:
    return _over_seeds(_rounds(entry), _series(entry, "cumulative_seconds"), band)


def _rounds(entry: Group) -> Tensor:
    return torch.tensor(entry.runs[0].recorded_rounds, dtype=torch.float64)


def _series(entry: Group, name: str) -> Tensor:
    """Return a series of all runs, (S, k)."""
    return torch.tensor([getattr(run, name) for run in entry.runs], dtype=torch.float64)


def _over_seeds(x: Tensor, values: Tensor, band: str) -> _Curve:
    """Return the mean of values (S, k) over seeds, with nothing to shade for one seed."""
    if len(values) == 1 or band == "none":
        return _Curve(x, values.mean(0), torch.zeros_like(x))
    deviation = values.std(0)
    return _Curve(x, values.mean(0), deviation / math.sqrt(len(values)) if band == "error" else deviation)
