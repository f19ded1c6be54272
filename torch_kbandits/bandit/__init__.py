"""Asking and telling: a bandit made of pieces, how it batches, adapts and is saved."""

from torch_kbandits.bandit.bandit import Asked, Bandit
from torch_kbandits.bandit.batches import BatchRule, GlobalBatchRule, LocalBatchRule, StayRule

__all__ = ["Asked", "Bandit", "BatchRule", "GlobalBatchRule", "LocalBatchRule", "StayRule"]
