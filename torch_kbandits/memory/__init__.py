"""What old observations still count for."""

from torch_kbandits.memory.base import Memory, Restart, SlidingWindow, Stationary
from torch_kbandits.memory.fading import Discount, TemporalPrior, UncertaintyInjection
from torch_kbandits.memory.growth import ExponentialGrowth, Growth, LinearGrowth, QuadraticGrowth, ages, negligible

__all__ = ["Discount", "ExponentialGrowth", "Growth", "LinearGrowth", "Memory", "QuadraticGrowth", "Restart"]
__all__ += ["SlidingWindow", "Stationary", "TemporalPrior", "UncertaintyInjection", "ages", "negligible"]
