"""Kernels that GPyTorch lacks."""

from torch_kbandits.kernels.composed import GroupedKernel, NormalizedKernel, SpaceTimeKernel
from torch_kbandits.kernels.discrete import PerActionLinearKernel, PrecomputedKernel
from torch_kbandits.kernels.structured import SpectrumKernel, TanimotoKernel, count_subtrees, encode_strings
from torch_kbandits.kernels.temporal import ForgettingKernel, WienerKernel

__all__ = [
    "ForgettingKernel",
    "GroupedKernel",
    "NormalizedKernel",
    "PerActionLinearKernel",
    "PrecomputedKernel",
    "SpaceTimeKernel",
    "SpectrumKernel",
    "TanimotoKernel",
    "WienerKernel",
    "count_subtrees",
    "encode_strings",
]
