"""Which played points span the Nyström approximation."""

from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.capped import CappedDictionary, WhenFull
from torch_kbandits.dictionaries.greedy import FixedDictionary, GreedyDictionary, UniformDictionary
from torch_kbandits.dictionaries.k_dpp import KDPP
from torch_kbandits.dictionaries.online import (
    KORS,
    OnlineRule,
    OnlineState,
    SpanningDictionary,
    theoretical_kors_oversampling,
)
from torch_kbandits.dictionaries.ridge_leverage import Resampling, RidgeLeverageSampling, theoretical_oversampling

__all__ = [
    "KDPP",
    "KORS",
    "CappedDictionary",
    "DictionaryRule",
    "FixedDictionary",
    "GreedyDictionary",
    "OnlineRule",
    "OnlineState",
    "PlayedPoints",
    "Resampling",
    "RidgeLeverageSampling",
    "Selection",
    "SpanningDictionary",
    "UniformDictionary",
    "WhenFull",
    "theoretical_kors_oversampling",
    "theoretical_oversampling",
]
