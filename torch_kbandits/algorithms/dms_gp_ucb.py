"""DMS-GP-UCB, which chooses its memory by prediction."""

from collections.abc import Sequence
from typing import Unpack

from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import DynamicModelSelection
from torch_kbandits.confidence import IGPUCBWidth
from torch_kbandits.memory import Discount, Memory, Stationary


@described
class DMSGPUCB(Bandit):
    """DMS-GP-UCB, dynamic model selection: GP-UCB under the memory that predicted the latest rewards best.

    It needs no rate of change. Every reward scores every memory, so none has to be played in order to be judged.

    Source: ours, from Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model
    averaging", Technometrics 2010, and W-GP-UCB (Deng et al., AISTATS 2022); see ``DynamicModelSelection``. No regret
    bound is known.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Its scale and λ decide what a
            prediction is worth: fit them beforehand.
        memories: what to choose from; None for discounts that remember about 10, 20, 50 and 100 rounds, and all. Give
            others where times are not rounds. The last one is in force first.
        block_size: H, rounds between two choices.
        score_discount: α in (0, 1), the factor by which a score loses weight in a round.
        memory: refused, with the reason: ``memories`` says what an observation counts for.
        **words: see ``DictionaryWords``.

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
        theory = given.theorem_at(IGPUCBWidth, forgets=True)
        super().__init__(**given.under(theory, memories=choice))
