"""Posteriors as BoTorch models."""

from torch_kbandits.models.nystrom import NystromGP
from torch_kbandits.models.paths import draw_nystrom_paths

__all__ = ["NystromGP", "draw_nystrom_paths"]
