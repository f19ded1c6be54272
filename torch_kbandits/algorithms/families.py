"""Algorithms that know several priors, one of which may be true."""

import math
from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.acquisition.rules import GridSize, ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, FamilyWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.priors.families import Balancing, Elimination, Family, Sampling, shrinking_scales


@described
class HPGPTS(Bandit):
    """HP-GP-TS, hyperprior sampling: draw a prior from P(u | data), then a function of its posterior, and maximise it.

    Source: Sandberg and Chehreghani, 2025; see ``Sampling``. Differs: as ``GPTS``; β = 1 is the paper's.

    Args:
        probabilities: P(u) > 0 of each hypothesis, in proportion; None for the same for all.

    Cost of a round: K times that of GP-TS, for K hypotheses.
    """

    def __init__(
        self,
        *,
        probabilities: tuple[float, ...] | None = None,
        discretization_size: GridSize = 1024,
        **words: Unpack[FamilyWords],
    ) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Sampling(probabilities))
        theory, rule = given.tightest_width(draws=True), ThompsonRule(discretization_size, norm_bound=given.norm_bound)
        super().__init__(**given.under(theory, family=family, acquisition=rule))


#: The round up to which length scales join.
_HORIZON = 10_000


@described
class LBGPUCB(Bandit):
    """LB-GP-UCB, length-scale balancing: GP-UCB by length scales that play so that their regret bounds stay equal.

    Source: Ziomek, Adachi and Osborne, NeurIPS 2024. Differs: as ``Balancing``; the longest length scale is given, and
    not fitted to first points; Matérn kernels have the same steps e^(−1/d), where theirs are e^(−1/(d + 2ν)); any
    kernels; contexts.

    Args:
        scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis; None for
            e^(−i/d), of which the first take part from the beginning, and each other once t^shrinkage reaches its
            e^(i/d).
        num_starting: how many of the default length scales take part from the beginning.
        shrinkage: p >= 0, by which the shortest length scale is T^(−p) of the longest after T rounds.
        horizon: T, the planned number of rounds; without it length scales join up to round 10,000. Under a memory that
            forgets, and at λ < 1, the theorem's width holds in all of them at once; without it, in each.

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
        family, theory = Family(given.variants(default), rule), given.tightest_width()
        super().__init__(**given.under(theory, family=family))


@described
class PEGPTS(Bandit):
    """PE-GP-TS, prior elimination: play the highest maximum of draws from all priors that no rewards contradict.

    Source: Sandberg and Chehreghani, 2025. Differs: as ``PEGPUCB`` and ``GPTS``.

    Cost of a round: K times that of GP-TS for K hypotheses, and on a box twice that.
    """

    def __init__(self, *, discretization_size: GridSize = 1024, **words: Unpack[FamilyWords]) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Elimination(given.failure_probability, given.noise_scale))
        theory, rule = given.tightest_width(draws=True), ThompsonRule(discretization_size, norm_bound=given.norm_bound)
        super().__init__(**given.under(theory, family=family, acquisition=rule))


@described
class PEGPUCB(Bandit):
    """PE-GP-UCB, prior elimination: play the highest upper bound of all priors that no rewards contradict.

    Its bounds are those of the most careful prior left. So a family with priors far too rough explores too much, and
    ``HPGPTS`` is mostly better; see ``Elimination``.

    Source: Ziomek, Adachi and Osborne, AISTATS 2025. Differs: the width is as for ``IGPUCB``, for functions of an RKHS,
    where theirs is for draws from the prior; time is a ``memory``; one prior always stays; contexts.

    Cost of a round: K times that of GP-UCB, for K hypotheses.
    """

    def __init__(self, **words: Unpack[FamilyWords]) -> None:
        given = Arguments(FamilyWords, words)
        family = Family(given.variants(), Elimination(given.failure_probability, given.noise_scale))
        theory = given.tightest_width()
        super().__init__(**given.under(theory, family=family))
