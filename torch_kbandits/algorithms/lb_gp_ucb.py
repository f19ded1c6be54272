"""LB-GP-UCB, length-scale balancing."""

import math
from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, FamilyWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import IGPUCBWidth
from torch_kbandits.priors.families import Balancing, Family, shrinking_scales

#: The round up to which length scales join.
_HORIZON = 10_000


@described
class LBGPUCB(Bandit):
    """LB-GP-UCB, length-scale balancing: GP-UCB by length scales that play so that their regret bounds stay equal.

    Source: Ziomek, Adachi and Osborne, "Bayesian optimisation with unknown hyperparameters: regret bounds
    logarithmically closer to optimal", NeurIPS 2024. Differs: as ``Balancing``; the longest length scale is given, and
    not fitted to first points; Matérn kernels have the same steps e^(−1/d), where theirs are e^(−1/(d + 2ν));
    any kernels; contexts; and Nyström posteriors, if asked for.

    Args:
        scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis; None for
            e^(−i/d), of which the first take part from the beginning, and each other once t^shrinkage reaches its
            e^(i/d).
        num_starting: how many of the default length scales take part from the beginning.
        shrinkage: p >= 0, by which the shortest length scale is T^(−p) of the longest after T rounds.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what is rejected.
        horizon: T, the planned number of rounds; without it length scales join up to round 10,000. Under a memory that
            forgets, and at λ < 1, the theorem's width holds in all of them at once; without it, in each.
        prior: all three in one, a ``Prior``.
        **words: see ``FamilyWords``.

    Cost of a round: K times that of GP-UCB, for K hypotheses.
    """

    def __init__(self, *, num_starting: int = 5, shrinkage: float = 0.25, **words: Unpack[FamilyWords]) -> None:
        given = Arguments(FamilyWords, words)
        num_starting = checks.size("num_starting", num_starting)
        shrinkage = checks.non_negative("shrinkage", shrinkage)
        dimension = given.candidates.example.shape[-1]
        number = dimension * shrinkage * math.log(_HORIZON if given.horizon is None else given.horizon)
        number = 1 + int(min(number, checks.LARGEST_SIZE))
        default = shrinking_scales(max(num_starting, number), dimension)
        first = num_starting if given.words["scales"] is None and given.words["kernels"] is None else None
        rule = Balancing(given.failure_probability, given.noise_scale, first, shrinkage, 1.0 / dimension)
        family, theory = Family(given.variants(default), rule), given.theorem_at(IGPUCBWidth)
        super().__init__(**given.under(theory, family=family))
