"""Figures of a bandit's posterior, and a line of progress while it plays. Nothing here changes it."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.plotting.front import ParetoFront as ParetoFront
    from torch_kbandits.plotting.front import pareto_front as pareto_front
    from torch_kbandits.plotting.front import plot_front as plot_front
    from torch_kbandits.plotting.posterior import plot_dictionary as plot_dictionary
    from torch_kbandits.plotting.posterior import plot_importance as plot_importance
    from torch_kbandits.plotting.posterior import plot_line as plot_line
    from torch_kbandits.plotting.posterior import plot_plane as plot_plane
    from torch_kbandits.plotting.progress import Progress as Progress
else:
    __getattr__, __dir__, __all__ = exports(__name__)
