"""Named algorithms: each composes the pieces, cites its paper and sets defaults."""

from torch_kbandits.algorithms.bbkb import BBKB
from torch_kbandits.algorithms.bkb import BKB
from torch_kbandits.algorithms.bob_gp_ucb import BOBGPUCB
from torch_kbandits.algorithms.cbbkb import CBBKB
from torch_kbandits.algorithms.cbkb import CBKB
from torch_kbandits.algorithms.dms_gp_ucb import DMSGPUCB
from torch_kbandits.algorithms.dms_tv_gp_ucb import DMSTVGPUCB
from torch_kbandits.algorithms.ek_ucb import EKUCB
from torch_kbandits.algorithms.et_gp_ucb import ETGPUCB
from torch_kbandits.algorithms.gp_ei import GPEI
from torch_kbandits.algorithms.gp_pi import GPPI
from torch_kbandits.algorithms.gp_ts import GPTS
from torch_kbandits.algorithms.gp_ucb import GPUCB
from torch_kbandits.algorithms.hp_gp_ts import HPGPTS
from torch_kbandits.algorithms.igp_ucb import IGPUCB
from torch_kbandits.algorithms.k_ucb import KUCB
from torch_kbandits.algorithms.lb_gp_ucb import LBGPUCB
from torch_kbandits.algorithms.lin_ucb import LinUCB
from torch_kbandits.algorithms.mini_gp_ucb import MiniGPUCB
from torch_kbandits.algorithms.pe_gp_ts import PEGPTS
from torch_kbandits.algorithms.pe_gp_ucb import PEGPUCB
from torch_kbandits.algorithms.r_gp_ucb import RGPUCB
from torch_kbandits.algorithms.random_search import RandomSearch
from torch_kbandits.algorithms.registry import build, names
from torch_kbandits.algorithms.sparq_gp_ucb import SparQGPUCB
from torch_kbandits.algorithms.sup_kernel_ucb import SupKernelUCB
from torch_kbandits.algorithms.sw_gp_ucb import SWGPUCB
from torch_kbandits.algorithms.tv_gp_ucb import TVGPUCB
from torch_kbandits.algorithms.ui_gp_ucb import UIGPUCB
from torch_kbandits.algorithms.w_gp_ucb import WGPUCB

__all__ = [
    "BBKB",
    "BKB",
    "BOBGPUCB",
    "CBBKB",
    "CBKB",
    "DMSGPUCB",
    "DMSTVGPUCB",
    "EKUCB",
    "ETGPUCB",
    "GPEI",
    "GPPI",
    "GPTS",
    "GPUCB",
    "HPGPTS",
    "IGPUCB",
    "KUCB",
    "LBGPUCB",
    "PEGPTS",
    "PEGPUCB",
    "RGPUCB",
    "SWGPUCB",
    "TVGPUCB",
    "UIGPUCB",
    "WGPUCB",
    "LinUCB",
    "MiniGPUCB",
    "RandomSearch",
    "SparQGPUCB",
    "SupKernelUCB",
    "build",
    "names",
]
