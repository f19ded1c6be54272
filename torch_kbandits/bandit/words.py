"""The words that every algorithm hands on to ``Bandit`` as they are."""

from collections.abc import Sequence
from typing import TypedDict

from torch_kbandits.observations.expiry import Expiry
from torch_kbandits.outcomes import Limit, Outcome, Scalarization


class CommonWords(TypedDict, total=False):
    """What may be said of a run whatever the algorithm; see ``Bandit``."""

    outcomes: Sequence[str | Outcome]
    constraints: Sequence[Limit]
    expire_after: float | Expiry | None
    objective: Scalarization | None
