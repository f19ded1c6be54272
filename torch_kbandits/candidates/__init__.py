"""What may be played."""

from torch_kbandits.candidates.arms import Arms, ArmSource
from torch_kbandits.candidates.base import Candidates, LastingCandidates
from torch_kbandits.candidates.box import Box, UnitCube
from torch_kbandits.candidates.contextual import Configurations, ContextualActions
from torch_kbandits.candidates.timed import Timed

__all__ = ["ArmSource", "Arms", "Box", "Candidates", "Configurations", "ContextualActions", "LastingCandidates"]
__all__ += ["Timed", "UnitCube"]
