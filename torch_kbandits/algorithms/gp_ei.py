"""GP-EI, a baseline."""

from typing import Unpack

from torch_kbandits.acquisition import ExpectedImprovementRule
from torch_kbandits.algorithms.arguments import Arguments, PriorWords, capped, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.dictionaries import KORS, WhenFull
from torch_kbandits.errors import InputError


@described
class GPEI(Bandit):
    """GP-EI: expected improvement over the best posterior mean so far; a baseline without a regret bound here.

    Source: Mockus, 1975; BoTorch's ``LogExpectedImprovement``. Differs: a Nyström posterior in place of the
    exact one, if asked for.

    Args:
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one.
        **words: see ``PriorWords``.

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
