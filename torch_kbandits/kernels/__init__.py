"""Kernels that GPyTorch lacks."""

from torch_kbandits.kernels.per_action_linear import PerActionLinearKernel
from torch_kbandits.kernels.precomputed import PrecomputedKernel

__all__ = ["PerActionLinearKernel", "PrecomputedKernel"]
