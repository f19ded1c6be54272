"""GP-UCB and GP-TS on the exact posterior, and what improves on the width or switches seldom."""

from typing import Unpack

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, GainWords, PlannedWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import StayRule
from torch_kbandits.confidence import GPTSWidth, GPUCBWidth, IGPUCBWidth, RealizedGain, SelfNormalizedWidth
from torch_kbandits.dictionaries import KORS


@described
class GPUCB(Bandit):
    """GP-UCB: the exact posterior and the width of Srinivas et al. for functions in an RKHS.

    Source: Srinivas et al., ICML 2010, Theorem 3. For the Bayesian width on finitely many arms give
    ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``.

    Args:
        noise_scale: R > 0, only for ``guarantee``: the theorem takes noise bounded by √λ.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        gain = RealizedGain() if given.gain is None else given.gain
        theory = None if given.norm_bound is None else GPUCBWidth(given.norm_bound, given.failure_probability, gain)
        super().__init__(**given.under(theory, "norm_bound", noise_scale=given.noise_scale))


@described
class IGPUCB(Bandit):
    """IGP-UCB, improved GP-UCB: the exact posterior and a width with one logarithm fewer.

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 1, at λ = 1 + 2/T; any λ of at least 1 will do. Differs: below
    1, where its proof fails, the width is ``SelfNormalizedWidth``, or ``MemoryWidth`` under a memory that forgets;
    ``beta=IGPUCBWidth(...)`` is its own there.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, **words: Unpack[PlannedWords]) -> None:
        given = Arguments(PlannedWords, words)
        super().__init__(**given.under(given.theorem_at(IGPUCBWidth)))


@described
class MiniGPUCB(Bandit):
    """mini-GP-UCB: GP-UCB that stays with a candidate until its variance has shrunk by a factor C.

    The posterior is exact and costs what the few distinct candidates cost; switching is rare. ``ask(q=None)`` returns
    all the plays of a candidate.

    Source: Calandriello et al., ICML 2022. Differs: the width is the self-normalised one, which holds for every λ;
    rewards told while the bandit stays count when it moves on, as in the paper's batched form.

    Args:
        batch_threshold: C > 1, the factor by which the variance of a candidate shrinks before another is chosen, as in
            BBKB; the paper's C is one of the standard deviation, the square root of this.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(self, *, batch_threshold: float = 4.0, **words: Unpack[GainWords]) -> None:
        given = Arguments(GainWords, words)
        theory = given.theorem(SelfNormalizedWidth, gain=given.gain)
        super().__init__(**given.under(theory, batches=StayRule(batch_threshold)))


@described
class GPTS(Bandit):
    """GP-TS, Gaussian-process Thompson sampling: play the maximiser of a draw from N(μ, v² cov).

    Source: Chowdhury and Gopalan, ICML 2017, Algorithm 2, where v is the width here. Differs: on a box the draw is made
    on a Sobol set of fixed size; beyond 2,000 distinct arms, and on arms in files, the prior part of a draw is
    approximated, see ``PriorDraws``; contexts; a Nyström posterior, if asked for. At λ < 1, where the proof fails, v
    is ``SelfNormalizedWidth`` at δ/2, or ``MemoryWidth`` under a memory that forgets.

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
        self, *, oversampling: float | None = None, discretization_size: int = 1024, **words: Unpack[PlannedWords]
    ) -> None:
        given = Arguments(PlannedWords, words)
        dictionary = None if oversampling is None else KORS(oversampling)
        rule, theory = ThompsonRule(discretization_size), given.theorem_at(GPTSWidth)
        super().__init__(**given.under(theory, dictionary=dictionary, acquisition=rule))
