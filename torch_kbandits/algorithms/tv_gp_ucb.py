"""TV-GP-UCB, a prior on time."""

from dataclasses import replace
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_width
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.candidates.timed import timed
from torch_kbandits.confidence import TVGPUCBWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import BackToPrior, Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class TVGPUCB(Bandit):
    """TV-GP-UCB, time-varying GP-UCB: a prior on space and time, whose function is replaced bit by bit.

    The kernel at points x at time t and x' at time t' is k(x, x') (1 − ε)^(|t − t'| / 2). Points are joint ones, the
    time in the first column, so ``bandit.model`` is a model of space and time for a BoTorch loop of your own.

    Source: Bogunovic, Scarlett and Cevher, "Time-varying Gaussian process bandit optimization", AISTATS 2016. Differs:
    times need not be rounds.

    Args:
        kernel: the prior covariance of a function at one time, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance, in reward units squared.
        forgetting: ε in [0, 1), the share of the function that a round, or unit of time, replaces.
        time_kernel: a kernel on one column, the time, in place of the forgetting one.
        candidates: arms (A, d), with contexts actions (A, a), or any ``Candidates``; their points get the time as their
            first column, see ``Timed``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        memory: drops or ages observations as well, which bounds the cost of a round.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``; ``TVGPUCBWidth()``, that
            of the paper's experiments, unless given. On A arms ``BayesianGPUCBWidth`` has the theorem.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: O(A²) on A arms, at most 512 in double precision, with an exact posterior, without a memory and
    with no other kernel on time. Elsewhere O(A t²) in round t and O(t²) to learn, since no two points of different
    rounds are equal.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        seed: int,
        forgetting: float = 0.01,
        time_kernel: Kernel | None = None,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        memory: Memory | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        space = resolve_contextual(candidates, bounds, context_dim, action_dim)
        if isinstance(prior, Prior):
            in_time = ForgettingKernel(forgetting) if time_kernel is None else time_kernel
            space, prior = timed(space), replace(prior, kernel=SpaceTimeKernel(prior.kernel, in_time))
        elif time_kernel is not None or memory is not None:
            raise InputError("A LearnedPrior is one at any time: leave out time_kernel and memory, or give a Prior.")
        else:
            memory = BackToPrior(forgetting)
        super().__init__(
            candidates=space,
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(TVGPUCBWidth() if beta is None else beta, None, prior),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            seed=seed,
            **common(others),
        )
