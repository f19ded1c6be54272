"""Kernels that GPyTorch lacks."""

from torch_kbandits.kernels.precomputed import PrecomputedKernel

__all__ = ["PrecomputedKernel"]
