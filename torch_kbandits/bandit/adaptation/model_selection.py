"""Which memory to use, learned from how well each of them predicted."""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch_kbandits import checks
from torch_kbandits.bandit.adaptation.memory_choice import Believe, Choice, MemoryChoice, Predictor, checked_memories
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Discount, Memory, Stationary
from torch_kbandits.observations.ledger import History

#: A block of which less than this share is left counts no more.
_LEAST = 1e-3


class BlockScores(NamedTuple):
    """How well the memories predicted the rewards of a block.

    Attributes:
        block: its number, from 0.
        scores: the log predictive density of its rewards under each memory, in nats.
    """

    block: int
    scores: tuple[float, ...]


@dataclass(frozen=True)
class DynamicModelSelection(MemoryChoice):
    """The memory that predicted best of late: the largest sum of log predictive densities, older ones forgotten.

        S_k = Σ_b α^(rounds since b) Σ_{s in b} log N(y_s; μ_k(x_s), σ²_k(x_s) + λ)

    where μ_k and σ_k are of the posterior under memory k before block b. Every reward scores every memory, whichever
    chose its point: no memory need be played in order to be judged, as a bandit over memories has to.

    Source: Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010: model probabilities with forgetting factor α, of which the largest is taken (dynamic model
    selection). Differs: the models differ in what they forget; a posterior predicts the rewards of a whole block, each
    on its own; blocks of which less than a thousandth is left are dropped. No regret bound is known.

    Args:
        memories: what to choose from. The last one is in force until the first block is over; of memories that
            predicted equally well the first is taken.
        block_size: H, rounds of a block. A round is a call of ``tell``.
        score_discount: α in (0, 1), the factor by which a score loses weight in a round: Raftery's forgetting factor.

    Raises:
        InputError: if an argument does not fit.

    Cost of a block: the posterior of what counts under each memory. An exact one goes on from the last block.
    """

    memories: tuple[Memory, ...]
    block_size: int = 5
    score_discount: float = 0.95

    allows_restarts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "memories", checked_memories(self.memories))
        checks.keep(self, block_size=checks.positive_integer, score_discount=checks.open_unit_interval)

    @property
    def num_blocks(self) -> int:
        """How many blocks, the latest, the choice rests on."""
        return max(1, math.ceil(math.log(_LEAST) / (self.block_size * math.log(self.score_discount))))

    def summaries(self, history: History, known: tuple[BlockScores, ...], believe: Believe) -> tuple[BlockScores, ...]:
        """Return the scores of the latest complete blocks, those known already taken as they are."""
        number = history.next_round // self.block_size
        before = {scores.block: scores for scores in known}
        blocks = range(max(0, number - self.num_blocks), number)
        return tuple(before.get(block) or self._scored(block, history, believe) for block in blocks)

    def choice(self, summaries: tuple[BlockScores, ...], seed: int) -> Choice:
        """Return the memory of the next block. Nothing is drawn."""
        if not summaries:
            return Choice(self.memories[-1], (1.0 / len(self.memories),) * len(self.memories))
        last = summaries[-1].block
        weights = [self.score_discount ** (self.block_size * (last - each.block)) for each in summaries]
        columns = zip(*(each.scores for each in summaries), strict=True)
        totals = [sum(weight * score for weight, score in zip(weights, column, strict=True)) for column in columns]
        best = max(totals)
        shares = [math.exp(total - best) for total in totals]
        probabilities = tuple(share / sum(shares) for share in shares)
        return Choice(self.memories[totals.index(best)], probabilities)

    def _scored(self, block: int, history: History, believe: Believe) -> BlockScores:
        """Return the scores of a block, by the posteriors of what was told before it at the time when it began.

        A late reward belongs to the block in which it is told. A block without rewards tells no memory from another.
        """
        if history.told_at is None:
            raise InputError("Memories are compared in time, and this history has no times.")
        start = block * self.block_size
        before = history.rows(history.rounds < start)
        told = history.rows((history.rounds >= start) & (history.rounds < start + self.block_size))
        if not len(told.X):
            return BlockScores(block, (0.0,) * len(self.memories))
        now = float(told.told_at[0])  # pyright: ignore[reportOptionalSubscript]
        return BlockScores(block, tuple(_score(told, believe(before, memory, now)) for memory in self.memories))


def default_discounts() -> tuple[Memory, ...]:
    """Return discounts that remember about 10, 20, 50 and 100 rounds, and the memory that keeps all."""
    return (Discount(0.9), Discount(0.95), Discount(0.98), Discount(0.99), Stationary())


def _score(told: History, belief: Predictor) -> float:
    """Return the log predictive density of rewards, each on its own, in nats."""
    mean, variance = (part.double() for part in belief.moments(told.X))
    variance = variance + belief.regularization.double()
    terms = (told.Y.double() - mean).square() / variance + variance.log() + math.log(2.0 * math.pi)
    return -0.5 * float(terms.sum())
