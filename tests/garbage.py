"""What holds itself when nobody else does: in long runs Python rarely looks for it."""

import gc
from collections.abc import Callable

from torch_kbandits.acquisition import Domain

#: Parts of the package that hold what was told, or arms. Models are GPyTorch's modules, each of which holds itself.
_HOLDING = tuple(f"torch_kbandits.{part}" for part in ("bandit", "selection", "candidates", "observations", "tables"))


def left_by(act: Callable[[], object]) -> list[str]:
    """The classes of what is left of what was done, in these parts."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        act()
        gc.collect()
        left = {type(each) for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_on:
            gc.enable()
    return sorted(kind.__name__ for kind in left if kind is Domain or kind.__module__.startswith(_HOLDING))
