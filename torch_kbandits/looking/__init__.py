"""Looking at a bandit: figures of what it believes, and a line while it plays. Nothing here changes it."""

from typing import TYPE_CHECKING

from torch_kbandits.exports import exports

if TYPE_CHECKING:
    from torch_kbandits.looking.columns import history_columns as history_columns
    from torch_kbandits.looking.dictionary import plot_dictionary as plot_dictionary
    from torch_kbandits.looking.dictionary import plot_leverage as plot_leverage
    from torch_kbandits.looking.front import ParetoFront as ParetoFront
    from torch_kbandits.looking.front import pareto_front as pareto_front
    from torch_kbandits.looking.front import plot_front as plot_front
    from torch_kbandits.looking.line import plot_line as plot_line
    from torch_kbandits.looking.plane import plot_plane as plot_plane
    from torch_kbandits.looking.progress import Gauge as Gauge
    from torch_kbandits.looking.progress import Progress as Progress
    from torch_kbandits.looking.progress import Reading as Reading
    from torch_kbandits.looking.progress import track as track
    from torch_kbandits.looking.saved import plot_saved as plot_saved
else:
    __getattr__, __dir__, __all__ = exports(__name__)
