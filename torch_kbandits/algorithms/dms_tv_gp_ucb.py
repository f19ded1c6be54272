"""DMS-TV-GP-UCB, which chooses its rate of change by prediction."""

from collections.abc import Sequence
from typing import Literal, Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import DynamicModelSelection
from torch_kbandits.confidence import TVGPUCBWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.selection import are_few


@described
class DMSTVGPUCB(Bandit):
    """DMS-TV-GP-UCB: TV-GP-UCB with the rate of change under which the latest rewards were predicted best.

    It needs no rate of change. The prior is on space and time, of which each round replaces a share ε. Unlike in
    ``DMSGPUCB``, whose observations grow noisy, it says how sure one may be of what was not played for long.

    Source: ours, from Bogunovic, Scarlett and Cevher, "Time-varying Gaussian process bandit optimization", AISTATS
    2016, and Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010; see ``TemporalPrior`` and ``DynamicModelSelection``. No regret bound is known.

    Args:
        kernel: the prior covariance of a function at one time, any GPyTorch kernel, in reward units squared. Its scale
            and λ decide what a prediction is worth: fit them beforehand.
        forgettings: what ε in [0, 1) may be, the share of the function that a round, or unit of time, replaces; from
            the largest to the least, which is in force first. Give others where times are not rounds.
        least_correlation: see ``TemporalPrior``; it bounds the cost of a round unless ε is 0. "auto" is None on at most
            512 arms in double precision with an exact posterior, where that is bounded anyway, and 1e-3 elsewhere.
        block_size: H, rounds between two choices.
        score_discount: α in (0, 1), the factor by which a score loses weight in a round.
        candidates: arms (A, d), with contexts actions (A, a), or any ``Candidates``; their points get the time as their
            first column, see ``Timed``.
        memory: refused, with the reason: ``forgettings`` says what an observation counts for.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``; ``TVGPUCBWidth()``, as in
            ``TVGPUCB``, unless given.
        **words: see ``WidthWords``.

    Cost of a round: that of TV-GP-UCB, on at most 512 arms in double precision O(A²) for each ε. Elsewhere O(A n²) for
    n observations that count, and once a block the posterior under each ε, O(K n³).
    """

    def __init__(
        self,
        *,
        forgettings: Sequence[float] = (0.1, 0.03, 0.01, 0.003, 0.001),
        least_correlation: float | Literal["auto"] | None = "auto",
        block_size: int = 5,
        score_discount: float = 0.95,
        dictionary: DictionaryRule | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words, forgets_by="forgettings")
        checks.instance("forgettings", forgettings, Sequence, "several shares ε, such as (0.1, 0.01)")
        if isinstance(least_correlation, str) and least_correlation == "auto":  # an array is compared number by number
            least_correlation = None if dictionary is None and are_few(given.candidates) else 1e-3
        memories = tuple(TemporalPrior(forgetting, least_correlation) for forgetting in forgettings)
        choice = DynamicModelSelection(memories, block_size, score_discount)
        super().__init__(**given.pieces(memories=choice, dictionary=dictionary, width=given.width(TVGPUCBWidth())))
