"""Problems with known means, so that regret can be measured without noise."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.environments.base import AnyEnvironment as AnyEnvironment
    from torch_kbandits.environments.base import ContextualEnvironment as ContextualEnvironment
    from torch_kbandits.environments.base import DynamicEnvironment as DynamicEnvironment
    from torch_kbandits.environments.base import Environment as Environment
    from torch_kbandits.environments.changing import AbruptSwitches as AbruptSwitches
    from torch_kbandits.environments.changing import Drift as Drift
    from torch_kbandits.environments.changing import MovingPeak as MovingPeak
    from torch_kbandits.environments.changing import SeattleWeather as SeattleWeather
    from torch_kbandits.environments.contextual import bump as bump
    from torch_kbandits.environments.contextual import chessboard as chessboard
    from torch_kbandits.environments.contextual import digits as digits
    from torch_kbandits.environments.contextual import step_diagonal as step_diagonal
    from torch_kbandits.environments.problems import BoxFunction as BoxFunction
    from torch_kbandits.environments.problems import Classification as Classification
    from torch_kbandits.environments.problems import ContextualFunction as ContextualFunction
    from torch_kbandits.environments.problems import FiniteArms as FiniteArms
    from torch_kbandits.environments.problems import SensorReplay as SensorReplay
    from torch_kbandits.environments.problems import replayed_arms as replayed_arms
    from torch_kbandits.environments.recorded import hpolib as hpolib
    from torch_kbandits.environments.recorded import sensor_replay as sensor_replay
    from torch_kbandits.environments.recorded import sensors as sensors
    from torch_kbandits.environments.registry import build as build
    from torch_kbandits.environments.registry import describe as describe
    from torch_kbandits.environments.registry import names as names
    from torch_kbandits.environments.synthetic import gaussian_bumps as gaussian_bumps
    from torch_kbandits.environments.synthetic import gp_sample as gp_sample
    from torch_kbandits.environments.synthetic import rkhs_function as rkhs_function
    from torch_kbandits.environments.synthetic import synthetic_function as synthetic_function
else:
    __getattr__, __dir__, __all__ = exports(__name__)
