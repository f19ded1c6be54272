"""What may be played, and the posterior over it in the form that makes asking fast."""

from torch_kbandits.candidates.arms import Arms
from torch_kbandits.candidates.base import Belief, Candidates, Lookahead, PlayedLog
from torch_kbandits.candidates.blocks import ArmBlocks
from torch_kbandits.candidates.box import Box, BoxBelief
from torch_kbandits.candidates.contextual import ContextualActions
from torch_kbandits.candidates.covariances import CovarianceTable
from torch_kbandits.candidates.features import FeatureTable
from torch_kbandits.candidates.forgetting import ForgettingTable
from torch_kbandits.candidates.growing import GrowingBelief
from torch_kbandits.candidates.joint import JointBelief
from torch_kbandits.candidates.mapped import MappedArms
from torch_kbandits.candidates.sources import ArmSource, TensorArms
from torch_kbandits.candidates.staged import StagedBelief
from torch_kbandits.candidates.table import TableBelief
from torch_kbandits.candidates.timed import TimedActions

__all__ = [
    "ArmBlocks",
    "ArmSource",
    "Arms",
    "Belief",
    "Box",
    "BoxBelief",
    "Candidates",
    "ContextualActions",
    "CovarianceTable",
    "FeatureTable",
    "ForgettingTable",
    "GrowingBelief",
    "JointBelief",
    "Lookahead",
    "MappedArms",
    "PlayedLog",
    "StagedBelief",
    "TableBelief",
    "TensorArms",
    "TimedActions",
]
