"""The curves of ``tuning``: ``python -m benchmarks.tuning_figure RUNS/tuning.json FIGURE.png``."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.tuners import TUNERS
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.looking.figures import write_figure
from torch_kbandits.looking.palette import COLOURS, DASHES, MARKERS, SMALL, TEXT, clean
from torch_kbandits.looking.units import plain_logarithmic

#: Inches of a panel, and how many are beside each other.
_PANEL, _COLUMNS = (4.2, 3.1), 3
#: Medians further apart than this are drawn on a logarithmic axis.
_APART = 20.0


def figure(measurements: list[dict[str, Any]]) -> Figure:
    """Return a panel for each problem, medians over seeds with their quartiles, and the names in the place after."""
    problems = list(dict.fromkeys(each["problem"] for each in measurements))
    rows = math.ceil((len(problems) + 1) / _COLUMNS)
    found = Figure(figsize=(_PANEL[0] * _COLUMNS, _PANEL[1] * rows), layout="constrained")
    panels = found.subplots(rows, _COLUMNS, squeeze=False).flatten()
    named: dict[str, Any] = {}
    for panel, problem in zip(panels, problems, strict=False):
        here = [each for each in measurements if each["problem"] == problem]
        medians = np.concatenate([_curve(panel, name, here, named) for name in TUNERS])
        panel.set_title(problem, fontsize=TEXT + 1)
        panel.set_xlabel("trials", fontsize=TEXT)
        panel.set_ylabel(PROBLEMS[problem].measure, fontsize=TEXT)
        if medians.min() > 0.0 and medians.max() > _APART * medians.min():
            panel.set_yscale("log")
            plain_logarithmic(panel.yaxis)
        clean(panel)
    for panel in panels[len(problems) :]:
        panel.set_axis_off()
    names = [name for name in TUNERS if name in named]
    said = "without noise, less is better\nmedians over seeds; band: quartiles"
    words = {"title": said, "title_fontsize": SMALL, "fontsize": TEXT, "frameon": False, "handlelength": 4.0}
    panels[len(problems)].legend([named[name] for name in names], names, loc="center", **words)
    return found


def _curve(panel: Any, name: str, here: list[dict[str, Any]], named: dict[str, Any]) -> np.ndarray:
    """Draw what a tool found, and return the medians; those of few seeds have no band."""
    of = [each["values"] for each in here if each["tool"] == name]
    if not of:
        return np.empty(0)
    xs = [int(number) for number in of[0]]
    low, middle, high = np.quantile([list(values.values()) for values in of], [0.25, 0.5, 0.75], axis=0)
    place = list(TUNERS).index(name)
    colour = COLOURS[place % len(COLOURS)]
    if TUNERS[name].on != "few":
        panel.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    words = {"color": colour, "linestyle": DASHES[place % len(DASHES)], "marker": MARKERS[place % len(MARKERS)]}
    (named[name],) = panel.plot(xs, middle, linewidth=1.6, markersize=5, markerfacecolor="white", **words)
    return middle


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a saved result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning_figure", description="Draw the curves of tuning."
    )
    parser.add_argument("result", type=Path, help="tuning.json, as python -m benchmarks tuning saves it")
    parser.add_argument("figure", type=Path, help="png, pdf or svg")
    options = parser.parse_args(arguments)
    write_figure(options.figure, figure(json.loads(options.result.read_text(encoding="utf-8"))["measurements"]))


if __name__ == "__main__":
    main()
