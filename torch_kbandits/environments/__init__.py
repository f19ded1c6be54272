"""Problems with known means, so that regret can be measured without noise."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.environments.anchors import bump as bump
    from torch_kbandits.environments.anchors import chessboard as chessboard
    from torch_kbandits.environments.anchors import step_diagonal as step_diagonal
    from torch_kbandits.environments.arms import FiniteArms as FiniteArms
    from torch_kbandits.environments.arms import ReplayedArms as ReplayedArms
    from torch_kbandits.environments.arms import SensorReplay as SensorReplay
    from torch_kbandits.environments.base import ContextualEnvironment as ContextualEnvironment
    from torch_kbandits.environments.base import DynamicEnvironment as DynamicEnvironment
    from torch_kbandits.environments.base import Environment as Environment
    from torch_kbandits.environments.classification import Classification as Classification
    from torch_kbandits.environments.classification import digits as digits
    from torch_kbandits.environments.functions import BoxFunction as BoxFunction
    from torch_kbandits.environments.functions import ContextualFunction as ContextualFunction
    from torch_kbandits.environments.logged import LoggedInteractions as LoggedInteractions
    from torch_kbandits.environments.logged import read_log as read_log
    from torch_kbandits.environments.peaks import MovingPeak as MovingPeak
    from torch_kbandits.environments.peaks import SeattleWeather as SeattleWeather
    from torch_kbandits.environments.readings import ozone_grid as ozone_grid
    from torch_kbandits.environments.readings import sensor_replay as sensor_replay
    from torch_kbandits.environments.readings import sensors as sensors
    from torch_kbandits.environments.registry import AnyEnvironment as AnyEnvironment
    from torch_kbandits.environments.registry import build as build
    from torch_kbandits.environments.registry import describe as describe
    from torch_kbandits.environments.registry import names as names
    from torch_kbandits.environments.sampled import gaussian_bumps as gaussian_bumps
    from torch_kbandits.environments.sampled import gp_sample as gp_sample
    from torch_kbandits.environments.sampled import rkhs_function as rkhs_function
    from torch_kbandits.environments.sequences import AbruptSwitches as AbruptSwitches
    from torch_kbandits.environments.sequences import Drift as Drift
    from torch_kbandits.environments.sequences import Periodic as Periodic
    from torch_kbandits.environments.synthetic import synthetic_function as synthetic_function
    from torch_kbandits.environments.trained_networks import hpolib as hpolib
else:
    __getattr__, __dir__, __all__ = exports(__name__)
