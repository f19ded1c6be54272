"""Named algorithms: each composes the pieces, cites its paper and sets defaults."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.algorithms.baselines import GPEI as GPEI
    from torch_kbandits.algorithms.baselines import GPPI as GPPI
    from torch_kbandits.algorithms.baselines import RandomSearch as RandomSearch
    from torch_kbandits.algorithms.bkb import BBKB as BBKB
    from torch_kbandits.algorithms.bkb import BKB as BKB
    from torch_kbandits.algorithms.bkb import CBBKB as CBBKB
    from torch_kbandits.algorithms.bkb import CBKB as CBKB
    from torch_kbandits.algorithms.bkb import AdaBKB as AdaBKB
    from torch_kbandits.algorithms.families import HPGPTS as HPGPTS
    from torch_kbandits.algorithms.families import LBGPUCB as LBGPUCB
    from torch_kbandits.algorithms.families import PEGPTS as PEGPTS
    from torch_kbandits.algorithms.families import PEGPUCB as PEGPUCB
    from torch_kbandits.algorithms.gp import GPTS as GPTS
    from torch_kbandits.algorithms.gp import GPUCB as GPUCB
    from torch_kbandits.algorithms.gp import IGPUCB as IGPUCB
    from torch_kbandits.algorithms.gp import IRGPUCB as IRGPUCB
    from torch_kbandits.algorithms.gp import RKB as RKB
    from torch_kbandits.algorithms.gp import MiniGPUCB as MiniGPUCB
    from torch_kbandits.algorithms.kernel_ucb import EKUCB as EKUCB
    from torch_kbandits.algorithms.kernel_ucb import KUCB as KUCB
    from torch_kbandits.algorithms.kernel_ucb import LinUCB as LinUCB
    from torch_kbandits.algorithms.kernel_ucb import SharedLinUCB as SharedLinUCB
    from torch_kbandits.algorithms.kernel_ucb import SupKernelUCB as SupKernelUCB
    from torch_kbandits.algorithms.phased_elimination import BPE as BPE
    from torch_kbandits.algorithms.phased_elimination import MVR as MVR
    from torch_kbandits.algorithms.phased_elimination import RPERP as RPERP
    from torch_kbandits.algorithms.registry import build as build
    from torch_kbandits.algorithms.registry import names as names
    from torch_kbandits.algorithms.sparq_gp_ucb import SparQGPUCB as SparQGPUCB
    from torch_kbandits.algorithms.sparq_gp_ucb import WSparQGPUCB as WSparQGPUCB
    from torch_kbandits.algorithms.time_varying import RGPUCB as RGPUCB
    from torch_kbandits.algorithms.time_varying import SWGPUCB as SWGPUCB
    from torch_kbandits.algorithms.time_varying import TVGPUCB as TVGPUCB
    from torch_kbandits.algorithms.time_varying import UIGPUCB as UIGPUCB
    from torch_kbandits.algorithms.time_varying import WGPUCB as WGPUCB
    from torch_kbandits.algorithms.unknown_change import BOBGPUCB as BOBGPUCB
    from torch_kbandits.algorithms.unknown_change import DMSGPUCB as DMSGPUCB
    from torch_kbandits.algorithms.unknown_change import DMSTVGPUCB as DMSTVGPUCB
    from torch_kbandits.algorithms.unknown_change import ETGPUCB as ETGPUCB
    from torch_kbandits.algorithms.unknown_change import MASTERGPUCB as MASTERGPUCB
else:
    __getattr__, __dir__, __all__ = exports(__name__)
