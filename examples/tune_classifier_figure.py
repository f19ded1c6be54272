"""The figure of ``tune_classifier.py``, drawn from its record alone.

python examples/tune_classifier_figure.py runs/tune_classifier       # draws it again
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from records import BLUE, GREEN, GREY, ORANGE

from torch_kbandits.plotting.style import write_figure

COLOURS = {"BKB": BLUE, "random search": ORANGE}
DASHED = (0, (4, 2))
WINDOW = 15


def draw(record: dict[str, Any]) -> Figure:
    """Return four panels: the scores, what BKB believes, the held-out accuracies and the dictionary."""
    figure = Figure(figsize=(12.5, 9.2))
    margins = {"left": 0.125, "right": 0.97, "top": 0.96, "bottom": 0.09, "hspace": 0.38, "wspace": 0.24}
    (scores, belief), (held_out, dictionary) = figure.subplots(2, 2, gridspec_kw=margins)
    labels = {parameter["name"]: parameter["label"] for parameter in record["settings"]["parameters"]}
    first = record["runs"][0]
    draw_scores(scores, first, record["settings"]["validation_size"])
    draw_belief(belief, first, labels)
    draw_held_out(held_out, record["runs"])
    draw_dictionary(dictionary, record["runs"])
    for axes in (scores, held_out, dictionary):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    for axes, letter in zip((scores, belief, held_out, dictionary), "abcd", strict=True):
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11)
        axes.set_title("")
    return figure


def draw_scores(axes: Axes, run: dict[str, Any], validation_size: int) -> None:
    """Draw every score of a run, its running median and what each search expects of its recommendation."""
    # On a logit axis 0 and 1 are infinitely far away.
    half_digit = 0.5 / validation_size
    for name, evaluations in run["searches"].items():
        colour = COLOURS[name]
        numbers = np.arange(1, len(evaluations) + 1)
        scores = np.clip([evaluation["score"] for evaluation in evaluations], half_digit, 1.0 - half_digit)
        median = [np.median(scores[max(0, n - WINDOW) : n]) for n in numbers]
        expected = [evaluation["recommended_mean"] or np.nan for evaluation in evaluations]
        axes.plot(numbers, scores, "o", markersize=4, color=colour, alpha=0.4, markeredgewidth=0)
        axes.plot(numbers, median, color=colour, linewidth=2.0)
        axes.plot(numbers, expected, color=colour, linewidth=1.4, linestyle=DASHED)
    logit_axis(axes, "y", (0.1, 0.5, 0.8, 0.9, 0.95, 0.98))
    axes.set(
        title="Validation accuracy of every evaluation of run 1", xlabel="evaluation", ylabel="validation accuracy"
    )
    handles = [Line2D([], [], color=colour, linewidth=2.0, label=name) for name, colour in COLOURS.items()]
    handles += [
        Line2D([], [], color=GREY, linewidth=0, marker="o", markersize=4, alpha=0.6, label="one evaluation"),
        Line2D([], [], color=GREY, linewidth=2.0, label=f"median of the last {WINDOW}"),
        Line2D([], [], color=GREY, linewidth=1.4, linestyle=DASHED, label="expected of the recommendation"),
    ]
    below(axes, handles)


def draw_belief(axes: Axes, run: dict[str, Any], labels: dict[str, str]) -> None:
    """Draw the posterior mean over two hyperparameters, with the points played and those in the dictionary."""
    belief = run["posterior"]
    surface = belief["slice"]
    evaluations = run["searches"]["BKB"]
    accuracy = np.array(surface["accuracy"])
    low, high = (np.log(value / (1.0 - value)) for value in (accuracy.min(), accuracy.max()))
    levels = 1.0 / (1.0 + np.exp(-np.linspace(low - 1e-3, high + 1e-3, 13)))
    contours = axes.contourf(
        surface["x_values"], surface["y_values"], accuracy, levels, cmap="YlGnBu_r", norm=BoundaryNorm(levels, 256)
    )
    axes.figure.colorbar(contours, ax=axes, label="posterior mean, as validation accuracy", format="%.2f")
    x, y = (np.array([evaluation["configuration"][surface[axis]] for evaluation in evaluations]) for axis in "xy")
    kept = np.isin(np.arange(len(evaluations)), belief["dictionary"])
    best = evaluations[-1]["recommended"]
    style: dict[str, Any] = {"markeredgecolor": "black", "linestyle": "none", "clip_on": False}
    axes.plot(x[~kept], y[~kept], "o", markersize=4, color="white", markeredgewidth=0.6, label="played", **style)
    axes.plot(
        x[kept], y[kept], "o", markersize=5, color=BLUE, markeredgewidth=0.6, label="and in the dictionary", **style
    )
    axes.plot(x[best], y[best], "*", markersize=16, color="gold", markeredgewidth=1.0, label="recommended", **style)
    axes.set(xscale="log", yscale="log", xlabel=labels[surface["x"]], ylabel=labels[surface["y"]])
    axes.set_title("BKB's belief after run 1, the rest as recommended")
    handles, _ = axes.get_legend_handles_labels()
    below(axes, handles)


def draw_held_out(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the held-out accuracy of every run, the mean ± sd of the runs, and what was expected."""
    contenders = list(zip(*(run["results"] for run in runs), strict=True))
    for row, results in enumerate(contenders):
        colour = COLOURS.get(results[0]["name"], GREY)
        means = np.array([result["mean"] for result in results])
        axes.plot(means, np.full(len(means), row), "o", markersize=5, color=colour, alpha=0.5, markeredgewidth=0)
        spread = means.std(ddof=1) if len(means) > 1 else np.nan
        axes.errorbar(means.mean(), row + 0.2, xerr=spread, fmt="o", color=colour, markersize=8, capsize=4, linewidth=2)
        expected = [result["expected"] for result in results if result["expected"] is not None]
        axes.plot(expected, np.full(len(expected), row - 0.2), "D", markersize=5, color="white", markeredgecolor=colour)
    axes.set_yticks(range(len(contenders)), [results[0]["name"].replace(", ", ",\n") for results in contenders])
    axes.set_ylim(len(contenders) - 0.5, -0.5)
    logit_axis(axes, "x", (0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.94, 0.96, 0.98))
    axes.set(title=f"Accuracy on the held-out digits, {len(runs)} run{'s' * (len(runs) > 1)}", xlabel="accuracy")
    handles = [
        Line2D([], [], linewidth=0, marker="D", markersize=5, color="white", markeredgecolor=GREY, label="expected"),
        Line2D([], [], linewidth=0, marker="o", markersize=5, color=GREY, alpha=0.5, label="held out, a run"),
        Line2D([], [], linewidth=2, marker="o", markersize=8, color=GREY, label="held out, mean ± sd of the runs"),
    ]
    below(axes, handles)


def draw_dictionary(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the dictionary size against the number of observations."""
    for run in runs:
        evaluations = run["searches"]["BKB"]
        numbers = np.arange(1, len(evaluations) + 1)
        sizes = [evaluation["dictionary_size"] or np.nan for evaluation in evaluations]
        dimensions = [evaluation["effective_dimension"] or np.nan for evaluation in evaluations]
        emphasis: dict[str, Any] = (
            {"alpha": 1.0, "linewidth": 2.0} if run is runs[0] else {"alpha": 0.4, "linewidth": 1.0}
        )
        axes.plot(numbers, sizes, color=BLUE, **emphasis)
        axes.plot(numbers, dimensions, color=GREEN, **emphasis)
    last = len(runs[0]["searches"]["BKB"])
    axes.plot([0, last], [0, last], color=GREY, linewidth=1.2, linestyle=DASHED)
    axes.set(
        title="BKB's dictionary, run 1 in bold", xlabel="observations", ylabel="points", ylim=(0, None), xlim=(0, None)
    )
    handles = [
        Line2D([], [], color=GREY, linewidth=1.2, linestyle=DASHED, label="exact GP: every observation"),
        Line2D([], [], color=BLUE, linewidth=2.0, label="dictionary size"),
        Line2D([], [], color=GREEN, linewidth=2.0, label="effective dimension"),
    ]
    below(axes, handles)


def below(axes: Axes, handles: list[Any]) -> None:
    """Put the legend under the axis label, where it hides nothing."""
    axes.legend(handles=handles, fontsize=8.5, ncols=3, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13))


def logit_axis(axes: Axes, which: str, ticks: tuple[float, ...]) -> None:
    """Scale an axis of accuracies by their log-odds."""
    getattr(axes, f"set_{which}scale")("logit")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
