"""Random search, the baseline of all."""

from typing import Unpack

from torch_kbandits.acquisition import UniformRule
from torch_kbandits.algorithms.arguments import Arguments, PriorWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.dictionaries import KORS, CappedDictionary

#: Points in the dictionary of a posterior that no choice depends on.
_MOST_POINTS = 200


@described
class RandomSearch(Bandit):
    """Random search: uniform draws with replacement. Its posterior serves ``recommend`` only.

    With contexts, where no two points need be the same, that posterior has KORS's dictionary of at most 200 points.

    Args:
        **words: see ``PriorWords``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    With contexts O(m²) for a dictionary of m points.
    """

    def __init__(self, **words: Unpack[PriorWords]) -> None:
        given = Arguments(PriorWords, words)
        capped = CappedDictionary(KORS(), _MOST_POINTS, when_full="stop")
        dictionary = capped if given.candidates.is_contextual else None
        super().__init__(**given.pieces(dictionary=dictionary, acquisition=UniformRule()))
