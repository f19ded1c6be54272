"""BOB-GP-UCB, a bandit that chooses the window of another."""

import math
from collections.abc import Sequence
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, refuse_memory, resolve_contextual, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import BanditOverBandit, block_windows, default_memories, exploration_rate
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory, SlidingWindow
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class BOBGPUCB(Bandit):
    """BOB-GP-UCB, bandit over bandit: SW-GP-UCB whose window is learned from what windows earned, block by block.

    It needs no rate of change.

    Source: Cheung, Simchi-Levi and Zhu, "Learning to optimize under non-stationarity", AISTATS 2019, for linear
    bandits, with the posterior and the window of SW-GP-UCB (Zhou and Shroff, CISS 2021). Differs: see
    ``BanditOverBandit``; the length of a block is ⌈√T⌉ where theirs grows with the dimension as well; the default
    windows. ``shares_history=False`` and ``reward_bounds`` have the original but for the scale of the rewards.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        horizon: T, the planned number of rounds: for the block size, the default windows and the share of exploration.
            At λ < 1 the theorem's width holds in all of them at once.
        windows: w of each SW-GP-UCB, in observations, infinite for one that keeps all; or memories of any kind. None
            for ``default_memories``, or ``block_windows`` where blocks share no history.
        block_size: H, rounds of a block; None for ⌈√T⌉.
        exploration: γ in [0, 1], the share of blocks whose window is drawn uniformly; None for the theorem's.
        reward_bounds: the least and the largest mean reward of a block; None for those so far.
        shares_history: whether a block goes on with what was told before it. False forgets all at its start.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ in (0, 1).
        gain: the information gain γ in the width; by default the realised one of the observations that count.
        memory: refused, with the reason: ``windows`` says what an observation counts for.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: as SW-GP-UCB with the window in force, and once a block O(u³) to change it.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        horizon: int,
        seed: int,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        windows: Sequence[float | Memory] | None = None,
        block_size: int | None = None,
        exploration: float | None = None,
        reward_bounds: tuple[float, float] | None = None,
        shares_history: bool = True,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        gain: InformationGain | None = None,
        memory: Memory | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        refuse_memory(memory, "windows")
        theory = theorem_at(
            prior.regularization,
            IGPUCBWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=True,
        )
        horizon = checks.positive_integer("horizon", horizon)
        shares_history = checks.flag("shares_history", shares_history)
        if block_size is None:
            block_size = math.ceil(math.sqrt(horizon))
        if windows is None:
            memories = default_memories(block_size, horizon) if shares_history else block_windows(block_size)
        else:
            memories = _memories(windows)
        if exploration is None:
            exploration = exploration_rate(
                len(memories), -(-horizon // checks.positive_integer("block_size", block_size))
            )
        super().__init__(
            memories=BanditOverBandit(memories, block_size, exploration, reward_bounds, shares_history),
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            theory=theory,
            seed=seed,
            **common(others),
        )


def _memories(windows: Sequence[float | Memory]) -> tuple[Memory, ...]:
    if isinstance(windows, str) or not isinstance(windows, Sequence) or not windows:
        raise InputError(f"windows must be a list of one or more windows, got {checks.describe(windows)}.")
    return tuple(window if isinstance(window, Memory) else SlidingWindow(window, "observations") for window in windows)
