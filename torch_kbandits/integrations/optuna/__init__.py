"""Kernelized bandits as a sampler of Optuna."""

from torch_kbandits.extras import require

require("optuna", "optuna")

from torch_kbandits.integrations.optuna.sampler import KernelBanditSampler, StopStudyWhen  # noqa: E402

__all__ = ["KernelBanditSampler", "StopStudyWhen"]
