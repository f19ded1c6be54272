"""Asking and telling: a bandit made of pieces, how it batches, adapts and is saved."""

from torch_kbandits.bandit.bandit import Bandit
from torch_kbandits.bandit.batches import BatchRule, GlobalBatchRule, LocalBatchRule, StayRule
from torch_kbandits.bandit.health import Health
from torch_kbandits.bandit.suggestions import Suggestion

__all__ = ["Bandit", "BatchRule", "GlobalBatchRule", "Health", "LocalBatchRule", "StayRule", "Suggestion"]
