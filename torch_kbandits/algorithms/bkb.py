"""BKB, the budgeted kernelized bandit."""

from typing import Any, Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, BKBWords, capped, described
from torch_kbandits.bandit import Bandit, GlobalBatchRule, LocalBatchRule
from torch_kbandits.confidence import BKBWidth
from torch_kbandits.dictionaries import RidgeLeverageSampling, theoretical_oversampling


@described
class BKB(Bandit):
    """Budgeted kernelized bandit: GP-UCB at the cost of a dictionary that follows the effective dimension.

    The composition: DTC posterior, dictionary resampled by ridge leverage scores in every round, BKB's width, UCB.

    Source: Calandriello et al., "Gaussian process optimization with adaptive sketching: scalable and no regret",
    COLT 2019. Differs: the first arm is drawn among equals rather than uniformly; the width's guard at small t (see
    ``BKBWidth``); the default oversampling is the practical one.

    Args:
        **words: see ``BKBWords``.

    Cost of a round on A arms: O(A m²), O(A m) when the dictionary stays; memory O(A m).
    """

    def __init__(self, **words: Unpack[BKBWords]) -> None:
        super().__init__(**bkb_pieces(Arguments(BKBWords, words)))


def bkb_pieces(given: Arguments, batches: GlobalBatchRule | LocalBatchRule | None = None) -> dict[str, Any]:
    """Return the pieces of BKB and its relatives."""
    accuracy = checks.open_unit_interval("accuracy", given.words["accuracy"])
    oversampling = given.oversampling(given.words["oversampling"], theoretical_oversampling, accuracy)
    rule = RidgeLeverageSampling(oversampling, given.words["resampling"])
    dictionary = capped(rule, given.words["max_dictionary"], given.words["when_full"])
    theory = given.theorem(BKBWidth, accuracy=accuracy)
    return given.under(theory, dictionary=dictionary, batches=batches)
