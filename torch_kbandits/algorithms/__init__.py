"""Named algorithms: each composes the pieces, cites its paper and sets defaults."""

from torch_kbandits.algorithms.bbkb import BBKB
from torch_kbandits.algorithms.bkb import BKB
from torch_kbandits.algorithms.gp_ei import GPEI
from torch_kbandits.algorithms.gp_pi import GPPI
from torch_kbandits.algorithms.gp_ts import GPTS
from torch_kbandits.algorithms.gp_ucb import GPUCB
from torch_kbandits.algorithms.igp_ucb import IGPUCB
from torch_kbandits.algorithms.mini_gp_ucb import MiniGPUCB
from torch_kbandits.algorithms.random_search import RandomSearch
from torch_kbandits.algorithms.registry import build, names

__all__ = ["BBKB", "BKB", "GPEI", "GPPI", "GPTS", "GPUCB", "IGPUCB", "MiniGPUCB", "RandomSearch", "build", "names"]
