"""The named algorithms, by name."""

import inspect
from typing import Any, get_type_hints

from torch_kbandits import checks
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
from torch_kbandits.algorithms.sparq_gp_ucb import SparQGPUCB
from torch_kbandits.algorithms.sup_kernel_ucb import SupKernelUCB
from torch_kbandits.algorithms.sw_gp_ucb import SWGPUCB
from torch_kbandits.algorithms.tv_gp_ucb import TVGPUCB
from torch_kbandits.algorithms.ui_gp_ucb import UIGPUCB
from torch_kbandits.algorithms.w_gp_ucb import WGPUCB
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.errors import InputError

_ALGORITHMS: dict[str, type[Bandit]] = {
    "bbkb": BBKB,
    "bkb": BKB,
    "bob-gp-ucb": BOBGPUCB,
    "cbbkb": CBBKB,
    "cbkb": CBKB,
    "dms-gp-ucb": DMSGPUCB,
    "dms-tv-gp-ucb": DMSTVGPUCB,
    "ek-ucb": EKUCB,
    "et-gp-ucb": ETGPUCB,
    "gp-ei": GPEI,
    "gp-pi": GPPI,
    "gp-ts": GPTS,
    "gp-ucb": GPUCB,
    "igp-ucb": IGPUCB,
    "k-ucb": KUCB,
    "lin-ucb": LinUCB,
    "mini-gp-ucb": MiniGPUCB,
    "hp-gp-ts": HPGPTS,
    "lb-gp-ucb": LBGPUCB,
    "pe-gp-ts": PEGPTS,
    "pe-gp-ucb": PEGPUCB,
    "random": RandomSearch,
    "w-gp-ucb": WGPUCB,
    "ui-gp-ucb": UIGPUCB,
    "tv-gp-ucb": TVGPUCB,
    "sw-gp-ucb": SWGPUCB,
    "r-gp-ucb": RGPUCB,
    "sparq-gp-ucb": SparQGPUCB,
    "sup-kernel-ucb": SupKernelUCB,
}


def names() -> list[str]:
    """Return the names that ``build`` knows, in alphabetical order."""
    return sorted(_ALGORITHMS)


def signature(name: str) -> inspect.Signature:
    """Return the arguments that an algorithm takes, those that it hands on to ``Bandit`` last.

    Args:
        name: one of ``names()``.

    Raises:
        InputError: if there is no such algorithm; the message has the nearest name.
    """
    own, common = inspect.signature(_find(name)), inspect.signature(Bandit).parameters
    kept = [word for word in own.parameters.values() if word.kind is not inspect.Parameter.VAR_KEYWORD]
    return own.replace(parameters=[*kept, *(common[name] for name in get_type_hints(CommonWords))])


def summary(name: str) -> str:
    """Return what an algorithm is, in one line: the first of its class's docstring.

    Raises:
        InputError: if there is no such algorithm; the message has the nearest name.
    """
    return (inspect.getdoc(_find(name)) or "").partition("\n")[0]


def build(name: str, **config: Any) -> Bandit:
    """Make an algorithm by its name.

    Args:
        name: one of ``names()``.
        config: the arguments of its class.

    Raises:
        InputError: if there is no such algorithm (the message has the nearest name) or the arguments do not fit.
    """
    algorithm = _find(name)
    try:
        signature(name).bind(**config)
    except TypeError as error:
        raise InputError(f"{algorithm.__name__} takes other arguments: {error}.") from None
    return algorithm(**config)


def _find(name: str) -> type[Bandit]:
    if name not in _ALGORITHMS:
        near = checks.nearest_name(name, _ALGORITHMS)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names())}."
        raise InputError(f"There is no algorithm {name!r}: {hint}")
    return _ALGORITHMS[name]
