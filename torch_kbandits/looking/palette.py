"""How figures look: curves that print and the colour-blind tell apart, and text of a size that can be read."""

from typing import Any

#: Okabe and Ito's colours, which the colour-blind tell apart; yellow is left out, it is too light for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
BELIEF, DICTIONARY, PENDING, RECOMMENDED, PLAYED = COLOURS[:5]
#: Curves differ in all three at once, so that they are told apart in print and by the colour-blind.
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
MARKERS = "os^DvPX"
#: Points on a map of colours need another rim.
RIM = "white"
#: In points; nothing is written smaller.
TEXT = 9.0
SMALL = 8.0


def clean(ax: Any) -> None:
    """Give axes a faint grid below what is drawn, and no frame above and on the right."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=TEXT)
