"""GP-UCB and GP-TS on the exact posterior, and what improves on the width or switches seldom."""

import math
from typing import Unpack

from torch_kbandits.acquisition.rules import GridSize, ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, GainWords, PlannedWords, PriorWords, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import RandomizedKrigingBeliever, StayRule
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import MartingaleMixtureWidth, RandomizedWidth
from torch_kbandits.dictionaries import KORS
from torch_kbandits.errors import InputError


@described
class GPUCB(Bandit):
    """GP-UCB: the exact posterior and an upper confidence bound for functions in an RKHS.

    Source: Srinivas et al., ICML 2010. Differs: the width is ``MartingaleMixtureWidth``, which is far narrower than
    that of their Theorem 3, ``beta=GPUCBWidth(norm_bound, failure_probability)``. For the Bayesian width on finitely
    many arms give ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``.

    Args:
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; √λ unless given, as in the paper.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        scale, level = given.noise_scale, given.prior.regularization
        given.noise_scale = math.sqrt(level) if scale is None and level is not None else scale
        theory = given.theorem(MartingaleMixtureWidth, gain=given.gain)
        super().__init__(**given.under(theory, "norm_bound", noise_scale=scale))


@described
class IGPUCB(Bandit):
    """IGP-UCB, improved GP-UCB: the exact posterior and the width of a self-normalised bound, at any λ.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 1. Differs: the width is ``MartingaleMixtureWidth``, which is
    tighter than theirs, ``beta=IGPUCBWidth(...)``, and holds at λ < 1, too. Under a memory that forgets it is theirs at
    λ of at least 1, and ``MemoryWidth`` below.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[PlannedWords]) -> None:
        given = Arguments(PlannedWords, words)
        super().__init__(**given.under(given.tightest_width()))


@described
class MiniGPUCB(Bandit):
    """mini-GP-UCB: GP-UCB that stays with a candidate until its variance has shrunk by a factor C.

    The posterior is exact and costs what the few distinct candidates cost; switching is rare. ``ask(q=None)`` returns
    all the plays of a candidate.

    Source: Calandriello et al., ICML 2022. Differs: the width is ``MartingaleMixtureWidth``, which holds for every λ;
    rewards told while the bandit stays count when it moves on, as in the paper's batched form.

    Args:
        batch_threshold: C > 1, the factor by which the variance of a candidate shrinks before another is chosen, as in
            BBKB; the paper's C is one of the standard deviation, the square root of this.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, *, batch_threshold: float = 4.0, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        theory = given.theorem(MartingaleMixtureWidth, gain=given.gain)
        super().__init__(**given.under(theory, batches=StayRule(batch_threshold)))


@described
class GPTS(Bandit):
    """GP-TS, Gaussian-process Thompson sampling: play the maximiser of a draw from N(μ, v² cov).

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2, where v is the width here. Differs: on a box the draw is made
    on a Sobol set of fixed size, unless the theorem's grid is asked for; beyond 2,000 distinct arms, and on arms in
    files, the prior part of a draw is approximated, see ``PriorDraws``; contexts; a Nyström posterior, if asked for. v
    is ``MartingaleMixtureWidth`` at δ/2, which their proof allows; under a memory that forgets as for ``IGPUCB``.

    Args:
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one. No theorem here covers draws from the Nyström posterior.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.

    Cost of a round on A arms with u distinct ones played: O(A u + A²) up to 2,000 arms, O(A (u + d)) beyond; memory
    the same. On a box with N points in its Sobol set: O(u² + N³). With contexts O(A u² + A³), and with a dictionary of
    m points O(A m² + A³).
    """

    def __init__(
        self, *, oversampling: float | None = None, discretization_size: GridSize = 1024, **words: Unpack[PlannedWords]
    ) -> None:
        given = Arguments(PlannedWords, words)
        dictionary = None if oversampling is None else KORS(oversampling)
        rule, theory = ThompsonRule(discretization_size, norm_bound=given.norm_bound), given.tightest_width(draws=True)
        super().__init__(**given.under(theory, dictionary=dictionary, acquisition=rule))


@described
class IRGPUCB(Bandit):
    """IRGP-UCB, improved randomised GP-UCB: a width drawn anew in each round, from a law that stays.

    So it never over-explores late, and no constant has to be chosen.

    Source: Takeno, Inatsu and Karasuyama, ICML 2023; see ``RandomizedWidth``, the paper's: s = 2 ln(A/2) and rate 1/2.

    Args:
        candidates: arms (A, d), at least two, or ``Arms``: the law is that of their number.
        memory: refused: the draw is addressed by the number of rewards that count.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u).
    """

    def __init__(self, **words: Unpack[PriorWords]) -> None:
        given = Arguments(PriorWords, words)
        if not isinstance(given.candidates, Arms) or given.words["memory"] is not None:
            raise InputError("IRGPUCB draws a width for A arms and all rewards: give candidates, leave out memory.")
        super().__init__(**given.pieces(width=RandomizedWidth(len(given.candidates.source), given.words["seed"])))


@described
class RKB(Bandit):
    """RKB, randomised kriging believer: GP-UCB whose pending points count as told at a draw of the posterior.

    For batches and late rewards: a point is chosen as if those pending had returned the values of a function that is
    drawn. GP-UCB, where they count at the posterior mean, had less regret in our comparison.

    Source: Sugiura, Takeuchi and Takeno, arXiv 2603.01470. Differs: see ``RandomizedKrigingBeliever``, which goes with
    other acquisition functions as well; no initial phase of largest variances.

    Cost of a point with u distinct ones played or pending: O(A u) on A arms, O(u²) and the search on a box.
    """

    def __init__(self, **words: Unpack[WidthWords]) -> None:
        given = Arguments(WidthWords, words)
        super().__init__(**given.pieces(width=given.width(None, None), batches=RandomizedKrigingBeliever()))
