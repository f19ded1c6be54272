"""Kernelized bandits as a generator of Xopt, known to it by the name "kernel_bandit" once this is imported."""

from torch_kbandits.extras import require

require("xopt", "xopt")

from torch_kbandits.integrations.xopt.generator import KernelBanditGenerator  # noqa: E402

__all__ = ["KernelBanditGenerator"]
