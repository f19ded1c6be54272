"""Bandits in files: what is written, and how a bandit is made again without running what a file says."""

from torch_kbandits.bandit.saving.files import loaded, read, save, write
from torch_kbandits.bandit.saving.states import check_same, restored, state_of
from torch_kbandits.bandit.values import NotRebuildableError, describe, rebuild, settings_of

__all__ = ["NotRebuildableError", "check_same", "describe", "loaded", "read", "rebuild", "restored"]
__all__ += ["save", "settings_of", "state_of", "write"]
