"""What may be played, and the posterior over it in the form that makes asking fast."""

from torch_kbandits.candidates.arms import Arms
from torch_kbandits.candidates.base import Belief, Candidates, Lookahead, PlayedLog
from torch_kbandits.candidates.box import Box, BoxBelief
from torch_kbandits.candidates.table import ArmTable

__all__ = ["ArmTable", "Arms", "Belief", "Box", "BoxBelief", "Candidates", "Lookahead", "PlayedLog"]
