"""How good a candidate is: BoTorch acquisition functions."""

from torch_kbandits.acquisition.kernel_ucb import KernelUCB

__all__ = ["KernelUCB"]
