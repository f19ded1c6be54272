"""Families of hypotheses: kernels, means, noises and memories that take turns by a rule."""

from torch_kbandits.priors.families.base import (
    Family,
    FamilyRule,
    ModelSpec,
    Trials,
    of_length_scales,
    shrinking_scales,
)
from torch_kbandits.priors.families.rules import Balancing, Elimination, Prediction, Sampling

__all__ = [
    "Balancing",
    "Elimination",
    "Family",
    "FamilyRule",
    "ModelSpec",
    "Prediction",
    "Sampling",
    "Trials",
    "of_length_scales",
    "shrinking_scales",
]
