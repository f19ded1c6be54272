"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.choice import Terms, are_few, belief_over, course_of
from torch_kbandits.beliefs.constrained import Playable, playable_in, recommended
from torch_kbandits.beliefs.counted import CountedBelief
from torch_kbandits.beliefs.course import Choice, Course
from torch_kbandits.beliefs.covariances import CovarianceTable
from torch_kbandits.beliefs.ensemble import EnsembleBelief, offering
from torch_kbandits.beliefs.features import FeatureTable
from torch_kbandits.beliefs.fence import Fence, Fenced, Watched
from torch_kbandits.beliefs.filtered import FilteredArms
from torch_kbandits.beliefs.guard import Guard, failure_probability
from torch_kbandits.beliefs.objectives import Aim, Goals
from torch_kbandits.beliefs.staged import StagedBelief
from torch_kbandits.beliefs.table import TableBelief
from torch_kbandits.beliefs.told_otherwise import ToldOtherwise
from torch_kbandits.beliefs.weighed import Aiming, recommended_for

__all__ = [
    "Aim",
    "Aiming",
    "Belief",
    "Choice",
    "CountedBelief",
    "Course",
    "CovarianceTable",
    "EnsembleBelief",
    "FeatureTable",
    "Fence",
    "Fenced",
    "FilteredArms",
    "Goals",
    "Guard",
    "Lookahead",
    "Playable",
    "StagedBelief",
    "TableBelief",
    "Terms",
    "ToldOtherwise",
    "Watched",
    "are_few",
    "belief_over",
    "course_of",
    "failure_probability",
    "offering",
    "playable_in",
    "recommended",
    "recommended_for",
]
