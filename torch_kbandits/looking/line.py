"""A belief along one coordinate: mean, confidence band and what was played."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.extras import require
from torch_kbandits.looking.belief import moments
from torch_kbandits.looking.legends import counted, fixed_words, legend_below, marker_handle
from torch_kbandits.looking.marks import faded, near_marks, played_marks
from torch_kbandits.looking.palette import BELIEF, DICTIONARY, PENDING, PLAYED, RECOMMENDED, SMALL, TEXT, clean
from torch_kbandits.looking.section import Section, section
from torch_kbandits.looking.units import scale_axis, shown_values

#: In inches.
_SIZE = (6.0, 4.6)
#: The band of a bandit that uses no width.
_USUAL_BETA = 2.0


def plot_line(
    bandit: Bandit,
    coordinate: int | str | None = None,
    *,
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    resolution: int = 200,
    beta: float | None = None,
    center: float = 0.0,
    names: Sequence[str] | None = None,
    reward: str = "reward",
    ax: Any = None,
) -> Any:
    """Draw what a bandit believes along one coordinate, with the others fixed.

    A point is drawn as strongly as it counts: fainter where a memory makes it count less or a kernel on time makes it
    old, and where it lies off the line, by the squared prior correlation of the function there and on the line. What
    would be fainter than 2% is left out, and the legend says of how many points. Nothing changes for the bandit.

    Args:
        bandit: whose belief, as of its present time.
        coordinate: by name, or as a column of ``history.X``; None for the first of an action.
        at: a point (d,) with the other coordinates, joint with contexts; None for the recommended point.
        context: with contexts, that in which the point is recommended, as in ``ask``.
        candidates: as in ``ask``, where actions differ from round to round; None for those played.
        bounds: (2, 1), the range to show, in the units that the kernel sees; None for that of what may be played.
        resolution: how many points of the line are computed.
        beta: the band is the mean ± beta σ; None for the bandit's own, or 2 if it uses none.
        center: constant to add to rewards: what you subtracted before you told them.
        names: of all d coordinates, with their units; by default those of the columns, or x1, x2 and so on.
        reward: name and unit of the reward.
        ax: axes of matplotlib to draw on; None for a figure of its own.

    Returns:
        The figure of matplotlib.

    Raises:
        InputError: if an argument does not fit.
        MissingExtraError: if matplotlib is not installed.

    Cost: O(n m²) for the model if something was told since it was last asked for, O((n + resolution) m²), and a
        pass over the arms for their range.
    """
    where = bandit.candidates.context_dim if coordinate is None else coordinate
    line = section(
        bandit,
        (where,),
        at=at,
        context=context,
        candidates=candidates,
        bounds=bounds,
        resolution=resolution,
        names=names,
    )
    beta = float(bandit.beta) or _USUAL_BETA if beta is None else checks.non_negative("beta", beta)
    if ax is None:
        figure = require("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
        ax = figure.subplots()
    (values,), (column,) = line.values, line.columns
    shown = shown_values(bandit, column, values)
    believed = moments(bandit, line.points)
    mean, margin = (believed.mean + center).cpu().numpy(), (beta * believed.deviation).cpu().numpy()
    handles = [
        ax.plot(shown, mean, color=BELIEF, linewidth=1.8, label="posterior mean")[0],
        ax.fill_between(
            shown, mean - margin, mean + margin, color=BELIEF, alpha=0.18, linewidth=0, label=f"mean ± {beta:.3g} σ"
        ),
    ]
    handles += _draw_points(bandit, line, ax, center)
    scale_axis(bandit, column, ax, "x")
    ax.set_xlabel(line.names[column], fontsize=TEXT)
    ax.set_ylabel(reward, fontsize=TEXT)
    ax.set_title(fixed_words(line), fontsize=SMALL, loc="left", color="0.3")
    clean(ax)
    legend_below(ax, handles)
    return ax.get_figure(root=True)


# ---------------------------------------------------------------- inside


def _draw_points(bandit: Bandit, line: Section, ax: Any, center: float) -> list[Any]:
    """Draw what was played, the dictionary, what is pending and what is recommended; return what the legend lists."""
    (column,) = line.columns
    handles = []
    played = played_marks(bandit, line)
    if len(played.X):
        history = bandit.history
        ax.scatter(
            shown_values(bandit, column, history.X[played.drawn, column]),
            (history.Y[played.drawn] + center).cpu().numpy(),
            s=16,
            color=faded(PLAYED, played),
            linewidths=0,
            zorder=2.5,
        )
        handles.append(marker_handle("o", PLAYED, counted("played", played)))
    if bandit.dictionary is not None and len(bandit.inducing_points):
        dictionary = near_marks(bandit, line, bandit.inducing_points)
        ax.scatter(
            shown_values(bandit, column, dictionary.X[dictionary.drawn, column]),
            torch.full((int(dictionary.drawn.sum()),), 0.015).numpy(),
            s=40,
            marker="|",
            color=faded(DICTIONARY, dictionary),
            transform=ax.get_xaxis_transform(),
            zorder=2.6,
        )
        handles.append(marker_handle("|", DICTIONARY, counted("dictionary", dictionary)))
    if line.is_recommended:
        best = moments(bandit, line.at).mean + center
        ax.scatter(
            shown_values(bandit, column, line.at[:, column]),
            best.cpu().numpy(),
            s=150,
            marker="*",
            color=RECOMMENDED,
            edgecolor="black",
            linewidths=0.8,
            zorder=2.7,
        )
        handles.append(marker_handle("*", RECOMMENDED, "recommended", rim="black"))
    if len(bandit.pending):
        pending = near_marks(bandit, line, bandit.pending)
        X = line.through(pending.X[pending.drawn])
        ax.scatter(
            shown_values(bandit, column, X[:, column]),
            (moments(bandit, X).mean + center).cpu().numpy(),
            s=46,
            marker="v",
            facecolor="none",
            edgecolor=faded(PENDING, pending),
            linewidths=1.6,
            zorder=2.8,
        )
        handles.append(marker_handle("v", PENDING, counted("pending, at the mean", pending), hollow=True))
    return handles
