"""What a bandit reads from its rewards about how fast the function changes: a value decides, a bandit acts."""

from torch_kbandits.bandit.adaptation.bandit_over_bandit import BanditOverBandit, block_windows, default_memories
from torch_kbandits.bandit.adaptation.exp3 import exploration_rate, probabilities
from torch_kbandits.bandit.adaptation.memory_choice import Choice, MemoryChoice
from torch_kbandits.bandit.adaptation.model_selection import DynamicModelSelection, default_discounts
from torch_kbandits.bandit.adaptation.restart_trigger import CumulatedTrigger, ResidualTrigger, RestartTrigger

__all__ = [
    "BanditOverBandit",
    "Choice",
    "CumulatedTrigger",
    "DynamicModelSelection",
    "MemoryChoice",
    "ResidualTrigger",
    "RestartTrigger",
    "block_windows",
    "default_discounts",
    "default_memories",
    "exploration_rate",
    "probabilities",
]
