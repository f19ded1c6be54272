"""Confidence widths: the multiplier of the posterior standard deviation, one theorem a file."""

from torch_kbandits.confidence.base import ConstantWidth, Evidence, ScaledWidth, Width
from torch_kbandits.confidence.bkb import BKBWidth
from torch_kbandits.confidence.information import effective_dimension, greedy_information_gain, information_gain

__all__ = [
    "BKBWidth",
    "ConstantWidth",
    "Evidence",
    "ScaledWidth",
    "Width",
    "effective_dimension",
    "greedy_information_gain",
    "information_gain",
]
