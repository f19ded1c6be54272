"""A belief over two coordinates: a map of the mean and a map of the standard deviation."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InputError
from torch_kbandits.extras import require
from torch_kbandits.looking.belief import moments
from torch_kbandits.looking.legends import counted, fixed_words, legend_below, marker_handle
from torch_kbandits.looking.marks import faded, near_marks, played_marks
from torch_kbandits.looking.palette import DICTIONARY, PENDING, PLAYED, RECOMMENDED, RIM, SMALL, TEXT
from torch_kbandits.looking.section import Section, section
from torch_kbandits.looking.units import scale_axis, shown_values

#: In inches.
_SIZE = (10.0, 4.6)
#: Maps whose lightness grows with the value, so that they are read without colours, too.
_MAPS = ("viridis", "cividis")


def plot_plane(
    bandit: Bandit,
    coordinates: Sequence[int | str] | None = None,
    *,
    at: Tensor | None = None,
    context: Any = None,
    candidates: Any = None,
    bounds: Tensor | None = None,
    resolution: int = 60,
    center: float = 0.0,
    names: Sequence[str] | None = None,
    reward: str = "reward",
    axes: Sequence[Any] | None = None,
) -> Any:
    """Draw what a bandit believes over two coordinates, with the others fixed: its mean and its standard deviation.

    Points are as strong as they count, as in ``plot_line``. Nothing changes for the bandit.

    Args:
        bandit: whose belief, as of its present time.
        coordinates: two, by name or as columns of ``history.X``; None for the first two of an action, or if it has one
            for the last of the context and that.
        at: as in ``plot_line``, like the words that follow.
        context: with contexts, that in which the point is recommended.
        candidates: as in ``ask``.
        bounds: (2, 2), the ranges to show.
        resolution: points of each coordinate.
        center: constant to add to rewards.
        names: of all d coordinates.
        reward: name and unit of the reward.
        axes: two axes of matplotlib to draw on; None for a figure of its own.

    Returns:
        The figure of matplotlib.

    Raises:
        InputError: if an argument does not fit.
        MissingExtraError: if matplotlib is not installed.

    Cost: O(n m²) for the model if something was told since it was last asked for, O((n + resolution²) m²), and a
        pass over the arms for their range.
    """
    where = _first_two(bandit) if coordinates is None else tuple(coordinates)
    if len(where) != 2:
        raise InputError(f"coordinates must be two, got {list(where)}.")
    plane = section(
        bandit,
        where,
        at=at,
        context=context,
        candidates=candidates,
        bounds=bounds,
        resolution=resolution,
        names=names,
    )
    if len(plane.values) != 2:
        raise InputError("The kernel knows arms by their number, which is one coordinate: take plot_line.")
    own = axes is None
    if axes is None:
        figure = require("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
        axes = list(figure.subplots(1, 2, sharey=True))
    if len(axes) != 2:
        raise InputError(f"axes must be two, for the mean and the standard deviation; got {len(axes)}.")
    believed = moments(bandit, plane.points)
    shape = tuple(len(values) for values in plane.values)
    first, second = (
        shown_values(bandit, column, values) for column, values in zip(plane.columns, plane.values, strict=True)
    )
    handles: list[Any] = []
    maps = ((believed.mean + center, f"posterior mean of the {reward}"), (believed.deviation, f"σ of the {reward}"))
    for ax, colours, (values, label) in zip(axes, _MAPS, maps, strict=True):
        image = ax.pcolormesh(
            first, second, values.reshape(shape).T.cpu().numpy(), cmap=colours, shading="nearest", rasterized=True
        )
        bar = ax.get_figure().colorbar(image, ax=ax)
        bar.set_label(label, fontsize=TEXT)
        bar.ax.tick_params(labelsize=TEXT)
        handles = _draw_points(bandit, plane, ax)
        for column, which in zip(plane.columns, "xy", strict=True):
            scale_axis(bandit, column, ax, which)
        ax.set_xlim(first[0], first[-1])
        ax.set_ylim(second[0], second[-1])
        ax.set_xlabel(plane.names[plane.columns[0]], fontsize=TEXT)
        ax.tick_params(labelsize=TEXT)
    axes[0].set_ylabel(plane.names[plane.columns[1]], fontsize=TEXT)
    axes[0].set_title(fixed_words(plane), fontsize=SMALL, loc="left", color="0.3")
    whole = axes[0].get_figure(root=True)
    if handles and own:
        whole.legend(handles=handles, fontsize=SMALL, ncols=2, frameon=False, loc="outside lower center")
    elif handles:
        legend_below(axes[0], handles)
    return whole


# ---------------------------------------------------------------- inside


def _first_two(bandit: Bandit) -> tuple[int, ...]:
    start, d = bandit.candidates.context_dim, bandit.candidates.example.shape[-1]
    if d - start >= 2:
        return start, start + 1
    if start - int(bandit.candidates.is_timed) >= 1:
        return start - 1, start
    raise InputError("There is one coordinate to show: take plot_line, or name two coordinates.")


def _draw_points(bandit: Bandit, plane: Section, ax: Any) -> list[Any]:
    """Draw what was played, the dictionary, what is pending and what is recommended; return what the legend lists."""
    handles = []

    def scatter(X: Tensor, **style: Any) -> None:
        first, second = (shown_values(bandit, column, X[:, column]) for column in plane.columns)
        ax.scatter(first, second, clip_on=False, **style)  # whole markers, on the border, too

    played = played_marks(bandit, plane)
    if len(played.X):
        rims = faded(RIM, played)
        scatter(played.X[played.drawn], s=24, color=faded(PLAYED, played), edgecolors=rims, linewidths=0.7, zorder=2.5)
        handles.append(marker_handle("o", PLAYED, counted("played", played), rim="0.7"))
    if bandit.dictionary is not None and len(bandit.inducing_points):
        near = near_marks(bandit, plane, bandit.inducing_points)
        scatter(
            near.X[near.drawn], s=70, marker="s", facecolor="none", edgecolor=faded(DICTIONARY, near), linewidths=1.4,
            zorder=2.6,
        )  # fmt: skip
        handles.append(marker_handle("s", DICTIONARY, counted("dictionary", near), hollow=True))
    if plane.is_recommended:
        scatter(plane.at, s=190, marker="*", color=RECOMMENDED, edgecolor="black", linewidths=0.9, zorder=2.8)
        handles.append(marker_handle("*", RECOMMENDED, "recommended", rim="black"))
    if len(bandit.pending):
        near = near_marks(bandit, plane, bandit.pending)
        X = near.X[near.drawn]
        scatter(X, s=60, marker="v", color=faded(PENDING, near), edgecolors=RIM, linewidths=0.8, zorder=2.9)
        handles.append(marker_handle("v", PENDING, counted("pending", near), rim="0.7"))
    return handles
