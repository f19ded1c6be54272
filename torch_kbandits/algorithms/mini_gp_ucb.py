"""mini-GP-UCB, which plays a candidate many times in a row."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, GainWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import StayRule
from torch_kbandits.confidence import SelfNormalizedWidth


@described
class MiniGPUCB(Bandit):
    """mini-GP-UCB: GP-UCB that stays with a candidate until its variance has shrunk by a factor C.

    The posterior is exact and costs what the few distinct candidates cost; switching is rare. ``ask(q=None)`` returns
    all the plays of a candidate.

    Source: Calandriello, Carratino, Lazaric, Valko and Rosasco, "Scaling Gaussian process optimization by evaluating a
    few unique candidates multiple times", ICML 2022. Differs: the width is the self-normalised one, which holds for
    every λ; rewards told while the bandit stays count when it moves on, as in the paper's batched form.

    Args:
        batch_threshold: C > 1, the factor by which the variance of a candidate shrinks before another is chosen, as in
            BBKB; the paper's C is one of the standard deviation, the square root of this.
        **words: see ``GainWords``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, *, batch_threshold: float = 4.0, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        theory = given.theorem(SelfNormalizedWidth, gain=given.gain)
        super().__init__(**given.under(theory, batches=StayRule(batch_threshold)))
