"""The figure of ``choose_learning_rate.py``, drawn from its record alone.

python examples/choose_learning_rate_figure.py runs/choose_learning_rate       # draws it again
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from records import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW

from torch_kbandits.plotting.style import write_figure

STYLES = {
    "bandit, static": (SKY, "-", 2.0),
    "bandit, window of 20": (BLUE, "-", 2.4),
    "random": (ORANGE, "-", 1.6),
    "constant 0.01": ("0.55", ":", 1.6),
    "constant 0.1": ("0.3", ":", 1.6),
    "cosine 1.0": (GREEN, "--", 1.6),
}

LOOKS = (PURPLE, YELLOW, GREEN, BLUE)


def draw(record: dict[str, Any]) -> Figure:
    """Return three panels: what each rate brings at several times, test losses, and the rates chosen."""
    figure = Figure(figsize=(14.0, 4.4), layout="constrained")
    drift, losses, chosen = figure.subplots(1, 3)
    draw_drift(drift, record)
    draw_losses(losses, record["runs"])
    draw_chosen(chosen, record["runs"])
    for axes in (drift, losses, chosen):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


def draw_drift(axes: Axes, record: dict[str, Any]) -> None:
    """Draw by how much the next epoch would lower the loss for each rate, at several times of the static bandit."""
    rates = record["settings"]["rates"]
    for epoch, colour in zip(record["runs"][0]["looks"], LOOKS, strict=False):
        curve = np.mean([one["looks"][epoch] for one in record["runs"]], axis=0)
        axes.plot(rates, curve, color=colour, marker="o", markersize=3.5, label=f"after {epoch} epochs")
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    axes.set(xscale="log", xlabel="learning rate of the next epoch", ylabel="log loss before − log loss after")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks([-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.5, 1.0, 2.0])
    axes.set_yticklabels(["−0.2", "−0.1", "−0.05", "0", "0.05", "0.1", "0.5", "1", "2"])
    axes.set_title("(a)  What an epoch brings", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)


def draw_losses(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the test losses, geometric means over the runs."""
    for name, (colour, line, width) in STYLES.items():
        curves = np.log([one["contenders"][name]["test_loss"] for one in runs])
        numbers = np.arange(1, curves.shape[1] + 1)
        axes.plot(numbers, np.exp(curves.mean(0)), color=colour, linestyle=line, linewidth=width, label=name)
    ticks = [0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0]
    axes.set(xscale="log", yscale="log", xlabel="epochs", ylabel="test loss")
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_title(f"(b)  Test loss, mean of {len(runs)} run{'s' * (len(runs) > 1)}", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9)


def draw_chosen(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the rates that two bandits chose in the first run, larger where the momentum was 0.9."""
    for name, shift in (("bandit, static", -0.2), ("bandit, window of 20", 0.2)):
        played = runs[0]["contenders"][name]
        sizes = [26 if momentum else 9 for momentum in played["momentum"]]
        numbers = np.arange(1, len(sizes) + 1) + shift
        axes.scatter(numbers, played["rate"], s=sizes, color=STYLES[name][0], alpha=0.85, label=name, linewidths=0)
    axes.set(yscale="log", xlabel="epoch", ylabel="learning rate")
    axes.set_ylim(6e-4, 5.0)
    axes.set_title("(c)  Chosen in run 1; large: momentum 0.9", loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
