"""MASTER: instances of GP-UCB at several scales, and tests of when to restart them all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Unpack

import numpy as np
import torch

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import Arguments, DictionaryWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import Choice, MemoryChoice, PosteriorOf
from torch_kbandits.confidence import Width
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory, Restart
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.history import History


@dataclass(frozen=True)
class MultiScaleRestarts(MemoryChoice):
    """Instances of several lengths that begin at random, and a restart of all when rewards contradict what is known.

    Phase n = 0, 1, … after a restart has 2ⁿ blocks. In it an instance of 2^m blocks begins at each multiple of 2^m with
    probability 2^(−(n − m)/2). The shortest is in force and knows the rewards since it began, else all since the
    restart. After the a-th block, with δ_j = 3δ / (π² a² 2ʲ), it is time to restart

    - if Σ (y − min f̃) > R √(2 N ln 1/δ_(m+1)) over the N rewards of the last 2^m blocks, where 2^m divides those of the
      phase: they are better than anything was said to be;
    - if Σ (μ − β σ − y) > R √(2 N ln 1/δ_0) over those of the phase: they are worse than they could be.

    f̃ = max μ + β σ; all are of the rewards since the restart when a block began; R² = λ. On a function that stays, and
    while its band holds, a restart comes with probability at most δ from one restart to the next.

    Source: Wei and Luo, COLT 2021, MASTER. Differs: the tests have what band and noise allow in place of 9 ρ̂ and 3 ρ̂,
    and one posterior's estimates; rewards of shorter instances count; the longest goes on through the phases; rounds
    come in blocks. So no regret bound is claimed. Time is rounds, without contexts.

    Args:
        width: β.
        block_size: H, rounds of a block.
        false_alarm_probability: δ in (0, 1).
        exploration: in [0, 1], what probabilities of shorter instances are multiplied by; the paper's is 1.
    """

    width: Width
    block_size: int = 2
    false_alarm_probability: float = 0.1
    exploration: float = 1.0
    memories: tuple[Memory, ...] = field(default=(Restart(1.0),), init=False)

    allows_restarts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance("width", self.width, Width, "a confidence width such as ConstantWidth(2.0)")
        checks.keep(self, false_alarm_probability=checks.open_unit_interval, exploration=checks.unit_interval)

    def summaries(
        self, history: History, known: tuple[tuple[float, ...], ...], posterior_of: PosteriorOf
    ) -> tuple[tuple[float, ...], ...]:
        """Return of each block since a restart its number, that of the restart, N, and Σ y, Σ μ − β σ and f̃ over R."""
        found, blocks = list(known), history.rounds // self.block_size
        for block in range(int(found[-1][0]) + 1 if found else 0, history.next_round // self.block_size):
            start, told = self._start(found), history.rows(blocks == block)
            if told.told_at is not None and bool((told.told_at.cpu() != told.rounds.cpu()).any()):
                raise InputError("Restarts of several scales count rounds: leave out times.")
            memory = self._since(start, history.next_round)
            surrogate = posterior_of(history.rows(blocks < block), memory, float(block * self.block_size))
            beta, ahead = self.width(surrogate), surrogate.fantasized(told.X[:0])
            ahead.choose(UpperConfidenceRule(), beta, 0)
            mean, variance = surrogate.moments(told.X)
            sums = told.Y.sum(), (mean - beta * variance.clamp_min(0.0).sqrt()).sum(), ahead.best_score()
            found.append((block, start, len(told.Y), *(float(each / surrogate.regularization**0.5) for each in sums)))
        return tuple(each for each in found if each[1] == found[-1][1])

    def choice(self, summaries: tuple[tuple[float, ...], ...], seed: int) -> Choice:
        """Return the memory of the next block, that of the shortest instance."""
        block, start = int(summaries[-1][0]) + 1 if summaries else 0, self._start(summaries)
        phase = (block - start + 1).bit_length() - 1
        first = start + 2**phase - 1
        for order in range(phase):
            begins = first + ((block - first) >> order << order)
            generator = generator_for(seed, begins, f"instance of 2^{order} blocks")
            if float(torch.rand((), generator=generator, device="cpu")) < self.exploration * 2.0 ** (
                0.5 * (order - phase)
            ):
                return Choice(self._since(begins, 2**order), (1.0,))
        return Choice(self._since(start, 2 ** (phase + 1) - 1), (1.0,))

    def _since(self, block: int, number: int) -> Restart:
        """Return the memory of an instance of so many blocks."""
        return Restart(float(number * self.block_size), float(block * self.block_size))

    def _start(self, found: Sequence[tuple[float, ...]]) -> int:
        """Return the block of the last restart, which is the next one if a test of those found fails."""
        if not found:
            return 0
        numbers, rewards, least, bounds = np.array([each for each in found if each[1] == found[-1][1]]).T[2:]
        age, gains = len(numbers), rewards - numbers * bounds.min()
        done = age + 1 - 2 ** (age.bit_length() - 1)
        tests = [(0, done, least - rewards)]
        tests += [(m + 1, 2**m, gains) for m in range(done.bit_length()) if done % 2**m == 0]
        level = math.log(math.pi**2 * age**2 / (3.0 * self.false_alarm_probability))
        fails = any(
            excess[-last:].sum() > math.sqrt(2.0 * numbers[-last:].sum() * (level + test * math.log(2.0)))
            for test, last, excess in tests
        )
        return int(found[-1][0]) + 1 if fails else int(found[-1][1])


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
        theory = given.tightest_width(forgets=True)
        choice = MultiScaleRestarts(given.width(theory), block_size, false_alarm_probability, exploration)
        super().__init__(**given.under(theory, memories=choice))
