"""PE-GP-TS, Thompson sampling that drops priors which the rewards contradict."""

from typing import Unpack

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, FamilyWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import GPTSWidth
from torch_kbandits.priors.families import Elimination, Family


@described
class PEGPTS(Bandit):
    """PE-GP-TS, prior elimination: play the highest maximum of draws from all priors that no rewards contradict.

    Source: Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson sampling",
    2025. Differs: as ``PEGPUCB`` and ``GPTS``.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what is rejected.
        prior: all three in one, a ``Prior``.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.
        **words: see ``FamilyWords``.

    Cost of a round: K times that of GP-TS for K hypotheses, and on a box twice that.
    """

    def __init__(self, *, discretization_size: int = 1024, **words: Unpack[FamilyWords]) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Elimination(given.failure_probability, given.noise_scale))
        theory, rule = given.theorem_at(GPTSWidth), ThompsonRule(discretization_size)
        super().__init__(**given.under(theory, family=family, acquisition=rule))
