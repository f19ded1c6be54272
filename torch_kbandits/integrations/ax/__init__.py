"""Kernelized bandits as a generation strategy of Ax.

Import this before loading an experiment that was saved with such a strategy.
"""

from torch_kbandits.extras import require

require("ax", extra="ax")

from torch_kbandits.integrations.ax.strategy import (  # noqa: E402
    KernelBanditStoppingStrategy,
    kernel_bandit_strategy,
    recommend,
    register,
)

register()

__all__ = ["KernelBanditStoppingStrategy", "kernel_bandit_strategy", "recommend"]
