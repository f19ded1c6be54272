"""SparQ-GP-UCB, which asks an expert few questions."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Unpack

from gpytorch.kernels import Kernel

from torch_kbandits import checks
from torch_kbandits.algorithms.arguments import Arguments, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import Choice, MemoryChoice, PosteriorOf
from torch_kbandits.bandit.config import Advice
from torch_kbandits.confidence import InformationGain, RealizedGain, SparQWidth, sparq_cutoff, sparq_questions
from torch_kbandits.dictionaries import KDPP, PlayedPoints
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Growth, QuadraticGrowth, UncertaintyInjection
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.experts import Answers, Expert, GuardedExpert
from torch_kbandits.observations.history import History


@described
class SparQGPUCB(Bandit):
    """SparQ-GP-UCB: where the function changes, few recent rewards and the answers of an expert to few questions.

    In round t = 1, 2, … it drops the rewards whose noise, grown with their age, is above λ g(t); draws past inputs by a
    k-DPP, far apart yet at random; asks the expert for the current function there; and plays the point of the largest
    upper confidence bound given both.

    The expert is asked once a round, by the first ``ask``, ``acquisition`` or ``recommend``; with ``ask(time=)`` once
    for each time in it. If it fails or answers "not yet", the round goes on without it and a warning says so: see
    ``GuardedExpert``, which is ``expert``. Its answers are no rewards: ``history`` has none of them, the next round
    drops them, and a replayed bandit asks its own expert.

    Source: Mauduit, Berthier and Simonetto, 2025, Algorithm 1. Differs: questions and ages are of the round in which
    the point is played, so the latest reward has age 1, where the paper's has 0.

    Args:
        expert: a function (X, time) → (Y, variance) or None for "not yet"; see ``experts.Expert``. A variance below
            1e-6 λ counts as that.
        questions: a number, for ⌈questions · ln t⌉ of them in round t, or a function of t; fewer where past inputs
            are fewer or span less.
        max_questions: how many points the expert may be asked about in all; None for any number.
        cutoff: g, a function of t or a number for a constant.
        growth: how noise grows with age; by default λ (age² + 1).
        num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.

    Cost of round t with Q questions and w rewards that count: O(t Q²) and the k-DPP's chain, O(num_swaps · Q²), for the
    questions; O((Q + w)³) for the posterior; O(A (Q + w)²) for A arms, on a box the search.
    """

    def __init__(
        self,
        *,
        expert: Expert,
        questions: float | Callable[[int], int] = 6.0,
        max_questions: int | None = None,
        cutoff: float | Callable[[int], float] = math.log,
        growth: Growth | None = None,
        num_swaps: int | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        gain: InformationGain | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words, forgets_by="growth")
        norm_bound = checks.optional(checks.scale)("norm_bound", norm_bound)
        failure_probability = checks.open_unit_interval("failure_probability", failure_probability)
        checks.absent_or("gain", gain, InformationGain, "an information gain")
        gain = RealizedGain() if gain is None else gain
        theory = None if norm_bound is None else SparQWidth(norm_bound, failure_probability, gain)
        questions = questions if callable(questions) else checks.positive("questions", questions)
        cutoff = cutoff if callable(cutoff) else checks.non_negative("cutoff", cutoff)
        num_swaps = checks.optional(checks.non_negative_integer)("num_swaps", num_swaps)
        self.expert, self.growth = GuardedExpert(expert, max_questions), QuadraticGrowth() if growth is None else growth
        if given.prior.regularization is None:
            raise InputError("SparQ's cut-off is in units of λ, which is not known before: give LearnedPrior one.")
        memory = SparQCutoff((UncertaintyInjection(self.growth),), cutoff, given.prior.regularization)
        advice = Questions(self.expert, questions, num_swaps, self.expert.max_questions)
        super().__init__(**given.under(theory, "norm_bound", memories=memory, advice=advice))


@dataclass(frozen=True)
class SparQCutoff(MemoryChoice):
    """Uncertainty injection whose largest noise variance that counts depends on the round.

    Args:
        memories: the one without a cut-off.
        cutoff: g, a function of the round t = 1, 2, …, or a constant.
        regularization: λ, in reward units squared.
    """

    memories: tuple[UncertaintyInjection, ...]
    cutoff: float | Callable[[int], float]
    regularization: float
    block_size: int = 1

    def summaries(self, history: History, known: tuple[int, ...], posterior_of: PosteriorOf) -> tuple[int, ...]:
        """Return the number of rounds."""
        return (history.next_round,)

    def choice(self, summaries: tuple[int, ...], seed: int) -> Choice:
        """Return the memory of the next round. Nothing is drawn."""
        cutoff = self.cutoff
        limit = sparq_cutoff(1 + sum(summaries), self.regularization, cutoff if callable(cutoff) else lambda _: cutoff)
        # No observation has less noise than λ, so half of it drops all.
        return Choice(replace(self.memories[0], max_variance=max(limit, 0.5 * self.regularization)), (1.0,))


@dataclass(frozen=True, eq=False)
class Questions(Advice):
    """An expert who is asked about past inputs that a k-DPP draws, far apart yet at random.

    Args:
        expert: who answers.
        number: how many questions in round t = 1, 2, …, a function of it, or a factor of ln t.
        num_swaps: steps of the k-DPP's chain; None for that of ``KDPP``.
        max_questions: what the expert may be asked in all, by which bandits are told apart.
    """

    expert: GuardedExpert
    number: float | Callable[[int], int]
    num_swaps: int | None
    max_questions: int | None

    def answers(self, told: History, kernel: Kernel, round: int, clock: Clock, seed: int) -> Answers:
        """Ask the questions of a round, if there are any, and return what was said."""
        X, t = told.X, round + 1
        number = self.number(t) if callable(self.number) else sparq_questions(t, self.number)
        wanted = self.expert.allowed(checks.non_negative_integer(f"questions({t})", number) if len(X) else 0)
        if wanted == 0:
            return Answers.none(X)
        played = PlayedPoints(X, kernel, X.new_zeros(()), X.new_ones(len(X)))
        chosen = KDPP(wanted, self.num_swaps).select(played, generator_for(seed, round, "questions"))
        return self.expert.answers(chosen.points, int(clock.now) if clock.kind == "rounds" else clock.now)
