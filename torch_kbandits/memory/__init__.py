"""What old observations still count for."""

from torch_kbandits.memory.base import KeepAll, Memory
from torch_kbandits.memory.fading import BackToPrior, Discount, UncertaintyInjection
from torch_kbandits.memory.growth import Exponential, Growth, Linear, Quadratic, ages, negligible
from torch_kbandits.memory.windows import Restart, SlidingWindow

__all__ = [
    "BackToPrior",
    "Discount",
    "Exponential",
    "Growth",
    "KeepAll",
    "Linear",
    "Memory",
    "Quadratic",
    "Restart",
    "SlidingWindow",
    "UncertaintyInjection",
    "ages",
    "negligible",
]
