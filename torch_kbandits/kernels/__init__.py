"""Kernels that GPyTorch lacks."""

from torch_kbandits.kernels.grouped import GroupedKernel
from torch_kbandits.kernels.per_action_linear import PerActionLinearKernel
from torch_kbandits.kernels.precomputed import PrecomputedKernel
from torch_kbandits.kernels.temporal import ForgettingKernel, SpaceTimeKernel, WienerKernel

__all__ = [
    "ForgettingKernel",
    "GroupedKernel",
    "PerActionLinearKernel",
    "PrecomputedKernel",
    "SpaceTimeKernel",
    "WienerKernel",
]
