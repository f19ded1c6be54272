"""TV-GP-UCB, a prior on time."""

from dataclasses import replace
from typing import Unpack

from gpytorch.kernels import Kernel

from torch_kbandits.algorithms.arguments import Arguments, WidthWords, described
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates.timed import timed
from torch_kbandits.confidence import TVGPUCBWidth
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError
from torch_kbandits.kernels import ForgettingKernel, SpaceTimeKernel
from torch_kbandits.memory import TemporalPrior
from torch_kbandits.priors import Prior


@described
class TVGPUCB(Bandit):
    """TV-GP-UCB, time-varying GP-UCB: a prior on space and time, whose function is replaced bit by bit.

    The kernel at points x at time t and x' at time t' is k(x, x') (1 − ε)^(|t − t'| / 2). Points are joint ones, the
    time in the first column, so ``bandit.model`` is a model of space and time for a BoTorch loop of your own.

    Source: Bogunovic, Scarlett and Cevher, "Time-varying Gaussian process bandit optimization", AISTATS 2016. Differs:
    times need not be rounds.

    Args:
        kernel: the prior covariance of a function at one time, any GPyTorch kernel, in reward units squared.
        forgetting: ε in [0, 1), the share of the function that a round, or unit of time, replaces.
        time_kernel: a kernel on one column, the time, in place of the forgetting one.
        candidates: arms (A, d), with contexts actions (A, a), or any ``Candidates``; their points get the time as their
            first column, see ``Timed``.
        memory: drops or ages observations as well, which bounds the cost of a round.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``; ``TVGPUCBWidth()``, that
            of the paper's experiments, unless given. On A arms ``BayesianGPUCBWidth`` has the theorem.
        **words: see ``WidthWords``.

    Cost of a round: O(A²) on A arms, at most 512 in double precision, with an exact posterior, without a memory and
    with no other kernel on time. Elsewhere O(A t²) in round t and O(t²) to learn, since no two points of different
    rounds are equal.
    """

    def __init__(
        self,
        *,
        forgetting: float = 0.01,
        time_kernel: Kernel | None = None,
        dictionary: DictionaryRule | None = None,
        **words: Unpack[WidthWords],
    ) -> None:
        given = Arguments(WidthWords, words)
        prior, space, memory = given.prior, given.candidates, given.words["memory"]
        if isinstance(prior, Prior):
            in_time = ForgettingKernel(forgetting) if time_kernel is None else time_kernel
            space, prior = timed(space), replace(prior, kernel=SpaceTimeKernel(prior.kernel, in_time))
        elif time_kernel is not None or memory is not None:
            raise InputError("A LearnedPrior is one at any time: leave out time_kernel and memory, or give a Prior.")
        else:
            memory = TemporalPrior(forgetting)
        width = given.width(TVGPUCBWidth())
        super().__init__(
            **given.pieces(candidates=space, prior=prior, memory=memory, dictionary=dictionary, width=width)
        )
