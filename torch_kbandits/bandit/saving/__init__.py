"""Bandits in files: what is written, and how a bandit is made again without running what a file says."""

from torch_kbandits.bandit.saving.bandits import loaded, save
from torch_kbandits.bandit.saving.container import read, write

__all__ = ["loaded", "read", "save", "write"]
