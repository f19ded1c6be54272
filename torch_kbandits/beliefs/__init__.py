"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.choice import belief_over
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.forgetting import ForgettingTable
from torch_kbandits.beliefs.model_belief import ModelBelief
from torch_kbandits.beliefs.nystrom import NystromBelief
from torch_kbandits.beliefs.staged import StagedBelief
from torch_kbandits.beliefs.table import TableBelief

__all__ = [
    "Belief",
    "CovarianceTable",
    "FeatureTable",
    "ForgettingTable",
    "Lookahead",
    "ModelBelief",
    "NystromBelief",
    "StagedBelief",
    "TableBelief",
    "belief_over",
]
