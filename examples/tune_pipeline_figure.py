"""The figure of ``tune_pipeline.py``, drawn from its record alone.

python examples/tune_pipeline_figure.py runs/tune_pipeline       # draws it again
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from records import BLUE, GREEN, ORANGE

from torch_kbandits.plotting.style import write_figure

COLOURS = {"bandit, best score": BLUE, "bandit, posterior mean": GREEN, "random search": ORANGE}


def draw(record: dict[str, Any]) -> Figure:
    """Return two panels: the best score so far, and the accuracy on held-out digits run by run."""
    figure = Figure(figsize=(11.0, 4.4), layout="constrained")
    best, held_out = figure.subplots(1, 2)
    draw_best(best, record)
    draw_held_out(held_out, record["runs"])
    for axes in (best, held_out):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


def draw_best(axes: Axes, record: dict[str, Any]) -> None:
    """Draw the best cross-validated accuracy after each evaluation, each run thinly and the mean."""
    runs = record["runs"]
    for name in runs[0]["scores"]:
        curves = np.maximum.accumulate([one["scores"][name] for one in runs], axis=1)
        numbers = np.arange(1, curves.shape[1] + 1)
        axes.plot(numbers, curves.T, color=COLOURS[name], linewidth=0.7, alpha=0.35)
        style = "--" if name == "random search" else "-"
        label = name.removesuffix(", best score")
        axes.plot(numbers, curves.mean(0), color=COLOURS[name], linestyle=style, linewidth=2.2, label=label)
    axes.axvline(record["settings"]["initial"] + 0.5, color="0.6", linewidth=1.0, linestyle=":")
    axes.annotate(
        "bandit begins to choose",
        (record["settings"]["initial"] + 0.5, 0.02),
        (4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=9,
        color="0.4",
    )
    final = min(max(one["scores"][name]) for one in runs for name in one["scores"])
    axes.set_ylim(final - 0.12, 1.0)
    axes.set_title("(a)  Best cross-validated accuracy so far", loc="left", fontsize=11)
    axes.set(xlabel="configurations evaluated", ylabel="accuracy")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 0.08))


def draw_held_out(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the held-out accuracies of each run, joined, with their means."""
    names = list(COLOURS)
    values = np.array([[one["results"][name]["held_out"] for name in names] for one in runs])
    axes.plot(range(len(names)), values.T, color="0.8", linewidth=1.0, zorder=1)
    for place, name in enumerate(names):
        axes.scatter(np.full(len(runs), place), values[:, place], color=COLOURS[name], s=28, alpha=0.8, zorder=2)
        axes.hlines(values[:, place].mean(), place - 0.18, place + 0.18, color=COLOURS[name], linewidth=2.6, zorder=3)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_title("(b)  Accuracy on held-out digits, runs joined, means as bars", loc="left", fontsize=11)
    axes.set_ylabel("accuracy")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
