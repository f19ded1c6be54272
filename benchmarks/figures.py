"""Curves of saved records: ``python -m benchmarks.figures RUNS/tuning.json FIGURE.png``, or of authors_contexts."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.runner import Measurement, chosen, kinds, values
from torch_kbandits.plotting.style import COLOURS, DASHES, MARKERS, SMALL, TEXT, clean, plain_logarithmic, write_figure

#: Inches of a panel, and how many are beside each other.
_PANEL, _COLUMNS = (4.2, 3.1), 3
#: Medians further apart than this are drawn on a logarithmic axis.
_APART = 20.0


def tuning(record: dict[str, Any]) -> Figure:
    """Return a panel for each problem, medians over seeds with their quartiles, and the names in the place after."""
    from benchmarks.tuners import AX, GP, GP_WINDOW, RANDOM, SAMPLER, SEARCH, STRATEGY, TPE, WINDOW
    from benchmarks.tuning_problems import PROBLEMS

    # Colours by what is fitted; where two have one they differ in dashes and marks.
    looks = {
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
    found = record["measurements"]
    panels, figure = _panels(len(kinds(found, "problem")) + 1)
    named: dict[str, Any] = {}
    for panel, problem in zip(panels, kinds(found, "problem"), strict=False):
        here, medians = chosen(found, problem=problem), list[float]()
        for name in [name for name in looks if chosen(here, tool=name)]:
            curves = values(here, "values", tool=name)
            named[name], middle = _curve(panel, curves, looks[name], band=name not in (STRATEGY, AX))
            medians += middle
        _labelled(panel, problem, "trials", PROBLEMS[problem].measure)
        if min(medians) > 0.0 and max(medians) > _APART * min(medians):
            panel.set_yscale("log")
            plain_logarithmic(panel.yaxis)
    said = "without noise, less is better\nmedians over seeds; band: quartiles"
    _legend(panels, len(kinds(found, "problem")), {name: named[name] for name in looks if name in named}, said)
    return figure


def authors_contexts(record: dict[str, Any]) -> Figure:
    """Return a panel for each problem, mean cumulative regrets over seeds, of some of the players."""
    found, every = record["measurements"], record["sizes"]["record_every"]
    shown = {
        ("K-UCB", "theirs"): "K-UCB, theirs",
        ("EK-UCB", "theirs"): "EK-UCB, theirs",
        ("EK-UCB, the paper's score", "theirs"): "EK-UCB, theirs with the paper's score",
        ("EK-UCB", "ours"): "EK-UCB, ours",
        ("CBBKB, C = 3", "theirs"): "CBBKB, C = 3, theirs",
        ("CBBKB, C = 3", "ours"): "CBBKB, C = 3, ours",
    }
    looks = zip(COLOURS, DASHES * 2, MARKERS, strict=False)
    styles = dict(zip(shown, looks, strict=False))
    panels, figure = _panels(len(kinds(found, "problem")) + 1)
    named: dict[str, Any] = {}
    for panel, problem in zip(panels, kinds(found, "problem"), strict=False):
        for (player, whose), label in shown.items():
            regrets = values(found, "regret", problem=problem, player=player, whose=whose)
            curves = [{every * place: value for place, value in enumerate(regret, 1)} for regret in regrets]
            named[label], _ = _curve(panel, curves, styles[player, whose], band=True)
        _labelled(panel, problem, "rounds", "cumulative regret")
    _legend(panels, len(kinds(found, "problem")), named, "medians over seeds; band: quartiles")
    return figure


def _panels(number: int) -> tuple[Any, Figure]:
    rows = math.ceil(number / _COLUMNS)
    figure = Figure(figsize=(_PANEL[0] * _COLUMNS, _PANEL[1] * rows), layout="constrained")
    return figure.subplots(rows, _COLUMNS, squeeze=False).flatten(), figure


def _curve(panel: Any, curves: list[Measurement], look: tuple[Any, Any, Any], band: bool) -> tuple[Any, list[float]]:
    """Draw medians of curves, with a band of quartiles or without, and return the line and the medians."""
    xs, (colour, dashes, mark) = [int(number) for number in curves[0]], look
    low, middle, high = np.quantile([list(each.values()) for each in curves], [0.25, 0.5, 0.75], axis=0)
    if band:
        panel.fill_between(xs, low, high, color=colour, alpha=0.13, linewidth=0)
    words = {"color": colour, "linestyle": dashes, "marker": mark, "markersize": 5, "markerfacecolor": "white"}
    (line,) = panel.plot(xs, middle, linewidth=1.6, markevery=max(1, len(xs) // 7), **words)
    return line, middle.tolist()


def _labelled(panel: Any, title: str, x: str, y: str) -> None:
    panel.set_title(title, fontsize=TEXT + 1)
    panel.set_xlabel(x, fontsize=TEXT)
    panel.set_ylabel(y, fontsize=TEXT)
    clean(panel)


def _legend(panels: Any, place: int, named: dict[str, Any], said: str) -> None:
    for panel in panels[place:]:
        panel.set_axis_off()
    words = {"title": said, "title_fontsize": SMALL, "fontsize": TEXT, "frameon": False, "handlelength": 4.0}
    panels[place].legend(named.values(), named, loc="center", **words)


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a saved record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description="Draw the curves of a record.")
    parser.add_argument("record", type=Path, help="tuning.json or authors_contexts.json")
    parser.add_argument("figure", type=Path, help="png, pdf or svg")
    options = parser.parse_args(arguments)
    record = json.loads(options.record.read_text(encoding="utf-8"))
    draw = {"tuning": tuning, "authors_contexts": authors_contexts}[record["name"]]
    write_figure(options.figure, draw(record))


if __name__ == "__main__":
    main()
