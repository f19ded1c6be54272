"""SW-GP-UCB, a sliding window."""

from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import IGPUCBWidth, window_size
from torch_kbandits.memory import SlidingWindow


@described
class SWGPUCB(Bandit):
    """SW-GP-UCB: GP-UCB on a sliding window of the latest observations.

    Source: Zhou and Shroff, CISS 2021, Algorithm 2 and Theorem 2. Differs: w observations where the printed algorithm
    keeps w + 1. At λ >= 1 the default width is IGP-UCB's, as in their algorithm; below, where that has no proof, it is
    that of their proof, ``MemoryWidth``, with one bound for each round where the horizon is given, and else one.

    Args:
        window: w: the largest age in rounds, or units of time, of an observation that counts. None for the theorem's,
            which needs the horizon.
        variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known; only for its w.
        horizon: T, the planned number of rounds, which the theorem's w needs. At λ < 1 the theorem's width holds in all
            of them at once; without it, in each.
        memory: refused, with the reason: ``window`` says what an observation counts for.
        **words: see ``DictionaryWords``.

    Cost of a round with u distinct points that count: O(A u²) on A arms, O(u²) to learn and to forget.
    """

    def __init__(
        self, *, window: float | None = None, variation_budget: float | None = None, **words: Unpack[DictionaryWords]
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="window")
        if window is None:
            window = given.rounds_to_remember("window", window_size, variation_budget)
        theory = given.theorem_at(IGPUCBWidth, forgets=True)
        super().__init__(**given.under(theory, memory=SlidingWindow(window)))
