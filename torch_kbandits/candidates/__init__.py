"""What may be played, and the posterior over it in the form that makes asking fast."""

from torch_kbandits.candidates.arms import Arms, ArmTable
from torch_kbandits.candidates.base import Belief, Candidates, PlayedLog
from torch_kbandits.candidates.box import Box, BoxBelief

__all__ = ["ArmTable", "Arms", "Belief", "Box", "BoxBelief", "Candidates", "PlayedLog"]
