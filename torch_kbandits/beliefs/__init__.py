"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, Lookahead
from torch_kbandits.beliefs.choice import Terms, are_few, belief_over
from torch_kbandits.beliefs.constrained import Playable, playable_in, recommended
from torch_kbandits.beliefs.ensemble import EnsembleBelief, offering
from torch_kbandits.beliefs.fence import Fence, Fenced, Watched
from torch_kbandits.beliefs.filtered import FilteredArms
from torch_kbandits.beliefs.guard import Guard, failure_probability
from torch_kbandits.beliefs.objectives import Aim, Goals
from torch_kbandits.beliefs.posterior_belief import PosteriorBelief
from torch_kbandits.beliefs.staged import StagedBelief
from torch_kbandits.beliefs.weighed import Aiming, recommended_for

__all__ = [
    "Aim",
    "Aiming",
    "Belief",
    "EnsembleBelief",
    "Fence",
    "Fenced",
    "FilteredArms",
    "Goals",
    "Guard",
    "Lookahead",
    "Playable",
    "PosteriorBelief",
    "StagedBelief",
    "Terms",
    "Watched",
    "are_few",
    "belief_over",
    "failure_probability",
    "offering",
    "playable_in",
    "recommended",
    "recommended_for",
]
