"""BOB-GP-UCB, a bandit that chooses the window of another."""

import math
from collections.abc import Sequence
from typing import Unpack

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, GainWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import BanditOverBandit
from torch_kbandits.confidence import IGPUCBWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory, SlidingWindow


@described
class BOBGPUCB(Bandit):
    """BOB-GP-UCB, bandit over bandit: SW-GP-UCB whose window is learned from what windows earned, block by block.

    It needs no rate of change.

    Source: Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity", AISTATS 2019, for linear
    bandits, with the posterior and the window of SW-GP-UCB (Zhou and Shroff, CISS 2021). Differs: see
    ``BanditOverBandit``; the length of a block, where theirs grows with the dimension as well; the default windows.

    Args:
        horizon: T, the planned number of rounds: for the block size, the default windows and the share of exploration.
            At λ < 1 the theorem's width holds in all of them at once.
        windows: w of each SW-GP-UCB, in observations, infinite for one that keeps all; or memories of any kind. None
            for H, 4 H, 16 H and so on below T, and one that keeps all: few, since EXP3 tries each about as often as any
            other until it knows, and a shorter one could not pay within a block.
        block_size: H, rounds of a block; None for ⌈√T⌉.
        exploration: γ in [0, 1], the share of blocks whose window is drawn uniformly; None for that of Auer et al.,
            SIAM J. Comput. 2002, Corollary 3.2: min(1, √(K ln K / ((e − 1) N))) of K windows and N blocks.
        memory: refused, with the reason: ``windows`` says what an observation counts for.
        **words: see ``GainWords``.

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
        theory = given.theorem_at(IGPUCBWidth, forgets=True, num_bounds=horizon)
        super().__init__(**given.under(theory, memories=choice, dictionary=dictionary))
