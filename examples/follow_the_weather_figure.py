"""The figures of ``follow_the_weather.py``, drawn from its record alone.

python examples/follow_the_weather_figure.py runs/follow_the_weather       # draws them again
"""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from follow_the_weather_policies import FADING, POLICIES, STATIC
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from records import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE

from torch_kbandits import Bandit, History
from torch_kbandits.environments import SeattleWeather
from torch_kbandits.plotting import plot_line
from torch_kbandits.plotting.style import write_figure

COLOURS = (ORANGE, PURPLE, BLUE, BLACK, GREEN)
DASHED, DOTTED = (0, (4, 2)), (0, (1, 1.5))
#: Of the policies, so that they differ in print, too.
STYLES = (DASHED, (0, (6, 1.5, 1, 1.5)), "solid", (0, (2, 1)), (0, (8, 2)))
#: Days over which what was prepared for is averaged, as are the temperatures.
SMOOTH = 14
#: How many days before the last one the first belief is shown: from December to July.
APART = 160


def draw_seasons(record: dict[str, Any]) -> Figure:
    """Return one panel: measured maxima and what two policies prepared for in run 1, as means of two weeks."""
    figure = Figure(figsize=(10.0, 4.2), layout="constrained")
    axes = figure.subplots()
    days = [date.fromisoformat(day) for day in record["dates"]]
    width = min(SMOOTH, len(days))
    weights = np.ones(width) / width
    policies = record["runs"][0]["policies"]
    lines = [
        ("the daily maximum, which no bandit is told", record["temperatures"], "0.6", "solid", 5.0),
        ("IGP-UCB, which forgets nothing", policies[STATIC]["prepared"], ORANGE, DASHED, 2.0),
        ("UI-GP-UCB, in whose memory the old fades", policies[FADING]["prepared"], BLUE, "solid", 2.0),
    ]
    for name, values, colour, style, thickness in lines:
        smooth = np.convolve(values, weights, mode="valid")
        axes.plot(days[width - 1 :], smooth, color=colour, linestyle=style, linewidth=thickness, label=name)  # pyright: ignore[reportArgumentType]
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set(ylabel="temperature (°C), mean of two weeks", xlim=(days[0], days[-1]))
    axes.set_title("Told only each evening's noisy takings, a bandit that forgets follows the seasons", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def draw(record: dict[str, Any]) -> Figure:
    """Return three panels: regret, and what the memory that fades believes on two days."""
    figure = Figure(figsize=(12.5, 10.0), layout="constrained")
    panels = figure.subplot_mosaic("aa;bc")
    draw_regret(panels["a"], record)
    draw_beliefs((panels["b"], panels["c"]), record)
    panels["a"].spines[["top", "right"]].set_visible(False)
    panels["a"].grid(color="0.92", linewidth=0.8)
    panels["a"].set_axisbelow(True)
    for letter, axes in panels.items():
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11, color="black")
        axes.set_title("")
    return figure


def draw_regret(axes: Axes, record: dict[str, Any]) -> None:
    """Draw the mean cumulative regret of each policy, each run thinly, and those who do not learn."""
    runs = record["runs"]
    handles = []
    numbers = np.arange(1, record["settings"]["days"] + 1)
    for name, colour, style in zip(runs[0]["policies"], COLOURS, STYLES, strict=True):
        curves = np.cumsum([run["policies"][name]["regret"] for run in runs], axis=1)
        axes.plot(numbers, curves.T, color=colour, linewidth=0.6, alpha=0.4)
        axes.plot(numbers, curves.mean(0), color=colour, linewidth=2.2, linestyle=style)
        handles.append(Line2D([], [], color=colour, linewidth=2.2, linestyle=style, label=name))
    for (name, loss), style in zip(record["without_learning"].items(), (DASHED, None, DOTTED), strict=True):
        if style is not None:  # chance would leave the others no room
            axes.plot(numbers, loss * numbers, color=GREY, linewidth=1.6, linestyle=style)
            handles.append(Line2D([], [], color=GREY, linewidth=1.6, linestyle=style, label=name))
    axes.set(
        title=f"Cumulative regret, mean of {len(runs)} run{'s' * (len(runs) > 1)}",
        xlabel=f"days since {record['dates'][0]}",
        ylabel="regret (days of best takings)",
        xlim=(0, len(numbers)),
        ylim=(0, None),
    )
    below(axes, handles)


def draw_beliefs(panels: Any, record: dict[str, Any]) -> None:
    """Draw what the memory that fades believes on two mornings of run 1, and what would have been true that day."""
    played, days = record["runs"][0]["policies"][FADING], record["settings"]["days"]
    bandit = POLICIES[FADING](record["runs"][0]["seed"], SeattleWeather(seed=0))
    for axes, day in zip(panels, (max(days - APART, days // 2), days - 1), strict=True):
        bring_to(bandit, played, day)
        plot_line(bandit, names=["prepared for (°C)"], reward="takings (share of the best)", ax=axes)
        x = np.linspace(-5.0, 40.0, 200)
        truth = np.exp(-((x - record["temperatures"][day]) ** 2) / 50.0)
        (line,) = axes.plot(x, truth, color=GREY, linewidth=1.6, linestyle=DASHED, label="true of that day")
        legend = axes.get_legend()
        handles = [*legend.legend_handles, line]
        for handle, text in zip(handles, legend.get_texts(), strict=False):
            handle.set_label(text.get_text())
        axes.set_title("", loc="left")
        axes.set_title(f"Believed on the morning of {record['dates'][day]}")
        axes.set_ylim(-1.1, 1.5)
        below(axes, handles)


def bring_to(bandit: Bandit, played: dict[str, Any], day: int) -> None:
    """Tell a bandit what was played from where it is to a day."""
    known = bandit.round
    X = torch.tensor(played["prepared"][:day], dtype=torch.float64).unsqueeze(-1)
    Y = torch.tensor(played["rewards"][:day], dtype=torch.float64)
    if known == 0:
        rounds = torch.arange(day)
        bandit.replay(History(X, Y, rounds, None, rounds.double()))
        return
    for x, y in zip(X[known:], Y[known:], strict=True):
        bandit.tell(x.unsqueeze(0), y.unsqueeze(0))


def below(axes: Axes, handles: list[Any]) -> None:
    """Put the legend under the axis label, where it hides nothing."""
    axes.legend(handles=handles, fontsize=9, ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))


def write_figures(folder: Path, record: dict[str, Any]) -> None:
    """Write ``seasons.png`` and ``figure.png``."""
    write_figure(folder / "seasons.png", draw_seasons(record))
    write_figure(folder / "figure.png", draw(record))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figures(folder, json.loads((folder / "record.json").read_text(encoding="utf-8")))
