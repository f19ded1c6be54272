"""HP-GP-TS, Thompson sampling of the prior and then of the function."""

from typing import Unpack

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, FamilyWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import GPTSWidth
from torch_kbandits.priors.families import Family, Sampling


@described
class HPGPTS(Bandit):
    """HP-GP-TS, hyperprior sampling: draw a prior from P(u | data), then a function of its posterior, and maximise it.

    Source: Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson sampling",
    2025; see ``Sampling``. Differs: as ``GPTS``, whose width multiplies the deviation of a draw; β = 1 is the paper's.

    Args:
        probabilities: P(u) > 0 of each hypothesis, in proportion; None for the same for all.
        prior: all three in one, a ``Prior``.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.
        **words: see ``FamilyWords``.

    Cost of a round: K times that of GP-TS, for K hypotheses.
    """

    def __init__(
        self,
        *,
        probabilities: tuple[float, ...] | None = None,
        discretization_size: int = 1024,
        **words: Unpack[FamilyWords],
    ) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Sampling(probabilities))
        theory, rule = given.theorem_at(GPTSWidth), ThompsonRule(discretization_size)
        super().__init__(**given.under(theory, family=family, acquisition=rule))
