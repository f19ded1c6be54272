"""Which played points span the Nyström approximation: one rule a file."""

from torch_kbandits.dictionaries.base import DictionaryRule, PlayedPoints, Selection
from torch_kbandits.dictionaries.capped import CappedDictionary, WhenFull
from torch_kbandits.dictionaries.fixed import FixedDictionary
from torch_kbandits.dictionaries.greedy import GreedyDictionary
from torch_kbandits.dictionaries.kors import KORS, theoretical_kors_oversampling
from torch_kbandits.dictionaries.leverage import leverage_scores
from torch_kbandits.dictionaries.online_rule import OnlineRule
from torch_kbandits.dictionaries.online_sample import Offer, OnlineSample
from torch_kbandits.dictionaries.ridge_leverage import Resampling, RidgeLeverageSampling, theoretical_oversampling
from torch_kbandits.dictionaries.spanning import SpanningDictionary
from torch_kbandits.dictionaries.uniform import UniformDictionary

__all__ = [
    "KORS",
    "CappedDictionary",
    "DictionaryRule",
    "FixedDictionary",
    "GreedyDictionary",
    "Offer",
    "OnlineRule",
    "OnlineSample",
    "PlayedPoints",
    "Resampling",
    "RidgeLeverageSampling",
    "Selection",
    "SpanningDictionary",
    "UniformDictionary",
    "WhenFull",
    "leverage_scores",
    "theoretical_kors_oversampling",
    "theoretical_oversampling",
]
