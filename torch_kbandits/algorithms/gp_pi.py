"""GP-PI, a baseline."""

from typing import Unpack

from torch_kbandits.acquisition import ProbabilityOfImprovementRule
from torch_kbandits.algorithms.arguments import Arguments, PriorWords, described
from torch_kbandits.bandit import Bandit


@described
class GPPI(Bandit):
    """GP-PI: probability of improving on the best posterior mean so far; a baseline without a regret bound.

    Source: Kushner, 1964; BoTorch's ``LogProbabilityOfImprovement``.

    Args:
        margin: improvements count above this many units of reward; at 0 the best point so far would be played for ever.
            Unless given it is 0.01 of the largest prior deviation, of an arm or, without arms, of a point played; so
            units of rewards do not matter.
        **words: see ``PriorWords``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, *, margin: float | None = None, **words: Unpack[PriorWords]) -> None:
        super().__init__(**Arguments(PriorWords, words).pieces(acquisition=ProbabilityOfImprovementRule(margin)))
