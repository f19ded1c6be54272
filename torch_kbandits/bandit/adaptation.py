"""What is read from rewards about how fast the function changes: when to restart, and which memory is in force."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import Domain, UpperConfidenceRule
from torch_kbandits.bandit.residuals import Predictions, standardized
from torch_kbandits.confidence import Evidence, Width
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.history import History
from torch_kbandits.selection import Surrogate

__all__ = ["BanditOverBandit", "Choice", "CumulatedTrigger", "DynamicModelSelection", "MemoryChoice", "ResidualTrigger"]
__all__ += ["MultiScaleRestarts", "RestartTrigger"]

#: A block of which less than this share is left counts no more.
_LEAST = 1e-3


class Past(NamedTuple):
    """What was known, and what could be played."""

    posterior_of: Callable[[History, Memory, float], Surrogate]  # of a history under a memory at a time
    domain_at: Callable[[float], Domain]  # of a time, where rounds bring neither contexts nor actions


class Prediction(NamedTuple):
    """The posterior at points before their rewards were told, in reward units."""

    mean: Tensor  # (q,)
    variance: Tensor  # of the function, (q,)
    evidence: Evidence  # the posterior they are from
    num_before: int  # how many rewards were told since the last restart
    known: Predictions  # what the predictions of those were worth, or of those since the last fit of the prior
    noise: Tensor  # λ, 0-dim; where rewards came late the noise variance of each, (q,), infinite if it does not count
    fresh: Tensor  # λ, 0-dim, or (q,) where noise was told: what it was when the points were played


class RestartTrigger(ABC):
    """When rewards say that the function has become another. A value without state.

    A late reward is compared with the posterior when it is told: one played before a restart may cause another.
    """

    @abstractmethod
    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether to restart because of the rewards of one round, (q,), given what was predicted. Cost: O(q)."""


@dataclass(frozen=True)
class ResidualTrigger(RestartTrigger):
    """Restart when a reward leaves the band that holds all rewards of a function that stays.

        |y_t − μ(x_t)| > ρ_t σ(x_t) + R ρ_t,  ρ_t = √(2 ln(2 π_t / δ)),  π_t = π² t² / 6

    t counts the rewards since the last restart, this one included; μ and σ are of the posterior before its round.

    On a function that stays, a restart comes with probability at most δ from one restart to the next: given what was
    told before, (f(x_t) − μ)/σ and ε_t/√λ are standard normal, and each exceeds ρ_t in size with probability at most
    exp(−ρ_t²/2) = δ/(2π_t); Σ 1/π_t = 1.

    Source: Brunzema, von Rohr, Solowjow and Trimpe, "Event-triggered time-varying Bayesian optimization", TMLR 2025.

    Assumes: the function is a draw from the prior, noise is N(0, λ), R is at least √λ, the exact posterior of all
    rewards since the restart, also where a batch rule holds some back. A memory and a dictionary are outside the proof.

    Args:
        false_alarm_probability: δ in (0, 1). A smaller one finds small changes later.
        noise_scale: R > 0, the standard deviation of the noise, in reward units; None for √λ, or what was told of each.
        width: β in place of ρ_t on σ, for functions of the RKHS and noise N(0, R²): half of δ is then its own failure
            probability.
    """

    false_alarm_probability: float = 0.1
    noise_scale: float | None = None
    width: Width | None = None

    def __post_init__(self) -> None:
        checks.keep(self, false_alarm_probability=checks.open_unit_interval)
        checks.keep(self, noise_scale=checks.optional(checks.positive))
        checks.absent_or("width", self.width, Width, "a confidence width such as ConstantWidth(2.0)")

    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether a reward (q,) lies outside the band."""
        return bool(((Y - before.mean).abs() > self.band(before)).any())

    def band(self, before: Prediction) -> Tensor:
        """Return how far rewards may lie from their means, (q,), in reward units."""
        deviation = before.variance.clamp_min(0.0).sqrt()
        number = before.num_before + torch.arange(1, len(deviation) + 1, device=deviation.device).to(deviation)
        radius = (2.0 * torch.log(2.0 * (math.pi * number).square() / (6.0 * self.false_alarm_probability))).sqrt()
        noise = before.fresh.sqrt() if self.noise_scale is None else self.noise_scale
        return (radius if self.width is None else self.width(before.evidence)) * deviation + noise * radius


@dataclass(frozen=True)
class CumulatedTrigger(RestartTrigger):
    """Restart when residuals, none of which need be a surprise, are one together: for drift that is slow.

    It restarts once the martingale of ``Surprise`` is at least 1/δ: a bet that the standardised residuals since the
    last restart, or the last fit of the prior, are not N(0, 1). On a function that stays, a restart comes with
    probability at most δ from one restart to the next, by Ville's inequality: a CUSUM whose threshold is a probability.

    It finds changes below the noise, where ``ResidualTrigger`` sees none; a large jump may take it a few rounds more.

    Source: ours, after those that ``Surprise`` names, with the restarts of Brunzema et al., TMLR 2025.

    Assumes: what ``ResidualTrigger`` does without a width. A λ above the variance of the noise makes alarms later. Of
    what a batch rule holds back the end of each batch counts; no residual does before a learned prior was fitted.

    Args:
        false_alarm_probability: δ in (0, 1). A smaller one finds changes later: by ln(1/δ) over what a residual says.
    """

    false_alarm_probability: float = 0.01

    def __post_init__(self) -> None:
        checks.keep(self, false_alarm_probability=checks.open_unit_interval)

    def is_triggered(self, Y: Tensor, before: Prediction) -> bool:
        """Return whether the martingale is at least 1/δ once these rewards (q,) are in it."""
        residuals = standardized(Y, before.mean, before.variance, before.noise)
        after, _ = before.known.judged.misfit.after([(residuals, 0, True)])
        return after.log_evidence >= -math.log(self.false_alarm_probability)


class Choice(NamedTuple):
    """The memory of a block, and the probabilities that all of them had."""

    memory: Memory
    probabilities: tuple[float, ...]


class MemoryChoice(ABC):
    """Which of several memories to use in each block of rounds. A value without state.

    All that is known of a block once it is over is its summary, a function of the history. A late reward belongs to
    the block in which it is told.
    """

    memories: tuple[Memory, ...]  # what to choose from
    block_size: int  # H, rounds of a block; a round is a call of ``tell``
    #: Whether the choice may go with a trigger. A history does not say when there were restarts.
    allows_restarts: ClassVar[bool] = True
    #: Whether a prior is fitted to all rewards, as the memory in force may keep too few.
    fits_to_all: ClassVar[bool] = False
    #: Whether time is rounds, and no other is taken.
    counts_rounds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.keep(self, memories=_memories, block_size=checks.positive_integer)

    @abstractmethod
    def summaries(self, history: History, known: tuple[Any, ...], past: Past) -> tuple[Any, ...]:
        """Return the summaries of the complete blocks of a history that matter to the next choice, in order.

        Known is what this returned for an earlier part of it; ``past`` is what was known and could be played.
        """

    @abstractmethod
    def choice(self, summaries: tuple[Any, ...], seed: int) -> Choice:
        """Return the memory of the next block, from the summaries so far; the seed addresses draws, if any."""


@dataclass(frozen=True)
class BanditOverBandit(MemoryChoice):
    """EXP3 over blocks of rounds, whose gain is the mean reward of the block. Cost: O(N K) for N blocks, K memories.

    Source: Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity", AISTATS 2019, BOB, with EXP3 of
    Auer et al., 2002. Differs: any memories, not only windows, which share one history, so that what a block earns also
    depends on what was played before, for which the analysis of EXP3 does not allow. Gains are scaled by the least and
    the largest mean of a block so far, and rescaled whenever these change; the paper's rewards have known bounds, and
    no regret bound covers a scale that follows rewards.

    Args:
        memories: what to choose from.
        block_size: H, rounds of a block.
        exploration: γ in [0, 1], the share of blocks whose memory is drawn uniformly.
    """

    memories: tuple[Memory, ...]
    block_size: int
    exploration: float

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.keep(self, exploration=checks.unit_interval)

    def summaries(self, history: History, known: tuple[float, ...], past: Past) -> tuple[float, ...]:
        """Return the mean reward of each complete block, NaN of one without rewards. Cost: O(n)."""
        num_blocks = history.next_round // self.block_size
        blocks, Y = (history.rounds // self.block_size).cpu(), history.Y.double().cpu()
        complete = blocks < num_blocks
        counts = torch.bincount(blocks[complete], minlength=num_blocks)
        return tuple((torch.bincount(blocks[complete], Y[complete], minlength=num_blocks) / counts).tolist())

    def choice(self, summaries: Sequence[float], seed: int) -> Choice:
        """Return the memory of the next block: (1 − γ) e^(γ Ĝ_k / K) / Σ_j e^(γ Ĝ_j / K) + γ / K is its probability.

        Ĝ_k is the sum over the blocks of memory k of their gains over the probabilities p that it had then.
        """
        number, share = len(self.memories), self.exploration
        # Σ y/p and Σ 1/p over the blocks of each memory: with them gains can be rescaled whenever the range changes.
        paid, owed = np.zeros(number), np.zeros(number)
        low, high, chances, drawn = math.inf, -math.inf, np.ones(number), 0
        for block, mean in enumerate([*summaries, math.nan]):
            gains = (paid - low * owed) / (high - low) if high > low else np.zeros(number)
            chances = (1.0 - share) * softmax(share * gains / number) + share / number
            generator = generator_for(seed, block, "memory")
            uniform = float(torch.rand(1, generator=generator, dtype=torch.float64, device="cpu"))
            drawn = min(int((uniform >= chances.cumsum()).sum()), number - 1)
            if not math.isnan(mean):
                low, high = min(low, mean), max(high, mean)
                paid[drawn] += mean / chances[drawn]
                owed[drawn] += 1.0 / chances[drawn]
        return Choice(self.memories[drawn], tuple(chances.tolist()))


@dataclass(frozen=True)
class DynamicModelSelection(MemoryChoice):
    """The memory that predicted best of late: the largest sum of log predictive densities, older ones forgotten.

        S_k = Σ_b α^(rounds since b) Σ_{s in b} log N(y_s; μ_k(x_s), σ²_k(x_s) + λ)

    where μ_k and σ_k are of the posterior under memory k before block b. Every reward scores every memory, whichever
    chose its point. Cost of a block: the posterior under each memory; an exact one goes on from the last block.

    Source: Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010, of whose models the most probable is taken (dynamic model selection). Differs: the models differ
    in what they forget; a posterior predicts the rewards of a whole block, each on its own; blocks of which less than a
    thousandth is left are dropped. No regret bound is known.

    Args:
        memories: what to choose from. The last one is in force until the first block is over; of memories that
            predicted equally well the first is taken.
        block_size: H, rounds of a block.
        score_discount: α in (0, 1), Raftery's forgetting factor: what a score is multiplied by in a round.
    """

    memories: tuple[Memory, ...]
    block_size: int = 5
    score_discount: float = 0.95

    allows_restarts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.keep(self, score_discount=checks.open_unit_interval)

    @property
    def num_blocks(self) -> int:
        """How many blocks, the latest, the choice rests on."""
        return max(1, math.ceil(math.log(_LEAST) / (self.block_size * math.log(self.score_discount))))

    def summaries(
        self, history: History, known: tuple[tuple[int, Sequence[float]], ...], past: Past
    ) -> tuple[tuple[int, Sequence[float]], ...]:
        """Return the number of each of the latest complete blocks, and its log densities under each memory, in nats."""
        number, before = history.next_round // self.block_size, dict(known)
        blocks = range(max(0, number - self.num_blocks), number)
        return tuple((block, before.get(block) or self._scores(block, history, past)) for block in blocks)

    def choice(self, summaries: tuple[tuple[int, Sequence[float]], ...], seed: int) -> Choice:
        """Return the memory of the next block. Nothing is drawn."""
        if not summaries:
            return Choice(self.memories[-1], (1.0 / len(self.memories),) * len(self.memories))
        blocks, scores = (np.array(part) for part in zip(*summaries, strict=True))
        totals = self.score_discount ** (self.block_size * (blocks[-1] - blocks)) @ scores
        return Choice(self.memories[int(totals.argmax())], tuple(softmax(totals).tolist()))

    def _scores(self, block: int, history: History, past: Past) -> list[float]:
        """Return the log densities of a block, by the posteriors before it; 0 of one without rewards."""
        if history.told_at is None:
            raise InputError("Memories are compared in time, and this history has no times.")
        blocks, scores = history.rounds // self.block_size, list[float]()
        before, told = history.rows(blocks < block), history.rows(blocks == block)
        for memory in self.memories if len(told.Y) else ():
            surrogate = past.posterior_of(before, memory, float(cast(Tensor, told.told_at)[0]))
            mean, variance = (part.double() for part in surrogate.moments(told.X))
            variance = variance + told.noise_or(surrogate.regularization.double())
            terms = (told.Y.double() - mean).square() / variance + variance.log() + math.log(2.0 * math.pi)
            scores.append(-0.5 * float(terms.sum()))
        return scores or [0.0] * len(self.memories)


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
    come in blocks. So no regret bound is claimed. Time is rounds, without contexts. A prior that
    is learned is fitted to all rewards.

    Args:
        memories: one ``Restart``, of which period and origin are set.
        width: β.
        block_size: H, rounds of a block.
        false_alarm_probability: δ in (0, 1).
        exploration: in [0, 1], what probabilities of shorter instances are multiplied by; the paper's is 1.
    """

    memories: tuple[Memory, ...]
    width: Width
    block_size: int = 2
    false_alarm_probability: float = 0.1
    exploration: float = 1.0

    allows_restarts: ClassVar[bool] = False
    fits_to_all: ClassVar[bool] = True
    counts_rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.memories) != 1 or not hasattr(self.memories[0], "origin"):
            raise InputError("memories must be one Restart(...), of which period and origin are set.")
        checks.instance("width", self.width, Width, "a confidence width such as ConstantWidth(2.0)")
        checks.keep(self, false_alarm_probability=checks.open_unit_interval, exploration=checks.unit_interval)

    def summaries(
        self, history: History, known: tuple[tuple[float, ...], ...], past: Past
    ) -> tuple[tuple[float, ...], ...]:
        """Return of each block since a restart its number, that of the restart, N, and Σ y, Σ μ − β σ and f̃ over R."""
        found, blocks = list(known), history.rounds // self.block_size
        for block in range(int(found[-1][0]) + 1 if found else 0, history.next_round // self.block_size):
            start, told = self._start(found), history.rows(blocks == block)
            if told.told_at is not None and bool((told.told_at.cpu() != told.rounds.cpu()).any()):
                raise InputError("Restarts of several scales count rounds: leave out times.")
            memory = self._since(start, history.next_round)
            surrogate = past.posterior_of(history.rows(blocks < block), memory, float(block * self.block_size))
            beta, domain = self.width(surrogate), past.domain_at(float(block * self.block_size))
            best = surrogate.fantasized(told.X[:0]).choose(UpperConfidenceRule(), beta, 0, domain)
            mean, variance = surrogate.moments(told.X)
            sums = told.Y.sum(), (mean - beta * variance.clamp_min(0.0).sqrt()).sum(), best.score()
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
            share = self.exploration * 2.0 ** (0.5 * (order - phase))
            if float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu")) < share:
                return Choice(self._since(begins, 2**order), (1.0,))
        return Choice(self._since(start, 2 ** (phase + 1) - 1), (1.0,))

    def _since(self, block: int, number: int) -> Memory:
        """Return the memory of an instance of so many blocks."""
        period, origin = float(number * self.block_size), float(block * self.block_size)
        return replace(cast(Any, self.memories[0]), period=period, origin=origin)

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


def _memories(name: str, memories: Any) -> tuple[Memory, ...]:
    if not (found := checks.entries(name, memories)):
        raise InputError(f"{name} must be one or more memories, got none.")
    for number, memory in enumerate(found):
        checks.instance(f"{name}[{number}]", memory, Memory, "a memory such as SlidingWindow(500)")
    return found
