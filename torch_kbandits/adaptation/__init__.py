"""What a bandit reads from its rewards about how fast the function changes: a value decides, a bandit acts."""

from torch_kbandits.adaptation.bandit_over_bandit import BanditOverBandit, Choice, block_windows, default_memories
from torch_kbandits.adaptation.exp3 import exploration_rate, probabilities
from torch_kbandits.adaptation.restart_trigger import ResidualTrigger, RestartTrigger

__all__ = [
    "BanditOverBandit",
    "Choice",
    "ResidualTrigger",
    "RestartTrigger",
    "block_windows",
    "default_memories",
    "exploration_rate",
    "probabilities",
]
