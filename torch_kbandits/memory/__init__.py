"""What old observations still count for."""

from torch_kbandits.memory.base import KeepAll, Memory
from torch_kbandits.memory.fading import Discount, TemporalPrior, UncertaintyInjection
from torch_kbandits.memory.growth import Exponential, Growth, Linear, Quadratic, ages, negligible
from torch_kbandits.memory.windows import Restart, SlidingWindow

__all__ = [
    "Discount",
    "Exponential",
    "Growth",
    "KeepAll",
    "Linear",
    "Memory",
    "Quadratic",
    "Restart",
    "SlidingWindow",
    "TemporalPrior",
    "UncertaintyInjection",
    "ages",
    "negligible",
]
