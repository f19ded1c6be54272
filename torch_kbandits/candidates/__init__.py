"""What may be played."""

from torch_kbandits.candidates.arms import Arms
from torch_kbandits.candidates.base import Candidates, LastingCandidates
from torch_kbandits.candidates.blocks import ArmBlocks
from torch_kbandits.candidates.box import Box
from torch_kbandits.candidates.configurations import Configurations
from torch_kbandits.candidates.contextual import ContextualActions
from torch_kbandits.candidates.cube import UnitCube
from torch_kbandits.candidates.mapped import MappedArms
from torch_kbandits.candidates.sources import ArmSource, TensorArms
from torch_kbandits.candidates.timed import Timed, TimedActions

__all__ = [
    "ArmBlocks",
    "ArmSource",
    "Arms",
    "Box",
    "Candidates",
    "Configurations",
    "ContextualActions",
    "LastingCandidates",
    "MappedArms",
    "TensorArms",
    "Timed",
    "TimedActions",
    "UnitCube",
]
