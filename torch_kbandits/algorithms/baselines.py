"""Baselines: improvement over the best mean, and random play."""

from typing import Unpack

from torch_kbandits.acquisition import ExpectedImprovementRule, ProbabilityOfImprovementRule, UniformRule
from torch_kbandits.algorithms.arguments import Arguments, PriorWords, capped, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.dictionaries import KORS, CappedDictionary, WhenFull
from torch_kbandits.errors import InputError


@described
class GPEI(Bandit):
    """GP-EI: expected improvement over the best posterior mean so far; a baseline without a regret bound here.

    Source: Mockus, 1975; BoTorch's ``LogExpectedImprovement``. Differs: a Nyström posterior in place of the
    exact one, if asked for.

    Args:
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²), or O(m²) with
    a dictionary of m points, and the search.
    """

    def __init__(
        self,
        *,
        oversampling: float | None = None,
        max_dictionary: int | None = None,
        when_full: WhenFull = "warn",
        **words: Unpack[PriorWords],
    ) -> None:
        if oversampling is None and max_dictionary is not None:
            raise InputError("max_dictionary caps the dictionary of a Nyström posterior: give oversampling as well.")
        dictionary = None if oversampling is None else capped(KORS(oversampling), max_dictionary, when_full)
        given = Arguments(PriorWords, words)
        super().__init__(**given.pieces(dictionary=dictionary, acquisition=ExpectedImprovementRule()))


@described
class GPPI(Bandit):
    """GP-PI: probability of improving on the best posterior mean so far; a baseline without a regret bound.

    Source: Kushner, 1964; BoTorch's ``LogProbabilityOfImprovement``.

    Args:
        margin: improvements count above this many units of reward; at 0 the best point so far would be played for ever.
            Unless given it is 0.01 of the largest prior deviation, of an arm or, without arms, of a point played; so
            units of rewards do not matter.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, *, margin: float | None = None, **words: Unpack[PriorWords]) -> None:
        super().__init__(**Arguments(PriorWords, words).pieces(acquisition=ProbabilityOfImprovementRule(margin)))


#: Points in the dictionary of a posterior that no choice depends on.
_MOST_POINTS = 200


@described
class RandomSearch(Bandit):
    """Random search: uniform draws with replacement. Its posterior serves ``recommend`` only.

    With contexts, where no two points need be the same, that posterior has KORS's dictionary of at most 200 points.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    With contexts O(m²) for a dictionary of m points.
    """

    def __init__(self, **words: Unpack[PriorWords]) -> None:
        given = Arguments(PriorWords, words)
        capped = CappedDictionary(KORS(), _MOST_POINTS, when_full="stop")
        dictionary = capped if given.candidates.is_contextual else None
        super().__init__(**given.pieces(dictionary=dictionary, acquisition=UniformRule()))
