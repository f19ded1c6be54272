"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.choice import Terms, belief_over
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.forgetting import ForgettingTable
from torch_kbandits.beliefs.growing import GrowingBelief
from torch_kbandits.beliefs.joint_belief import JointBelief
from torch_kbandits.beliefs.staged import StagedBelief
from torch_kbandits.beliefs.table import TableBelief

__all__ = [
    "Belief",
    "CovarianceTable",
    "FeatureTable",
    "ForgettingTable",
    "GrowingBelief",
    "JointBelief",
    "Lookahead",
    "StagedBelief",
    "TableBelief",
    "Terms",
    "belief_over",
]
