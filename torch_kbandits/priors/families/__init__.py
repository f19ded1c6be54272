"""Families of hypotheses: rules by which kernels, means, noises and memories take turns, one a file."""

from torch_kbandits.priors.families.balancing import Balancing
from torch_kbandits.priors.families.base import Family, FamilyRule, Trials, Variant
from torch_kbandits.priors.families.elimination import Elimination
from torch_kbandits.priors.families.length_scales import of_length_scales, shrinking_scales
from torch_kbandits.priors.families.prediction import Prediction
from torch_kbandits.priors.families.sampling import Sampling

__all__ = [
    "Balancing",
    "Elimination",
    "Family",
    "FamilyRule",
    "Prediction",
    "Sampling",
    "Trials",
    "Variant",
    "of_length_scales",
    "shrinking_scales",
]
