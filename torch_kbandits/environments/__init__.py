"""Problems with known means, so that regret can be measured without noise."""

from torch_kbandits.environments.anchors import bump, chessboard, step_diagonal
from torch_kbandits.environments.arms import FiniteArms, ReplayedArms, SensorReplay
from torch_kbandits.environments.base import ContextualEnvironment, DynamicEnvironment, Environment
from torch_kbandits.environments.classification import Classification, digits
from torch_kbandits.environments.functions import BoxFunction, ContextualFunction
from torch_kbandits.environments.hpolib import hpolib
from torch_kbandits.environments.logged import LoggedInteractions, read_log
from torch_kbandits.environments.peaks import MovingPeak, SeattleWeather
from torch_kbandits.environments.registry import AnyEnvironment, build, describe, names
from torch_kbandits.environments.sampled import gaussian_bumps, gp_sample, rkhs_function
from torch_kbandits.environments.sensors import ozone_grid, sensor_replay, sensors
from torch_kbandits.environments.sequences import AbruptSwitches, Drift, Periodic
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
