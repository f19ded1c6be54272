"""Off-policy evaluation: what another policy would have earned, from the log of one that was played."""

from typing import TYPE_CHECKING

from torch_kbandits.extras import exports

if TYPE_CHECKING:
    from torch_kbandits.evaluation.log import Log as Log
    from torch_kbandits.evaluation.reading import read_log as read_log
else:
    __getattr__, __dir__, __all__ = exports(__name__)
