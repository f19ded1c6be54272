"""Experts in the rounds of a bandit: what they are asked, and how long what they said counts."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit.adaptation import Choice, MemoryChoice, Past
from torch_kbandits.confidence import sparq_cutoff, sparq_questions
from torch_kbandits.dictionaries import KDPP, PlayedPoints
from torch_kbandits.memory import SlidingWindow, UncertaintyInjection
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers, GuardedExpert
from torch_kbandits.observations.history import History

#: What may be a number or a function of the round t = 1, 2, …
OfRound = float | Callable[[int], float]


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions about past inputs that a k-DPP draws, far apart yet at random, once no earlier answers count.

    Answers are no rewards: no history has them.

    Args:
        expert: who answers; None if answers are given, see ``Bandit.answer``.
        number: how many questions in round t = 1, 2, …, a function of it, or a factor of ln t.
        num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.
        max_questions: what the expert may be asked in all, by which bandits are told apart.
        window: how long answers count, in rounds or units of time; None for the time at which they are given alone.
    """

    expert: GuardedExpert | None
    number: OfRound
    num_swaps: int | None
    max_questions: int | None
    window: OfRound | None = None

    def points(self, told: History, kernel: Kernel, round: int, seed: int) -> Tensor:
        """Return what is to be asked in a round (Q, d), given the rewards so far; the seed addresses draws."""
        X, t = told.X, round + 1
        number = self.number(t) if callable(self.number) else sparq_questions(t, self.number)
        wanted = checks.non_negative_integer(f"questions({t})", number) if len(X) else 0
        if self.expert is not None:
            wanted = self.expert.allowed(wanted)
        if wanted == 0:
            return X[:0]
        played = PlayedPoints(X, kernel, X.new_zeros(()), X.new_ones(len(X)))
        return KDPP(wanted, self.num_swaps).select(played, generator_for(seed, round, "questions")).points

    def answers(self, told: History, kernel: Kernel, round: int, clock: Clock, seed: int) -> Answers:
        """Ask the expert the questions of a round, if there are any, and return what was said."""
        X, now = self.points(told, kernel, round, seed), int(clock.now) if clock.kind == "rounds" else clock.now
        if self.expert is None or not len(X):
            return Answers.none(told.X)
        return self.lasting(self.expert.answers(X, now), round, clock.now)

    def lasting(self, said: Answers, round: int, now: float) -> Answers:
        """Return answers that were given at a time and count as long as they should, none no longer than that."""
        if self.window is None or not len(said.X):
            return said
        return said._replace(until=now + of_round("window", self.window, round + 1))


def of_round(name: str, value: OfRound, round: int) -> float:
    """Return a number, or what a function says for the round t = 1, 2, …: above 0."""
    return checks.positive(f"{name}({round})", value(round)) if callable(value) else value


@dataclass(frozen=True)
class SparQCutoff(MemoryChoice):
    """Uncertainty injection whose largest noise variance that counts depends on the round.

    Args:
        memories: the one without a cut-off.
        cutoff: g, a function of the round t = 1, 2, …, or a constant; None for ln t, or as ``window`` says.
        regularization: λ, in reward units squared.
        window: the largest age that counts, in place of the cut-off.
    """

    memories: tuple[UncertaintyInjection, ...]
    cutoff: OfRound | None
    regularization: float
    window: OfRound | None = None
    block_size: int = 1

    def summaries(self, history: History, known: tuple[int, ...], past: Past) -> tuple[int, ...]:
        """Return the number of rounds."""
        return (history.next_round,)

    def choice(self, summaries: tuple[int, ...], seed: int) -> Choice:
        """Return the memory of the next round. Nothing is drawn."""
        t, (memory,), cutoff = 1 + sum(summaries), self.memories, self.cutoff
        if cutoff is None and self.window is not None:
            age = torch.tensor(of_round("window", self.window, t), dtype=torch.float64)
            limit = float(memory.growth.noise(age, self.regularization))
            if limit <= self.regularization:  # nothing grows
                return Choice(SlidingWindow(float(age)), (1.0,))
        else:
            g = math.log if cutoff is None else cutoff if callable(cutoff) else lambda _: cutoff
            limit = sparq_cutoff(t, self.regularization, g)
        # No observation has less noise than λ, so half of it drops all.
        return Choice(replace(memory, max_variance=max(limit, 0.5 * self.regularization)), (1.0,))
