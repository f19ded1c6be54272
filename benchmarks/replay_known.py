"""What the part of a replay that is known says of the other: profile, kernel, λ and the number of a memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, ScaleKernel
from torch import Tensor

from benchmarks.replay_data import Replay, Rounds
from torch_kbandits import LearnedPrior, Prior
from torch_kbandits.candidates import Arms, Candidates, ContextualActions
from torch_kbandits.kernels import PrecomputedKernel
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors.marginal import TrainingData
from torch_kbandits.priors.units import column_spans

#: Hours of a day, or months of a year, that are alike: the share of the circle over which e^(−1/2) is reached.
_PHASES_ALIKE = 0.5


class Known:
    """What the part of a replay that is known says before the other is played.

    The profile is the mean reward of each arm, in each phase. How far one is from the next, and how fast that changes,
    only later rewards can tell: kernel, λ and the number of a memory are fitted to the log of the second half, under
    the profile of the first. The log is one reward a round, of an arm drawn at random. Of contexts the profile is a
    ridge regression for each arm.
    """

    def __init__(self, replay: Replay) -> None:
        self.replay, train = replay, replay.train
        self.half, number = len(train.rewards) // 2, len(replay.arms)
        self.phases = int(torch.cat([train.phases, replay.play.phases]).max()) + 1 if replay.kind == "phases" else 1
        self.profile, self.first = (_profile(rounds, self.phases) for rounds in (train, train.rows(slice(self.half))))
        played = torch.randint(number, (len(train.rewards),), generator=generator_for(replay.seed, 0, "log"))
        self.contexts, self.X = train.contexts, replay.arms[played]
        self.played, self.Y = played, train.rewards.gather(1, played.unsqueeze(-1)).squeeze(-1)
        self.fitted = cache(self._fitted)

    def candidates(self) -> Candidates:
        """Return the arms, or what may be done in each context."""
        if self.replay.kind == "arms":
            return Arms(self.replay.arms)
        return ContextualActions(self.replay.arms, context_dim=self.contexts.shape[1])

    def kernel(self, alone: bool = False) -> Kernel | None:
        """Return the kernel to fit, None for the default one of what arms are; ``alone`` positions share nothing."""
        if self.replay.kind == "contexts":
            return _of_contexts(self.contexts.shape[1], len(self.replay.arms))
        if self.replay.arms.shape[1] > 1:
            return None
        column, eye = (self.contexts.shape[1],), torch.eye(len(self.replay.arms), dtype=torch.float64)
        own = ScaleKernel(PrecomputedKernel(eye, active_dims=column)).double()
        if alone:
            return own
        rest = self.replay.train.rewards - self.profile[self.replay.train.phases]
        together = PrecomputedKernel(rest.mT.cov() / rest.var(0).mean(), active_dims=column)
        return ScaleKernel(together).double() + own

    def kernel_of_levels(self) -> Kernel | None:
        """Return the same where no profile is known: that phases differ for all arms alike is for the kernel to say."""
        kernel = self.kernel()
        if self.replay.kind != "phases" or kernel is None:
            return kernel
        turns = torch.arange(self.phases, dtype=torch.float64) / self.phases
        angles = torch.pi * (turns - turns.unsqueeze(-1))
        alike = (-2.0 * (angles.sin() / _PHASES_ALIKE).square()).exp()
        return kernel + ScaleKernel(PrecomputedKernel(alike, active_dims=(0,))).double()

    def mean(self) -> Tensor | Callable[[Tensor], Tensor]:
        """Return the profile as a prior mean."""
        if self.replay.kind == "contexts":
            return ridge(self.replay.train)
        if self.replay.kind == "phases":
            return lambda points: self.profile[points[..., 0].long(), points[..., 1].long()]
        return self.profile[0]

    def _fitted(self, memory: Memory | None = None, alone: bool = False) -> tuple[Prior, Memory | None]:
        """Return kernel and λ, and the memory with its number, that are fitted to the second half."""
        half, phases = self.half, self.replay.train.phases
        X = torch.cat([self.contexts, self.X], dim=-1)[half:]
        times = torch.arange(half, half + len(X), dtype=torch.float64)
        knows_time = memory is not None and memory.needs_time_column
        learned = LearnedPrior(self.kernel(alone), mean=0.0, learn_memory=memory is not None)
        points = torch.cat([times.unsqueeze(-1), X], dim=-1) if knows_time else X
        told = TrainingData(points, self.Y[half:], None if memory is None else times, float(times[-1]))
        words: dict[str, Any] = {
            "first": self.Y[half : half + 10],
            "expected": self.first[phases[half:], self.played[half:]],
        }
        prior, memory, *_ = learned.fitted(told, column_spans(X), memory=memory, seed=self.replay.seed, **words)
        return replace(prior, mean=self.mean()), memory


def _profile(rounds: Rounds, number: int) -> Tensor:
    """Return the mean rewards of each phase, (phases, A), as those of all rounds where there is none of a phase."""
    there = [rounds.rewards[rounds.phases == phase] for phase in range(number)]
    return torch.stack([(rewards if len(rewards) else rounds.rewards).mean(0) for rewards in there])


def ridge(rounds: Rounds) -> Callable[[Tensor], Tensor]:
    """Return the prior mean of a ridge regression for each arm, λ = 1, on contexts whose columns have variance 1."""
    level, features = rounds.rewards.mean(0), rounds.contexts
    gram = features.mT @ features + torch.eye(features.shape[1], dtype=torch.float64)
    slopes = torch.linalg.solve(gram, features.mT @ (rounds.rewards - level))

    def mean(points: Tensor) -> Tensor:
        contexts, arms = points.split([len(slopes), len(level)], dim=-1)
        return ((level + contexts @ slopes) * arms).sum(-1)

    return mean


def _of_contexts(context_dim: int, number: int) -> Kernel:
    """Return the kernel of a level for each arm, a function of contexts for all, and one for each."""
    contexts, arms = tuple(range(context_dim)), tuple(range(context_dim, context_dim + number))

    def of_arms() -> Kernel:
        kernel = LinearKernel(active_dims=arms).double()
        kernel.variance = torch.tensor(1.0, dtype=torch.float64)
        return kernel.requires_grad_(False)

    def of_all() -> Kernel:
        kernel = MaternKernel(nu=2.5, active_dims=contexts).double()
        kernel.lengthscale = torch.tensor(context_dim**0.5, dtype=torch.float64)
        return kernel

    each = ScaleKernel(of_all() * of_arms())
    return (ScaleKernel(of_arms()) + ScaleKernel(of_all()) + each).double()
