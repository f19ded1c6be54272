"""What a bandit reads from its rewards about how fast the function changes: a value decides, a bandit acts."""

from torch_kbandits.bandit.adaptation.memory_choice import (
    BanditOverBandit,
    Choice,
    DynamicModelSelection,
    MemoryChoice,
    block_windows,
    default_discounts,
    default_memories,
    exploration_rate,
    probabilities,
)
from torch_kbandits.bandit.adaptation.restart_trigger import CumulatedTrigger, ResidualTrigger, RestartTrigger

__all__ = ["BanditOverBandit", "Choice", "CumulatedTrigger", "DynamicModelSelection", "MemoryChoice", "ResidualTrigger"]
__all__ += ["RestartTrigger", "block_windows", "default_discounts", "default_memories", "exploration_rate"]
__all__ += ["probabilities"]
