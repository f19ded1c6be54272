"""The figure of ``train_networks.py``, drawn from its record alone.

python examples/train_networks_figure.py runs/train_networks       # draws it again
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from records import BLUE, GREEN, GREY, ORANGE, PURPLE

from torch_kbandits.plotting.style import write_figure

COLOURS = (BLUE, GREEN, ORANGE, PURPLE)


def draw(record: dict[str, Any]) -> Figure:
    """Return two panels: cumulative regret, and how many trainings run."""
    figure = Figure(figsize=(12.0, 4.6), layout="constrained")
    regret, running = figure.subplots(1, 2)
    for (name, played), colour in zip(record["policies"].items(), COLOURS, strict=False):
        numbers = np.arange(1, len(played["regret"]) + 1)
        regret.plot(numbers, np.cumsum(played["regret"]), color=colour, linewidth=2.0, label=name)
        running.plot(numbers, played["running"], color=colour, linewidth=0.8, label=name)
    fixed = np.cumsum(record["best_for_all"]["regret"])
    regret.plot(np.arange(1, len(fixed) + 1), fixed, color=GREY, linestyle="--", label="best setting for all, if known")
    others = [np.sum(played["regret"]) for name, played in record["policies"].items() if not name.startswith("random")]
    regret.set(title="(a)  Cumulative regret", xlabel="jobs", ylabel="digits", ylim=(0, 1.3 * max(*others, fixed[-1])))
    running.set(title="(b)  Trainings that run when a job comes in", xlabel="jobs", ylim=(0, None))
    regret.legend(frameon=False, fontsize=9)
    for axes in (regret, running):
        axes.set_title(axes.get_title(), loc="left", fontsize=11)
        axes.set_title("")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
