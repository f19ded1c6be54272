"""Named algorithms: each composes the pieces, cites its paper and sets defaults."""

from torch_kbandits.algorithms.bkb import BKB
from torch_kbandits.algorithms.registry import build, names

__all__ = ["BKB", "build", "names"]
