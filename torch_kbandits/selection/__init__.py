"""How a candidate is chosen from a posterior: surrogates of bandits, constraints, objectives, families, stages."""

from torch_kbandits.selection.base import FantasyPosterior, PosteriorConfig, Surrogate
from torch_kbandits.selection.believer import BelievedFantasy
from torch_kbandits.selection.choice import are_few, over_arms, surrogate_over
from torch_kbandits.selection.composite import EnsembleSurrogate, StagedSurrogate, offering
from torch_kbandits.selection.constraints import ConstrainedOutcome, ConstraintSet, Playable, recommended
from torch_kbandits.selection.failures import FeasibilityModel, among
from torch_kbandits.selection.filtered import FilteredArms
from torch_kbandits.selection.gaussian import GaussianSurrogate
from torch_kbandits.selection.objectives import ObjectivePosterior, ObjectiveSet, ScalarizedFantasy
from torch_kbandits.selection.propensities import Choice, Chosen

__all__ = [
    "BelievedFantasy",
    "Choice",
    "Chosen",
    "ConstrainedOutcome",
    "ConstraintSet",
    "EnsembleSurrogate",
    "FantasyPosterior",
    "FeasibilityModel",
    "FilteredArms",
    "GaussianSurrogate",
    "ObjectivePosterior",
    "ObjectiveSet",
    "Playable",
    "PosteriorConfig",
    "ScalarizedFantasy",
    "StagedSurrogate",
    "Surrogate",
    "among",
    "are_few",
    "offering",
    "over_arms",
    "recommended",
    "surrogate_over",
]
