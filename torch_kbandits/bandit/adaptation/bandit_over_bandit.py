"""Which memory to use, learned from what each of them earned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from torch_kbandits import checks
from torch_kbandits.bandit.adaptation.exp3 import probabilities
from torch_kbandits.bandit.adaptation.memory_choice import Believe, Choice, MemoryChoice, checked_memories
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory, SlidingWindow
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.ledger import History

#: The ratio of two neighbouring windows of ``default_memories``.
_RATIO = 4


@dataclass(frozen=True)
class BanditOverBandit(MemoryChoice):
    """Which of several memories to use: EXP3 over blocks of rounds, whose gain is the mean reward of the block.

    The choice is a function of the rewards told and of a seed: this is a value and holds no state.

    Source: Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity", AISTATS 2019, BOB, with EXP3 of
    Auer et al., 2002. Differs:

    - All memories share one history, unless ``shares_history`` is False. In the paper every block starts its window
      bandit anew, so no window longer than a block can help. With a shared one it can; but what a block earns then
      also depends on what was played in earlier ones, which the analysis of EXP3 does not allow for.
    - Gains are scaled by the least and the largest mean of a block so far, unless bounds are given; all past gains are
      rescaled whenever these change. In the paper the rewards have known bounds and sums over a block are scaled so
      that they leave [0, 1] with small probability. No regret bound covers a scale that follows the rewards.
    - Any memories, not only windows.

    Args:
        memories: what to choose from.
        block_size: H, rounds of a block. A round is a call of ``tell``.
        exploration: γ in [0, 1], the share of blocks whose memory is drawn uniformly: ``exploration_rate``.
        reward_bounds: the least and the largest mean reward of a block; means outside are moved to the nearer one.
            None for those so far.
        shares_history: whether a block goes on with what was told before it. False forgets all at its start.

    Raises:
        InputError: if an argument does not fit.
    """

    memories: tuple[Memory, ...]
    block_size: int
    exploration: float
    reward_bounds: tuple[float, float] | None = None
    shares_history: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "memories", checked_memories(self.memories))
        kinds = {"block_size": checks.positive_integer, "exploration": checks.finite_number}
        checks.keep(self, shares_history=checks.flag, **kinds)
        if not 0.0 <= self.exploration <= 1.0:
            raise InputError(f"exploration must be from 0 to 1, got {self.exploration!r}.")
        if self.reward_bounds is not None:
            object.__setattr__(self, "reward_bounds", _checked_bounds(self.reward_bounds))

    def block_means(self, history: History) -> list[float]:
        """Return the mean reward of each complete block, counted from the first round on. Cost: O(n).

        A reward belongs to the block in which it is told, also where its point was played in an earlier one. The mean
        of a block without rewards, of which every play failed, is NaN.
        """
        num_blocks = history.next_round // self.block_size
        blocks, Y = (history.rounds // self.block_size).cpu(), history.Y.double().cpu()
        complete = blocks < num_blocks
        counts = torch.bincount(blocks[complete], minlength=num_blocks)
        return (torch.bincount(blocks[complete], Y[complete], minlength=num_blocks) / counts).tolist()

    def summaries(self, history: History, known: tuple[float, ...], believe: Believe) -> tuple[float, ...]:
        """Return the mean reward of each complete block."""
        return tuple(self.block_means(history))

    def choice(self, summaries: Sequence[float], seed: int) -> Choice:
        """Return the memory of the next block.

        Args:
            summaries: the mean reward of each block so far, in order; one that is NaN says nothing of its memory.
            seed: addresses the draws; that of a block depends on its number and the seed alone.

        Cost: O(N K) for N blocks and K memories.
        """
        # Σ y/p and Σ 1/p over the blocks of each memory: with them gains can be rescaled whenever the range changes.
        paid, owed = [0.0] * len(self.memories), [0.0] * len(self.memories)
        chances, drawn = self._drawn(paid, owed, (0.0, 0.0), seed, 0)
        scale, low, high = (0.0, 0.0), math.inf, -math.inf
        for number, mean in enumerate(summaries):
            if not math.isnan(mean):
                low, high = min(low, mean), max(high, mean)
                scale = self.reward_bounds or (low, high)
                paid[drawn] += min(max(mean, scale[0]), scale[1]) / chances[drawn]
                owed[drawn] += 1.0 / chances[drawn]
            chances, drawn = self._drawn(paid, owed, scale, seed, number + 1)
        return Choice(self.memories[drawn], tuple(chances))

    def _drawn(
        self, paid: list[float], owed: list[float], scale: tuple[float, float], seed: int, block: int
    ) -> tuple[list[float], int]:
        """Return the probabilities of the memories in a block, and which one is drawn."""
        low, high = scale
        spread = high - low
        gains = [(y - low * one) / spread if spread > 0.0 else 0.0 for y, one in zip(paid, owed, strict=True)]
        chances = probabilities(gains, self.exploration)
        lot = float(torch.rand(1, generator=generator_for(seed, block, "memory"), dtype=torch.float64, device="cpu"))
        below = sum(lot >= total for total in accumulate(chances))
        return chances, min(below, len(chances) - 1)


def block_windows(block_size: int) -> tuple[Memory, ...]:
    """Return the windows of BOB: H^(j/Δ) observations, rounded down, for j = 0 … Δ = ⌈ln H⌉; equal ones once.

    Source: Cheung, Simchi-Levi and Zhu, AISTATS 2019.

    Args:
        block_size: H >= 1.
    """
    block_size = checks.positive_integer("block_size", block_size)
    steps = max(1, math.ceil(math.log(block_size)))
    # Rounding must not take one from a power that is whole.
    sizes = {math.floor(block_size ** (j / steps) + 1e-9) for j in range(steps + 1)}
    return tuple(SlidingWindow(size, "observations") for size in sorted(sizes))


def default_memories(block_size: int, horizon: int) -> tuple[Memory, ...]:
    """Return windows of one block, four blocks, sixteen and so on below the horizon, and one without an end.

    Few of them, since EXP3 tries each about as often as any other until it knows; none shorter than a block, since
    within a block it could not pay to have learned so little.

    Args:
        block_size: H >= 1.
        horizon: T >= 1.
    """
    size, sizes = checks.positive_integer("block_size", block_size), list[float]()
    while size < checks.positive_integer("horizon", horizon):
        sizes.append(size)
        size *= _RATIO
    return tuple(SlidingWindow(size, "observations") for size in (*sizes, math.inf))


def _checked_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise InputError(f"reward_bounds must be two numbers, the least and the largest, got {checks.shown(bounds)}.")
    low, high = (checks.finite_number(f"reward_bounds[{i}]", bound) for i, bound in enumerate(bounds))
    if not low < high:
        raise InputError(f"reward_bounds must be two numbers, the least below the largest, got {low:g} and {high:g}.")
    return low, high
