"""The figure of ``run_a_reactor.py``, drawn from its record alone.

python examples/run_a_reactor_figure.py runs/run_a_reactor       # draws it again
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from records import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY

from torch_kbandits.plotting.style import clean, write_figure

#: Of the policies, in their order.
COLOURS = (BLUE, SKY, PURPLE, ORANGE, GREEN, GREY)
SOLID: Any = "-"
DASHED: Any = (0, (4, 2))
#: In °C: hotter batches are drawn at the rim, so that those near the limit can be told apart.
HOTTEST = 125.0
#: Batches over which yields are averaged.
SMOOTH = 20


def draw(record: dict[str, Any]) -> Figure:
    """Return three panels: temperatures, yields, and what is believed to be safe early and late."""
    figure = Figure(figsize=(12.5, 11.0), layout="constrained")
    panels = figure.subplot_mosaic("tt;ys", height_ratios=[1.15, 1.0])
    draw_temperatures(panels["t"], record)
    draw_yields(panels["y"], record)
    draw_safe(panels["s"], record)
    for axes, letter in zip(panels.values(), "abc", strict=True):
        clean(axes)
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11)
        axes.set_title("")
    return figure


def draw_temperatures(axes: Axes, record: dict[str, Any]) -> None:
    """Draw the peak temperature of every batch of run 1 under each policy; the hottest at the upper rim."""
    first, limit = record["runs"][0], record["settings"]["limit"]
    handles = []
    for (name, played), colour in zip(first["policies"].items(), COLOURS, strict=True):
        peaks = np.array(played["peaks"])
        hotter = peaks > HOTTEST
        look: dict[str, Any] = {"color": colour, "alpha": 0.8, "markeredgewidth": 0.0, "linestyle": "none"}
        axes.plot(np.flatnonzero(~hotter), peaks[~hotter], marker="o", markersize=3.2, **look)
        axes.plot(np.flatnonzero(hotter), np.full(hotter.sum(), HOTTEST), marker="^", markersize=6.0, **look)
        handles.append(Line2D([], [], color=colour, marker="o", linestyle="none", markersize=5, label=name))
    axes.axhline(limit, color=BLACK, linewidth=1.4, linestyle=DASHED)
    handles.append(Line2D([], [], color=BLACK, linewidth=1.4, linestyle=DASHED, label=f"limit, {limit:g} °C"))
    handles.append(
        Line2D([], [], color=GREY, marker="^", linestyle="none", markersize=6, label=f"hotter than {HOTTEST:g} °C")
    )
    new_catalyst(axes, first["changed"], 1.0)
    axes.set(
        title=f"Peak temperature of every batch, seed {first['seed']}",
        xlabel="batch",
        ylabel="peak temperature (°C)",
        xlim=(-2, len(first["best"]) + 1),
        ylim=(20.0, HOTTEST + 2.0),
    )
    below(axes, handles, 4, -0.1)


def draw_yields(axes: Axes, record: dict[str, Any]) -> None:
    """Draw yields as moving means over batches and runs, beside the best that the limit allows."""
    runs = record["runs"]
    width = min(SMOOTH, len(runs[0]["best"]))
    weights = np.ones(width) / width
    lines = [(name, [run["policies"][name]["yields"] for run in runs]) for name in runs[0]["policies"]]
    handles = []
    for (name, yields), colour in zip(
        [*lines, ("best that keeps the limit", [run["best"] for run in runs])], (*COLOURS, BLACK), strict=True
    ):
        smooth = np.convolve(np.mean(yields, axis=0), weights, mode="valid")
        style = DASHED if colour == BLACK else SOLID
        axes.plot(np.arange(len(smooth)) + width - 1, smooth, color=colour, linewidth=1.8, linestyle=style)
        handles.append(Line2D([], [], color=colour, linewidth=1.8, linestyle=style, label=name))
    new_catalyst(axes, runs[0]["changed"], 0.01)
    axes.set(
        title=f"Yield, mean of {width} batches and {len(runs)} run{'s' * (len(runs) > 1)}",
        xlabel="batch",
        ylabel="yield (kg a batch)",
        xlim=(0, len(runs[0]["best"])),
        ylim=(0.0, None),
    )
    below(axes, handles, 2, -0.13)


def draw_safe(axes: Axes, record: dict[str, Any]) -> None:
    """Draw what is surely below the limit for all that the bandit knows, early and late, and the true limit."""
    feeds, jackets = (np.array(record["settings"][name]) for name in ("feeds", "jackets"))
    limit, ((left, bottom), (right, top)) = record["settings"]["limit"], record["settings"]["known_safe"]
    handles = []
    for belief, colour in zip(record["runs"][0]["beliefs"], (BLUE, ORANGE), strict=True):
        when = f"batch {belief['batch']}"
        surely, truly = (np.reshape(belief[name], (len(feeds), len(jackets))).T - limit for name in ("bounds", "peaks"))
        lowest = min(surely.min(), 0.0) - 1.0
        axes.contourf(feeds, jackets, surely, levels=[lowest, 0.0], colors=[colour], alpha=0.15)
        for excess, style, width, what in (
            (surely, SOLID, 2.0, "believed to be safe below, before"),
            (truly, DASHED, 2.0, "truly safe below, in"),
        ):
            if excess.min() < 0.0 < excess.max():
                axes.contour(
                    feeds, jackets, excess, levels=[0.0], colors=[colour], linewidths=width, linestyles=[style]
                )
            handles.append(Line2D([], [], color=colour, linewidth=width, linestyle=style, label=f"{what} {when}"))
    axes.add_patch(
        Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor=GREY, linewidth=0.8, hatch="//")
    )
    handles.append(Patch(facecolor="none", edgecolor=GREY, hatch="//", label="known to the operator"))
    axes.set(
        title=f"Safe set-points when the water has {record['settings']['water']:g} °C, seed "
        f"{record['runs'][0]['seed']}",
        xlabel="feed (kg/h)",
        ylabel="jacket temperature (°C)",
        xlim=(feeds[0], feeds[-1]),
        ylim=(jackets[0], jackets[-1]),
    )
    below(axes, handles, 2, -0.13)


def new_catalyst(axes: Axes, batch: int, height: float) -> None:
    """Mark the first batch with a new catalyst; its name is at a share of the height of the axes."""
    axes.axvline(batch, color=GREY, linewidth=1.0)
    where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "xytext": (4, 2), "textcoords": "offset points"}
    axes.annotate("new catalyst", (batch, height), fontsize=9, color=GREY, **where)


def below(axes: Axes, handles: list[Any], columns: int, offset: float) -> None:
    """Put the legend under the axis label, where it hides nothing."""
    axes.legend(
        handles=handles, fontsize=9, ncols=columns, frameon=False, loc="upper center", bbox_to_anchor=(0.5, offset)
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
