"""PE-GP-UCB, which drops priors that the rewards contradict."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, FamilyWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import IGPUCBWidth
from torch_kbandits.priors.families import Elimination, Family


@described
class PEGPUCB(Bandit):
    """PE-GP-UCB, prior elimination: play the highest upper bound of all priors that no rewards contradict.

    Its bounds are those of the most careful prior left. So a family with priors far too rough explores too much, and
    ``HPGPTS`` is mostly better; see ``Elimination``.

    Source: Ziomek, Adachi and Osborne, "Time-varying Gaussian process bandits with unknown prior", AISTATS 2025.
    Differs: the width is as for ``IGPUCB``, for functions of an RKHS, where theirs is for draws from the prior; time is
    a ``memory``; one prior always stays; contexts; and Nyström posteriors, if asked for.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what is rejected.
        prior: all three in one, a ``Prior``.
        **words: see ``FamilyWords``.

    Cost of a round: K times that of GP-UCB, for K hypotheses.
    """

    def __init__(self, **words: Unpack[FamilyWords]) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Elimination(given.failure_probability, given.noise_scale))
        theory = given.theorem_at(IGPUCBWidth)
        super().__init__(**given.under(theory, family=family))
