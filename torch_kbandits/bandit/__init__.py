"""Asking and telling: a bandit made of pieces, how it batches, adapts and is saved."""

from torch_kbandits.bandit.bandit import Asked, Bandit
from torch_kbandits.bandit.batches import BatchRule, GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.bandit.health import Health
from torch_kbandits.bandit.stopping import StopWhen

__all__ = ["Asked", "Bandit", "BatchRule", "GlobalBatchRule", "Health", "LocalBatchRule", "StayRule", "StopWhen"]
