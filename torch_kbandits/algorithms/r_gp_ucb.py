"""R-GP-UCB, restarts in regular intervals."""

import math
from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import IGPUCBWidth, restart_period
from torch_kbandits.memory import Restart


@described
class RGPUCB(Bandit):
    """R-GP-UCB: GP-UCB that forgets everything in regular intervals and starts anew.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016; the period of Zhou and Shroff, CISS 2021, Theorem 1. Differs:
    after a restart the variance is the prior's ("σ₀ = 0" in the latter is a slip). At λ >= 1 the default width is
    IGP-UCB's, as in their algorithm; below, where that has no proof, it is that of their proof, ``MemoryWidth``, with
    one bound for each period where the horizon is given, and else one.

    Args:
        period: H: rounds between two restarts, or units of time. None for the theorem's, which needs the horizon.
        variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known; only for its H.
        horizon: T, the planned number of rounds, which the theorem's H needs. At λ < 1 the theorem's width holds in all
            periods at once; without it, in each.
        memory: refused, with the reason: ``period`` says what an observation counts for.
        **words: see ``DictionaryWords``.

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
        theory = given.theorem_at(IGPUCBWidth, forgets=True, num_bounds=periods)
        super().__init__(**given.under(theory, memory=memory))
