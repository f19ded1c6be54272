"""Named algorithms: each composes the pieces, cites its paper and sets defaults."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.algorithms.bbkb import BBKB as BBKB
    from torch_kbandits.algorithms.bkb import BKB as BKB
    from torch_kbandits.algorithms.bob_gp_ucb import BOBGPUCB as BOBGPUCB
    from torch_kbandits.algorithms.cbbkb import CBBKB as CBBKB
    from torch_kbandits.algorithms.cbkb import CBKB as CBKB
    from torch_kbandits.algorithms.dms_gp_ucb import DMSGPUCB as DMSGPUCB
    from torch_kbandits.algorithms.dms_tv_gp_ucb import DMSTVGPUCB as DMSTVGPUCB
    from torch_kbandits.algorithms.ek_ucb import EKUCB as EKUCB
    from torch_kbandits.algorithms.et_gp_ucb import ETGPUCB as ETGPUCB
    from torch_kbandits.algorithms.gp_ei import GPEI as GPEI
    from torch_kbandits.algorithms.gp_pi import GPPI as GPPI
    from torch_kbandits.algorithms.gp_ts import GPTS as GPTS
    from torch_kbandits.algorithms.gp_ucb import GPUCB as GPUCB
    from torch_kbandits.algorithms.hp_gp_ts import HPGPTS as HPGPTS
    from torch_kbandits.algorithms.igp_ucb import IGPUCB as IGPUCB
    from torch_kbandits.algorithms.k_ucb import KUCB as KUCB
    from torch_kbandits.algorithms.lb_gp_ucb import LBGPUCB as LBGPUCB
    from torch_kbandits.algorithms.lin_ucb import LinUCB as LinUCB
    from torch_kbandits.algorithms.mini_gp_ucb import MiniGPUCB as MiniGPUCB
    from torch_kbandits.algorithms.pe_gp_ts import PEGPTS as PEGPTS
    from torch_kbandits.algorithms.pe_gp_ucb import PEGPUCB as PEGPUCB
    from torch_kbandits.algorithms.r_gp_ucb import RGPUCB as RGPUCB
    from torch_kbandits.algorithms.random import RandomSearch as RandomSearch
    from torch_kbandits.algorithms.registry import build as build
    from torch_kbandits.algorithms.registry import names as names
    from torch_kbandits.algorithms.sparq_gp_ucb import SparQGPUCB as SparQGPUCB
    from torch_kbandits.algorithms.sup_kernel_ucb import SupKernelUCB as SupKernelUCB
    from torch_kbandits.algorithms.sw_gp_ucb import SWGPUCB as SWGPUCB
    from torch_kbandits.algorithms.tv_gp_ucb import TVGPUCB as TVGPUCB
    from torch_kbandits.algorithms.ui_gp_ucb import UIGPUCB as UIGPUCB
    from torch_kbandits.algorithms.w_gp_ucb import WGPUCB as WGPUCB
else:
    __getattr__, __dir__, __all__ = exports(__name__)
