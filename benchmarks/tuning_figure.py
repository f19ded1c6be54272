"""The curves of ``tuning``: ``python -m benchmarks.tuning_figure RUNS/tuning.json FIGURE.png``."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.runner import Measurement, chosen, kinds, values
from benchmarks.tuners import AX, GP, GP_WINDOW, RANDOM, SAMPLER, SEARCH, STRATEGY, TPE, TUNERS, WINDOW
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.plotting.style import (
    COLOURS,
    DASHES,
    MARKERS,
    SMALL,
    TEXT,
    labelled,
    plain_logarithmic,
    write_figure,
)

#: Inches of a panel, and how many are beside each other.
_PANEL, _COLUMNS = (4.2, 3.1), 3
#: Medians further apart than this are drawn on a logarithmic axis.
_APART = 20.0

#: Colours by what is fitted; where two have one they differ in dashes and marks.
_LOOKS = {
    SAMPLER: (COLOURS[0], DASHES[0], MARKERS[0]),
    WINDOW: (COLOURS[0], DASHES[1], MARKERS[1]),
    SEARCH: (COLOURS[2], DASHES[2], MARKERS[2]),
    STRATEGY: (COLOURS[3], DASHES[3], MARKERS[3]),
    GP: (COLOURS[4], DASHES[0], MARKERS[4]),
    GP_WINDOW: (COLOURS[4], DASHES[1], MARKERS[5]),
    AX: (COLOURS[6], DASHES[3], MARKERS[6]),
    TPE: (COLOURS[1], DASHES[0], "<"),
    RANDOM: ("0.5", DASHES[2], ">"),
}


def figure(found: list[Measurement]) -> Figure:
    """Return a panel for each problem, medians over seeds with their quartiles, and the names in the place after."""
    problems = kinds(found, "problem")
    rows = math.ceil((len(problems) + 1) / _COLUMNS)
    drawn = Figure(figsize=(_PANEL[0] * _COLUMNS, _PANEL[1] * rows), layout="constrained")
    panels = drawn.subplots(rows, _COLUMNS, squeeze=False).flatten()
    named: dict[str, Any] = {}
    for panel, problem in zip(panels, problems, strict=False):
        here, medians = chosen(found, problem=problem), list[float]()
        for name, (colour, dashes, mark) in _LOOKS.items():
            if not (curves := values(here, "values", tool=name)):
                continue
            low, middle, high = np.quantile([list(each.values()) for each in curves], [0.25, 0.5, 0.75], axis=0)
            xs = [int(number) for number in curves[0]]
            if TUNERS[name].on != "few":  # those of few seeds have no band
                panel.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
            words = {"color": colour, "linestyle": dashes, "marker": mark, "markersize": 5, "markerfacecolor": "white"}
            (named[name],) = panel.plot(xs, middle, linewidth=1.6, **words)
            medians += middle.tolist()
        labelled(panel, "trials", PROBLEMS[problem].measure)
        panel.set_title(problem, fontsize=TEXT + 1)
        if min(medians) > 0.0 and max(medians) > _APART * min(medians):
            panel.set_yscale("log")
            plain_logarithmic(panel.yaxis)
    for panel in panels[len(problems) :]:
        panel.set_axis_off()
    said = "without noise, less is better\nmedians over seeds; band: quartiles"
    words = {"title": said, "title_fontsize": SMALL, "fontsize": TEXT, "frameon": False, "handlelength": 4.0}
    names = [name for name in _LOOKS if name in named]
    panels[len(problems)].legend([named[name] for name in names], names, loc="center", **words)
    return drawn


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a saved record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning_figure", description="Draw the curves of tuning."
    )
    parser.add_argument("record", type=Path, help="tuning.json, as python -m benchmarks tuning saves it")
    parser.add_argument("figure", type=Path, help="png, pdf or svg")
    options = parser.parse_args(arguments)
    write_figure(options.figure, figure(json.loads(options.record.read_text(encoding="utf-8"))["measurements"]))


if __name__ == "__main__":
    main()
