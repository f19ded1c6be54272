"""Functions that change at a rate that nobody knows."""

import math
from collections.abc import Sequence
from typing import Literal, Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, GainWords, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import (
    BanditOverBandit,
    DynamicModelSelection,
    MultiScaleRestarts,
    ResidualTrigger,
)
from torch_kbandits.confidence import TVGPUCBWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Discount, Memory, Restart, SlidingWindow, Stationary, TemporalPrior
from torch_kbandits.selection import are_few


@described
class BOBGPUCB(Bandit):
    """BOB-GP-UCB, bandit over bandit: SW-GP-UCB whose window is learned from what windows earned, block by block.

    Source: Cheung, Simchi-Levi and Zhu, AISTATS 2019, for linear bandits, with the posterior and the window of
    SW-GP-UCB. Differs: see ``BanditOverBandit``; the length of a block, where theirs grows with the dimension as well;
    the default windows.

    Args:
        horizon: T, the planned number of rounds, of which the defaults below are functions. At λ < 1 the theorem's
            width holds in all of them at once.
        windows: w of each SW-GP-UCB, in observations, infinite for one that keeps all; or memories of any kind. None
            for H, 4 H, 16 H and so on below T, and one that keeps all: few, since EXP3 tries each about as often as any
            other until it knows, and a shorter one could not pay within a block.
        block_size: H, rounds of a block; None for ⌈√T⌉.
        exploration: γ in [0, 1], the share of blocks whose window is drawn uniformly; None for that of Auer et al.,
            SIAM J. Comput. 2002, Corollary 3.2: min(1, √(K ln K / ((e − 1) N))) of K windows and N blocks.

    Cost of a round: as SW-GP-UCB with the window in force, and once a block O(u³) to change it.
    """

    def __init__(
        self,
        *,
        horizon: int,
        windows: Sequence[float | Memory] | None = None,
        block_size: int | None = None,
        exploration: float | None = None,
        dictionary: DictionaryRule | None = None,
        **words: Unpack[GainWords],
    ) -> None:
        given = Arguments(GainWords, words, forgets_by="windows")
        horizon = checks.positive_integer("horizon", horizon)
        size = checks.optional(checks.positive_integer)("block_size", block_size) or math.ceil(math.sqrt(horizon))
        if windows is None:
            windows = [size * 4**power for power in range(horizon.bit_length()) if size * 4**power < horizon]
            windows.append(math.inf)
        if not (several := checks.entries("windows", windows)):
            raise InputError("windows must be one or more, got none.")
        memories = tuple(w if isinstance(w, Memory) else SlidingWindow(w, "observations") for w in several)
        if exploration is None:
            number, num_blocks = len(memories), math.ceil(horizon / size)
            exploration = min(1.0, math.sqrt(number * math.log(number) / ((math.e - 1.0) * num_blocks)))
        choice = BanditOverBandit(memories, size, exploration)
        theory = given.tightest_width(forgets=True, num_bounds=horizon)
        super().__init__(**given.under(theory, memories=choice, dictionary=dictionary))


@described
class DMSGPUCB(Bandit):
    """DMS-GP-UCB, dynamic model selection: GP-UCB under the memory that predicted the latest rewards best.

    Every reward scores every memory, so none has to be played in order to be judged. The scale of the kernel and λ
    decide what a prediction is worth: fit them beforehand.

    Source: ours, from Raftery, Kárný and Ettler, Technometrics 2010, and W-GP-UCB; see ``DynamicModelSelection``. No
    regret bound is known.

    Args:
        memories: what to choose from; None for discounts that remember about 10, 20, 50 and 100 rounds, and all. The
            last one is in force first.

    Cost of a round: as W-GP-UCB with the memory in force, and once a block under each memory.
    """

    def __init__(
        self,
        *,
        memories: Sequence[Memory] | None = None,
        block_size: int = 5,
        score_discount: float = 0.95,
        **words: Unpack[DictionaryWords],
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="memories")
        several = (*map(Discount, (0.9, 0.95, 0.98, 0.99)), Stationary()) if memories is None else memories
        choice = DynamicModelSelection(several, block_size, score_discount)  # pyright: ignore[reportArgumentType]
        theory = given.tightest_width(forgets=True)
        super().__init__(**given.under(theory, memories=choice))


@described
class DMSTVGPUCB(Bandit):
    """DMS-TV-GP-UCB: TV-GP-UCB with the rate of change under which the latest rewards were predicted best.

    Unlike in ``DMSGPUCB``, whose observations grow noisy, the prior on space and time says how sure one may be of what
    was not played for long. The scale of the kernel, at one time, and λ are to be fitted beforehand.

    Source: ours, from Bogunovic, Scarlett and Cevher, AISTATS 2016, and Raftery, Kárný and Ettler, Technometrics 2010;
    see ``TemporalPrior`` and ``DynamicModelSelection``. No regret bound is known.

    Args:
        forgettings: what ε in [0, 1) may be, the share of the function that a round, or unit of time, replaces; from
            the largest to the least, which is in force first.
        least_correlation: see ``TemporalPrior``; it bounds the cost of a round unless ε is 0. "auto" is None on at most
            512 arms in double precision with an exact posterior, where that is bounded anyway, and 1e-3 elsewhere.
        beta: a multiplier of the standard deviation or a ``Width``; ``TVGPUCBWidth()`` unless given.

    Cost of a round: that of TV-GP-UCB for each ε on at most 512 arms; elsewhere of one, and once a block of each.
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


@described
class ETGPUCB(Bandit):
    """ET-GP-UCB, event-triggered GP-UCB: GP-UCB that forgets everything when a reward leaves its confidence band.

    The reward that triggered a restart counts after it.

    Source: Brunzema et al., TMLR 2025. Differs: the default width of the choice is as for ``SWGPUCB``; on arms theirs
    is ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``. See ``ResidualTrigger``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Its scale sets which change is a
            surprise: with too large a one changes go unnoticed, with too small a one restarts never end.
        false_alarm_probability: δ of the trigger in (0, 1): on a function that stays, the probability of a restart
            before the next change is at most this, under the exact posterior.
        noise_scale: R > 0, the standard deviation of the noise, in reward units; the trigger takes √λ unless given.

    Cost of a round: as GP-UCB with the observations since the last restart.
    """

    def __init__(self, *, false_alarm_probability: float = 0.1, **words: Unpack[DictionaryWords]) -> None:
        given = Arguments(DictionaryWords, words)
        trigger = ResidualTrigger(false_alarm_probability, given.noise_scale)
        theory = given.tightest_width(forgets=True)
        super().__init__(**given.under(theory, trigger=trigger))


@described
class MASTERGPUCB(Bandit):
    """MASTER-GP-UCB: GP-UCB beside instances that begin anew, which restarts when rewards contradict what it knows.

    Source: Wei and Luo, COLT 2021, around GP-UCB. Differs: see ``MultiScaleRestarts``.

    Args:
        false_alarm_probability: δ of the tests in (0, 1).
        exploration: in [0, 1], how many instances begin: 1 as in the paper; 0 leaves the tests alone, for less regret.

    Cost of a round: as R-GP-UCB, and once a block the posterior since the last restart at all candidates.
    """

    def __init__(
        self,
        *,
        block_size: int = 2,
        false_alarm_probability: float = 0.1,
        exploration: float = 1.0,
        **words: Unpack[DictionaryWords],
    ) -> None:
        given = Arguments(DictionaryWords, words, forgets_by="block_size")
        if given.candidates.is_contextual:
            raise InputError("MASTER compares rounds of the same candidates: leave out contexts, or take DMSGPUCB.")
        theory, memories = given.tightest_width(forgets=True), (Restart(1.0),)
        choice = MultiScaleRestarts(memories, given.width(theory), block_size, false_alarm_probability, exploration)
        super().__init__(**given.under(theory, memories=choice))
