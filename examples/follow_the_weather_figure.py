"""The figure of ``follow_the_weather.py``, drawn from its record alone.

python examples/follow_the_weather_figure.py runs/follow_the_weather       # draws it again
"""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from follow_the_weather_policies import FADING, POLICIES
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from records import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE

from torch_kbandits import Bandit, History
from torch_kbandits.environments import SeattleWeather
from torch_kbandits.looking import plot_line
from torch_kbandits.looking.figures import write_figure

COLOURS = (ORANGE, PURPLE, BLUE, BLACK, GREEN)
DASHED = (0, (4, 2))
#: Days over which what was prepared for is averaged, as are the temperatures.
SMOOTH = 14
#: How many days before the last one the first belief is shown: from December to July.
APART = 160


def draw(record: dict[str, Any]) -> Figure:
    """Return four panels: what was prepared for, regret, and what the memory that fades believes on two days."""
    figure = Figure(figsize=(12.5, 10.0), layout="constrained")
    (choices, regret), beliefs = figure.subplots(2, 2)
    draw_choices(choices, record)
    draw_regret(regret, record)
    draw_beliefs(beliefs, record)
    for axes in (choices, regret):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92", linewidth=0.8)
        axes.set_axisbelow(True)
    for axes, letter in zip((choices, regret, *beliefs), "abcd", strict=True):
        axes.set_title(f"({letter})  {axes.get_title()}", loc="left", fontsize=11, color="black")
        axes.set_title("")
    return figure


def draw_choices(axes: Axes, record: dict[str, Any]) -> None:
    """Draw measured maxima and what two policies prepared for in run 1, each as a mean of two weeks."""
    days = [date.fromisoformat(day) for day in record["dates"]]
    axes.plot(days, record["temperatures"], color="0.75", linewidth=0.6, label="daily maximum")  # pyright: ignore
    shown = list(record["runs"][0]["policies"].items())
    width = min(SMOOTH, len(days))
    weights = np.ones(width) / width
    lines = [("daily maximum, mean of two weeks", record["temperatures"], BLACK, 1.8)]
    lines += [(name, shown[i][1]["prepared"], COLOURS[i], 1.8) for i, (name, _) in enumerate(shown) if i in (0, 2)]
    for name, values, colour, thickness in lines:
        smooth = np.convolve(values, weights, mode="valid")
        axes.plot(days[width - 1 :], smooth, color=colour, linewidth=thickness, label=name)  # pyright: ignore
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.set(title="What was prepared for in run 1", ylabel="temperature (°C)")
    below(axes, axes.get_legend_handles_labels()[0])


def draw_regret(axes: Axes, record: dict[str, Any]) -> None:
    """Draw the mean cumulative regret of each policy, each run thinly, and those who do not learn."""
    runs = record["runs"]
    handles = []
    numbers = np.arange(1, record["settings"]["days"] + 1)
    for name, colour in zip(runs[0]["policies"], COLOURS, strict=True):
        curves = np.cumsum([run["policies"][name]["regret"] for run in runs], axis=1)
        axes.plot(numbers, curves.T, color=colour, linewidth=0.6, alpha=0.4)
        axes.plot(numbers, curves.mean(0), color=colour, linewidth=2.2)
        handles.append(Line2D([], [], color=colour, linewidth=2.2, label=name))
    for (name, loss), style in zip(record["without_learning"].items(), (DASHED, None, (0, (1, 1.5))), strict=True):
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


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write_figure(folder / "figure.png", draw(json.loads((folder / "record.json").read_text(encoding="utf-8"))))
