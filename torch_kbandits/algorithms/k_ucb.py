"""K-UCB, kernel UCB with contexts."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, TheoremWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import KUCBWidth


@described
class KUCB(Bandit):
    """K-UCB, kernel UCB for contextual bandits: the exact posterior at joint points of context and action.

    CGP-UCB (Krause and Ong, NIPS 2011) differs in its width alone.

    Source: Zenati et al., "Efficient kernel UCB for contextual bandits", AISTATS 2022, Alg. 3. Differs: see
    ``KUCBWidth``; the first action is chosen as all others are, not drawn.

    Args:
        **words: see ``TheoremWords``.

    Cost of a round with A actions and u distinct points played: O(A u²); memory O(u²).
    """

    def __init__(self, **words: Unpack[TheoremWords]) -> None:
        given = Arguments(TheoremWords, words)
        theory = given.theorem(KUCBWidth)
        super().__init__(**given.under(theory))
