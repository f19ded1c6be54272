"""Asking and telling: a bandit made of pieces, how it batches, adapts and is saved, and who is told of it."""

from torch_kbandits.bandit.bandit import Bandit
from torch_kbandits.bandit.batches import (
    BatchRule,
    GlobalBatchRule,
    LocalBatchRule,
    RandomizedKrigingBeliever,
    StayRule,
)
from torch_kbandits.bandit.callbacks import Callback, JSONLog, Told
from torch_kbandits.bandit.health import Health
from torch_kbandits.bandit.importance import Importance
from torch_kbandits.bandit.stopping import StopWhen
from torch_kbandits.bandit.suggestions import Suggestion

__all__ = [
    "Bandit",
    "BatchRule",
    "Callback",
    "GlobalBatchRule",
    "Health",
    "Importance",
    "JSONLog",
    "LocalBatchRule",
    "RandomizedKrigingBeliever",
    "StayRule",
]
__all__ += ["StopWhen", "Suggestion", "Told"]
