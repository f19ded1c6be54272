"""Problems with known means, so that regret can be measured without noise."""

from torch_kbandits.environments.anchors import bump, chessboard, step_diagonal
from torch_kbandits.environments.arms import FiniteArms, gaussian_bumps
from torch_kbandits.environments.base import Environment
from torch_kbandits.environments.box import BoxFunction
from torch_kbandits.environments.classification import Classification, digits
from torch_kbandits.environments.contextual import ContextualEnvironment
from torch_kbandits.environments.contextual_function import ContextualFunction
from torch_kbandits.environments.gaussian_process import gp_sample, rkhs_function
from torch_kbandits.environments.hpolib import hpolib
from torch_kbandits.environments.logged import LoggedInteractions, read_log
from torch_kbandits.environments.registry import build, describe, names
from torch_kbandits.environments.replay import ReplayedArms
from torch_kbandits.environments.sensors import sensors
from torch_kbandits.environments.synthetic import synthetic_function

__all__ = [
    "BoxFunction",
    "Classification",
    "ContextualEnvironment",
    "ContextualFunction",
    "Environment",
    "FiniteArms",
    "LoggedInteractions",
    "ReplayedArms",
    "build",
    "bump",
    "chessboard",
    "describe",
    "digits",
    "gaussian_bumps",
    "gp_sample",
    "hpolib",
    "names",
    "read_log",
    "rkhs_function",
    "sensors",
    "step_diagonal",
    "synthetic_function",
]
