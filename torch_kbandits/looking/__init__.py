"""Looking at a bandit: figures of what it believes, and a line while it plays. Nothing here changes it."""

from torch_kbandits.looking.columns import history_columns
from torch_kbandits.looking.dictionary import plot_dictionary, plot_leverage
from torch_kbandits.looking.front import ParetoFront, pareto_front, plot_front
from torch_kbandits.looking.line import plot_line
from torch_kbandits.looking.plane import plot_plane
from torch_kbandits.looking.progress import Gauge, Progress, Reading, track
from torch_kbandits.looking.saved import plot_saved

__all__ = [
    "Gauge",
    "ParetoFront",
    "Progress",
    "Reading",
    "history_columns",
    "pareto_front",
    "plot_dictionary",
    "plot_front",
    "plot_leverage",
    "plot_line",
    "plot_plane",
    "plot_saved",
    "track",
]
