"""The figure of ``personalise_prices.py``, drawn from its record alone.

python examples/personalise_prices_figure.py runs/personalise_prices       # draws it again
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
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from records import BLUE, GREEN, GREY, ORANGE, PURPLE

from torch_kbandits.plotting.style import write_figure

COLOURS = (BLUE, GREEN, ORANGE, PURPLE)
DASHED = (0, (4, 2))


def draw(record: dict[str, Any]) -> Figure:
    """Return four panels: regret, the margins of two travellers, and the prices learned beside the best ones."""
    figure = Figure(figsize=(12.5, 10.0), layout="constrained")
    (regret, curves), (learned, best) = figure.subplots(2, 2)
    belief = record["runs"][0]["belief"]
    draw_regret(regret, record["runs"])
    draw_curves(curves, belief["curves"], record["settings"]["prices"])
    for axes, which, title in (
        (learned, "learned", "Price learned in run 1, website"),
        (best, "best", "Best price, website"),
    ):
        draw_prices(axes, belief, which, record["settings"]["prices"])
        axes.set_title(title)
    for axes in (regret, curves):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    for axes, letter in zip((regret, curves, learned, best), "abcd", strict=True):
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11)
        axes.set_title("")
    return figure


def draw_regret(axes: Axes, runs: list[dict[str, Any]]) -> None:
    """Draw the mean cumulative regret of each policy, each run thinly, and what the best single price would lose."""
    handles = []
    for name, colour in zip(runs[0]["policies"], COLOURS, strict=True):
        curves = np.array([run["policies"][name]["regret"] for run in runs])
        numbers = np.arange(1, curves.shape[1] + 1)
        axes.plot(numbers, curves.T, color=colour, linewidth=0.7, alpha=0.4)
        axes.plot(numbers, curves.mean(0), color=colour, linewidth=2.2)
        handles.append(Line2D([], [], color=colour, linewidth=2.2, label=name))
    fixed = np.mean([run["one_price"]["regret"] for run in runs], axis=0)
    axes.plot(np.arange(1, len(fixed) + 1), fixed, color=GREY, linewidth=1.6, linestyle=DASHED)
    handles.append(Line2D([], [], color=GREY, linewidth=1.6, linestyle=DASHED, label="best single price, if known"))
    # Random prices would leave the others no room.
    others = [
        max(policy["regret"][-1] for policy in run["policies"].values() if policy is not last(run)) for run in runs
    ]
    axes.set(
        title=f"Cumulative regret, mean of {len(runs)} run{'s' * (len(runs) > 1)}",
        xlabel="offers made",
        ylabel="regret in expected margin (€)",
        xlim=(0, len(fixed)),
        ylim=(0, 1.15 * max(others)),
    )
    below(axes, handles)


def last(run: dict[str, Any]) -> dict[str, Any]:
    """Return the record of the last policy, which is chance."""
    return list(run["policies"].values())[-1]


def draw_curves(axes: Axes, curves: list[dict[str, Any]], prices: list[float]) -> None:
    """Draw the posterior of two travellers' margins over the prices, and the truth."""
    for curve, colour in zip(curves, (BLUE, ORANGE), strict=True):
        mean, deviation = np.array(curve["mean"]), np.array(curve["deviation"])
        row = curve["traveller"]
        label = f"{row['channel']}, {row['hours']:g} h to wait, ticket {row['fare']:g} €"
        axes.fill_between(prices, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.18, linewidth=0)
        axes.plot(prices, mean, color=colour, linewidth=2.0, label=label)
        axes.plot(prices, curve["truth"], color=colour, linewidth=1.6, linestyle=DASHED)
        top = int(np.argmax(mean))
        axes.plot(prices[top], mean[top], "*", color=colour, markersize=14, markeredgecolor="black", zorder=3)
    handles, _ = axes.get_legend_handles_labels()
    handles += [
        Line2D([], [], color=GREY, linewidth=2.0, label="posterior mean, band ± 2 σ"),
        Line2D([], [], color=GREY, linewidth=1.6, linestyle=DASHED, label="true expected margin"),
        Line2D([], [], color=GREY, linewidth=0, marker="*", markersize=11, label="price recommended"),
    ]
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    axes.set(
        title="What EK-UCB believes of two travellers after run 1",
        xlabel="price (€)",
        ylabel="expected margin of an offer (€)",
    )
    below(axes, handles)


def below(axes: Axes, handles: list[Any]) -> None:
    """Put the legend under the axis label, where it hides nothing."""
    axes.legend(handles=handles, fontsize=9, ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def draw_prices(axes: Axes, belief: dict[str, Any], which: str, prices: list[float]) -> None:
    """Draw a price for each traveller who comes by the website."""
    step = prices[1] - prices[0]
    shown = [p for p in prices if np.min(belief["best"]) - 2 * step <= p <= np.max(belief["best"]) + 2 * step]
    norm = BoundaryNorm([*(p - step / 2 for p in shown), shown[-1] + step / 2], 256)
    mesh = axes.pcolormesh(
        belief["fares"], belief["hours"], np.array(belief[which]), cmap="viridis", norm=norm, shading="nearest"
    )
    axes.figure.colorbar(mesh, ax=axes, label="price (€)", ticks=shown, spacing="proportional")
    axes.set(xscale="log", yscale="log", xlabel="price of the ticket (€)", ylabel="hours until the gate closes")
    for axis, ticks in ((axes.xaxis, (50, 100, 200, 400, 800)), (axes.yaxis, (1, 2, 4, 8))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_locator(NullLocator())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
