"""Problems with known means, so that regret can be measured without noise."""

from torch_kbandits.environments.abrupt_switches import AbruptSwitches
from torch_kbandits.environments.anchors import bump, chessboard, step_diagonal
from torch_kbandits.environments.arms import FiniteArms, gaussian_bumps
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.box import BoxFunction
from torch_kbandits.environments.classification import Classification, digits
from torch_kbandits.environments.contextual import ContextualEnvironment
from torch_kbandits.environments.contextual_function import ContextualFunction
from torch_kbandits.environments.drift import Drift
from torch_kbandits.environments.dynamic import DynamicEnvironment
from torch_kbandits.environments.gaussian_process import gp_sample, rkhs_function
from torch_kbandits.environments.hpolib import hpolib
from torch_kbandits.environments.logged import LoggedInteractions, read_log
from torch_kbandits.environments.moving_peak import MovingPeak
from torch_kbandits.environments.ozone import ozone_grid
from torch_kbandits.environments.periodic import Periodic
from torch_kbandits.environments.problem import KnownBeforehand
from torch_kbandits.environments.registry import AnyEnvironment, build, describe, names
from torch_kbandits.environments.replay import ReplayedArms
from torch_kbandits.environments.seattle_weather import SeattleWeather
from torch_kbandits.environments.sensor_replay import SensorReplay, sensor_replay
from torch_kbandits.environments.sensors import sensors
from torch_kbandits.environments.synthetic import synthetic_function

__all__ = [
    "AbruptSwitches",
    "AnyEnvironment",
    "BoxFunction",
    "Classification",
    "ContextualEnvironment",
    "ContextualFunction",
    "Drift",
    "DynamicEnvironment",
    "Environment",
    "FiniteArms",
    "KnownBeforehand",
    "LoggedInteractions",
    "MovingPeak",
    "Periodic",
    "ReplayedArms",
    "SeattleWeather",
    "SensorReplay",
    "build",
    "bump",
    "chessboard",
    "describe",
    "digits",
    "gaussian_bumps",
    "gp_sample",
    "hpolib",
    "names",
    "ozone_grid",
    "read_log",
    "rkhs_function",
    "sensor_replay",
    "sensors",
    "step_diagonal",
    "synthetic_function",
]
