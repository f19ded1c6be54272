"""What old observations still count for."""

from torch_kbandits.memory.growth import Exponential, Growth, Linear, Quadratic, ages, negligible

__all__ = ["Exponential", "Growth", "Linear", "Quadratic", "ages", "negligible"]
