"""IGP-UCB, improved GP-UCB."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, PlannedWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import IGPUCBWidth


@described
class IGPUCB(Bandit):
    """IGP-UCB, improved GP-UCB: the exact posterior and a width with one logarithm fewer.

    Source: Chowdhury and Gopalan, "On kernelized multi-armed bandits", ICML 2017, Algorithm 1. The theorem takes
    λ = 1 + 2/T, and any λ of at least 1 will do. Differs: below 1, where its proof fails, the width is
    ``SelfNormalizedWidth``, or ``MemoryWidth`` under a memory that forgets; ``beta=IGPUCBWidth(...)`` is its own there.

    Args:
        **words: see ``PlannedWords``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[PlannedWords]) -> None:
        given = Arguments(PlannedWords, words)
        theory = given.theorem_at(IGPUCBWidth)
        super().__init__(**given.under(theory))
