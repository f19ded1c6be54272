"""GP-TS, Thompson sampling."""

from typing import Unpack

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import Arguments, PlannedWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.confidence import GPTSWidth
from torch_kbandits.dictionaries import KORS


@described
class GPTS(Bandit):
    """GP-TS, Gaussian-process Thompson sampling: play the maximiser of a draw from N(μ, v² cov).

    Source: Chowdhury and Gopalan, "On kernelized multi-armed bandits", ICML 2017, Algorithm 2, where v is the width
    here. Differs: on a box the draw is made on a Sobol set of fixed size; beyond 2,000 distinct arms, and on arms in
    files and blocks, the prior part of a draw is approximated, see ``PriorDraws``; contexts; a Nyström posterior in
    place of the exact one, if asked for. At λ < 1, where the proof fails, v is ``SelfNormalizedWidth``
    at δ/2, or ``MemoryWidth`` under a memory that forgets; ``beta=GPTSWidth(...)`` is its own there.

    Args:
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one. No theorem here covers draws from the Nyström posterior.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.
        **words: see ``PlannedWords``.

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
