"""What is believed of the candidates, and how the next of them is chosen."""

from torch_kbandits.beliefs.base import Belief, FantasyPosterior
from torch_kbandits.beliefs.choice import PosteriorConfig, are_few, belief_over
from torch_kbandits.beliefs.composite import EnsembleBelief, StagedBelief, offering
from torch_kbandits.beliefs.constrained import Playable, recommended
from torch_kbandits.beliefs.constraints import (
    ConstrainedAcquisition,
    ConstrainedOutcome,
    ConstraintSet,
    FeasibilityModel,
    among,
    failure_probability,
)
from torch_kbandits.beliefs.filtered import FilteredArms
from torch_kbandits.beliefs.objectives import ObjectivePosterior, ObjectiveSet, ScalarizedFantasy
from torch_kbandits.beliefs.posterior_belief import PosteriorBelief

__all__ = [
    "Belief",
    "ConstrainedAcquisition",
    "ConstrainedOutcome",
    "ConstraintSet",
    "EnsembleBelief",
    "FantasyPosterior",
    "FeasibilityModel",
    "FilteredArms",
    "ObjectivePosterior",
    "ObjectiveSet",
    "Playable",
    "PosteriorBelief",
    "PosteriorConfig",
    "ScalarizedFantasy",
    "StagedBelief",
    "among",
    "are_few",
    "belief_over",
    "failure_probability",
    "offering",
    "recommended",
]
