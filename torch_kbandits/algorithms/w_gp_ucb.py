"""W-GP-UCB, discounted rewards."""

from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import MemoryWidth, window_size
from torch_kbandits.memory import Discount


@described
class WGPUCB(Bandit):
    """W-GP-UCB, weighted GP-UCB: an observation counts less with every round, by a constant factor.

    Source: Deng, Zhou, Kim, Tewari, Gupta and Shroff, "Weighted Gaussian process bandits for non-stationary
    environments", AISTATS 2022, as written in Mauduit et al., 2025, Eq. (9). Differs: see ``MemoryWidth``, which needs
    nothing but the posterior instead of a second, doubly weighted variance. A point is chosen with ages of the round in
    which it is played, so the latest reward has age 1, where theirs has 0. The discount of a horizon is ours: it
    remembers as long as SW-GP-UCB's window.

    Args:
        discount: η, above 0 and at most 1: the factor by which a weight falls in a round, or unit of time. None for
            e^(−1/w), w being ``window_size`` of the horizon: weights e^(−age/w) sum to w.
        variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known; only for that w.
        least_weight: observations of a smaller weight are dropped, which bounds the cost of a round.
        horizon: T, the planned number of rounds: the theorem's width holds in all of them at once. Without it, in each.
            A discount of None needs it, too.
        memory: refused, with the reason: ``discount`` says what an observation counts for.
        **words: see ``DictionaryWords``.

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
