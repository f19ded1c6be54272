"""Posteriors as BoTorch models."""

from torch_kbandits.models.base import FactoredGP, OnlineGP
from torch_kbandits.models.draws import PosteriorDraws, draw_nystrom_paths
from torch_kbandits.models.nystrom import NystromGP
from torch_kbandits.models.quality import DictionaryQuality, dictionary_quality

__all__ = [
    "DictionaryQuality",
    "FactoredGP",
    "NystromGP",
    "OnlineGP",
    "PosteriorDraws",
    "dictionary_quality",
    "draw_nystrom_paths",
]
