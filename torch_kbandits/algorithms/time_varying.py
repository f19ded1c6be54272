"""Functions that change at a known rate: windows, restarts, discounts, growing noise, a prior on time."""

import math
from dataclasses import replace
from typing import Unpack

from gpytorch.kernels import Kernel

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates.timed import timed
from torch_kbandits.confidence import MemoryWidth, TVGPUCBWidth, restart_period, window_size
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import (
    Discount,
    Growth,
    LinearGrowth,
    Restart,
    SlidingWindow,
    TemporalPrior,
    UncertaintyInjection,
)
from torch_kbandits.priors import Prior


@described
class SWGPUCB(Bandit):
    """SW-GP-UCB: GP-UCB on a sliding window of the latest observations.

    Source: Zhou and Shroff, CISS 2021, Algorithm 2 and Theorem 2. Differs: w observations where the printed algorithm
    keeps w + 1. At λ >= 1 the default width is IGP-UCB's, as in their algorithm; below, where that has no proof, it is
    that of their proof, ``MemoryWidth``, with one bound for each round where the horizon is given, and else one.

    Args:
        window: w: the largest age in rounds, or units of time, of an observation that counts. None for the theorem's,
            which needs the horizon.

    Cost of a round with u distinct points that count: O(A u²) on A arms, O(u²) to learn and to forget.
    """

    def __init__(
        self, *, window: float | None = None, variation_budget: float | None = None, **words: Unpack[DictionaryWords]
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="window")
        if window is None:
            window = given.rounds_to_remember("window", window_size, variation_budget)
        theory = given.tightest_width(forgets=True)
        super().__init__(**given.under(theory, memory=SlidingWindow(window)))


@described
class RGPUCB(Bandit):
    """R-GP-UCB: GP-UCB that forgets everything in regular intervals and starts anew.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016; the period of Zhou and Shroff, CISS 2021, Theorem 1. Differs:
    see ``Restart``. The default width is as for ``SWGPUCB``, with one bound for each period.

    Args:
        period: H: rounds between two restarts, or units of time. None for the theorem's, which needs the horizon.

    Cost of a round with u distinct points that count: O(A u²) on A arms, O(u²) to learn and to forget.
    """

    def __init__(
        self, *, period: float | None = None, variation_budget: float | None = None, **words: Unpack[DictionaryWords]
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="period")
        if period is None:
            period = given.rounds_to_remember("period", restart_period, variation_budget)
        memory = Restart(period)
        periods = None if given.horizon is None else math.ceil(given.horizon / memory.period)
        theory = given.tightest_width(forgets=True, num_bounds=periods)
        super().__init__(**given.under(theory, memory=memory))


@described
class WGPUCB(Bandit):
    """W-GP-UCB, weighted GP-UCB: an observation counts less with every round, by a constant factor.

    Source: Deng et al., AISTATS 2022, as written in Mauduit et al., 2025, Eq. (9). Differs: see ``MemoryWidth``, which
    needs nothing but the posterior instead of a second, doubly weighted variance; ages are of the round in which a
    point is played, so the latest reward has age 1. The discount of a horizon is ours: it remembers as long as
    SW-GP-UCB's window.

    Args:
        discount: η, above 0 and at most 1: the factor by which a weight falls in a round, or unit of time. None for
            e^(−1/w), w being ``window_size`` of the horizon: weights e^(−age/w) sum to w.
        least_weight: observations of a smaller weight are dropped, which bounds the cost of a round.

    Cost of a round with u distinct points that count: O(u³ + A u²) on A arms.
    """

    def __init__(
        self,
        *,
        discount: float | None = 0.99,
        variation_budget: float | None = None,
        least_weight: float | None = 1e-6,
        **words: Unpack[DictionaryWords],
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="discount")
        checks.optional(checks.non_negative)("variation_budget", variation_budget)
        memory = Discount(1.0 if discount is None else discount, least_weight)
        if discount is None:
            memory = memory.with_horizon(given.rounds_to_remember("discount", window_size, variation_budget))
        theory = given.theorem(MemoryWidth, num_bounds=given.horizon, gain=given.gain)
        super().__init__(**given.under(theory, memory=memory))


@described
class UIGPUCB(Bandit):
    """UI-GP-UCB, GP-UCB with uncertainty injection: the noise variance of an observation grows with its age.

    Source: Mauduit et al., 2025, section 2.1 and Eq. (10); the name is that of Brunzema, von Rohr and Trimpe, CDC 2022,
    whose prior on time is a Wiener process (``TVGPUCB`` with a ``WienerKernel``). Differs: the width, which neither
    states, see ``MemoryWidth``; ages are of the round in which a point is played, so the latest reward has age 1.

    Args:
        growth: ``LinearGrowth(rate)``, ``QuadraticGrowth(rate)`` or ``ExponentialGrowth(discount)``, or the rate of a
            linear growth in reward units squared per round, or unit of time.
        max_variance: observations of a larger variance are dropped, which bounds the cost of a round.

    Cost of a round with u distinct points that count: O(u³ + A u²) on A arms.
    """

    def __init__(
        self, *, growth: Growth | float, max_variance: float | None = None, **words: Unpack[DictionaryWords]
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="growth")
        memory = UncertaintyInjection(growth if isinstance(growth, Growth) else LinearGrowth(growth), max_variance)
        theory = given.theorem(MemoryWidth, num_bounds=given.horizon, gain=given.gain)
        super().__init__(**given.under(theory, memory=memory))


@described
class TVGPUCB(Bandit):
    """TV-GP-UCB, time-varying GP-UCB: a prior on space and time, whose function is replaced bit by bit.

    The kernel at points x at time t and x' at time t' is k(x, x') (1 − ε)^(|t − t'| / 2). Points have the time in the
    first column, see ``Timed``: ``bandit.model`` is one of space and time.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016. Differs: times need not be rounds.

    Args:
        kernel: the prior covariance of a function at one time, any GPyTorch kernel, in reward units squared.
        forgetting: ε in [0, 1), the share of the function that a round, or unit of time, replaces. None for 0.01 and,
            under a ``LearnedPrior``, one that is fitted: nothing is forgotten while the evidence for a change is weak.
        time_kernel: a kernel on one column, the time, in place of the forgetting one.
        memory: drops or ages observations as well, which bounds the cost of a round.
        beta: a multiplier of the standard deviation or a ``Width``; ``TVGPUCBWidth()``, that of the paper's
            experiments, unless given. On A arms ``BayesianGPUCBWidth`` has the theorem.

    Cost of a round: O(A²) on A arms, at most 512 in double precision, with an exact posterior, without a memory and
    with no other kernel on time. Elsewhere O(A t²) in round t and O(t²) to learn, since no two points of different
    rounds are equal.
    """

    def __init__(
        self,
        *,
        forgetting: float | None = None,
        time_kernel: Kernel | None = None,
        dictionary: DictionaryRule | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words)
        prior, space, memory = given.prior, given.candidates, given.words["memory"]
        share = 0.01 if forgetting is None else forgetting
        if isinstance(prior, Prior):
            in_time = ForgettingKernel(share) if time_kernel is None else time_kernel
            space, prior = timed(space), replace(prior, kernel=SpaceTimeKernel(prior.kernel, in_time))
        elif time_kernel is not None or memory is not None:
            raise InputError("A LearnedPrior is one at any time: leave out time_kernel and memory, or give a Prior.")
        else:
            memory = TemporalPrior(share)
            prior = replace(prior, learn_memory=prior.learn_memory or forgetting is None)
        width = given.width(TVGPUCBWidth())
        super().__init__(
            **given.pieces(candidates=space, prior=prior, memory=memory, dictionary=dictionary, width=width)
        )
