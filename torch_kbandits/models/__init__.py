"""Posteriors as BoTorch models."""

import torch_kbandits.models.paths  # registers pathwise sampling
from torch_kbandits.models.nystrom import NystromGP

__all__ = ["NystromGP"]
