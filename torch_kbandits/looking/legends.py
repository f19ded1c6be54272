"""The words of a figure: what is fixed, how many points are drawn, and legends that hide nothing."""

from collections.abc import Sequence
from typing import Any

from torch_kbandits.extras import require
from torch_kbandits.looking.marks import Marks
from torch_kbandits.looking.palette import SMALL
from torch_kbandits.looking.section import Section

#: More fixed coordinates than these are not listed.
_LISTED = 4


def fixed_words(where: Section) -> str:
    """Return what the fixed coordinates are, in a line; nothing if none are."""
    fixed = where.fixed
    if not fixed:
        return ""
    source = " (recommended)" if where.is_recommended else ""
    if len(fixed) > _LISTED:
        return f"the other {len(fixed)} coordinates are fixed{source}"
    return ", ".join(f"{name} = {value:.4g}" for name, value in fixed.items()) + source


def counted(kind: str, marks: Marks) -> str:
    """Return what to call points of a kind: with how many there are, and how many of them are drawn if not all."""
    drawn, number = int(marks.drawn.sum()), len(marks.X)
    fading = ", fainter where it counts less" if kind == "played" and bool((marks.strength < 1.0).any()) else ""
    return f"{kind}{fading} ({number})" if drawn == number else f"{kind}{fading} ({drawn} of {number})"


def marker_handle(marker: str, colour: str, label: str, *, hollow: bool = False, rim: str | None = None) -> Any:
    """Return an entry of a legend: a marker in its full colour."""
    return require("matplotlib.lines").Line2D(
        [],
        [],
        linewidth=0,
        marker=marker,
        markersize=10 if marker == "*" else 7,
        color=colour,
        markerfacecolor="none" if hollow else colour,
        markeredgecolor=rim or colour,
        markeredgewidth=1.6 if hollow or marker == "|" else 0.8,
        label=label,
    )


def legend_below(ax: Any, handles: Sequence[Any], columns: int = 2) -> None:
    """Put a legend under the label of the horizontal axis."""
    ax.legend(
        handles=handles,
        fontsize=SMALL,
        ncols=min(columns, len(handles)),
        frameon=False,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
    )
