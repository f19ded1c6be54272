"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, FantasyPosterior
from torch_kbandits.beliefs.choice import PosteriorConfig, are_few, belief_over
from torch_kbandits.beliefs.composite import EnsembleBelief, StagedBelief, offering
from torch_kbandits.beliefs.constrained import Playable, playable_in, recommended
from torch_kbandits.beliefs.constraint_set import ConstrainedAcquisition, ConstrainedOutcome, ConstraintSet
from torch_kbandits.beliefs.feasibility import FeasibilityModel, failure_probability
from torch_kbandits.beliefs.filtered import FilteredArms
from torch_kbandits.beliefs.objectives import ObjectivePosterior, ObjectiveSet
from torch_kbandits.beliefs.posterior_belief import PosteriorBelief
from torch_kbandits.beliefs.scalarized import ObjectiveFantasies, recommended_for

__all__ = [
    "Belief",
    "ConstrainedAcquisition",
    "ConstrainedOutcome",
    "ConstraintSet",
    "EnsembleBelief",
    "FantasyPosterior",
    "FeasibilityModel",
    "FilteredArms",
    "ObjectiveFantasies",
    "ObjectivePosterior",
    "ObjectiveSet",
    "Playable",
    "PosteriorBelief",
    "PosteriorConfig",
    "StagedBelief",
    "are_few",
    "belief_over",
    "failure_probability",
    "offering",
    "playable_in",
    "recommended",
    "recommended_for",
]
