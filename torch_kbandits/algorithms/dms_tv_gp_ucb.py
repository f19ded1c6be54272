"""DMS-TV-GP-UCB, which chooses its rate of change by prediction."""

from collections.abc import Sequence
from typing import Literal, Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, refuse_memory, resolve_contextual, resolve_width
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import DynamicModelSelection
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.beliefs import are_few
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import TVGPUCBWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import BackToPrior, Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class DMSTVGPUCB(Bandit):
    """DMS-TV-GP-UCB: TV-GP-UCB with the rate of change under which the latest rewards were predicted best.

    It needs no rate of change. The prior is on space and time, of which each round replaces a share ε; every five
    rounds the ε of best predictions is taken, and the posterior computed under it. Unlike in ``DMSGPUCB``, whose
    observations grow noisy, the prior says how sure one may be of what was not looked at for long.

    Source: ours, from Bogunovic, Scarlett and Cevher, "Time-varying Gaussian process bandit optimization", AISTATS
    2016, and Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model averaging",
    Technometrics 2010; see ``BackToPrior`` and ``DynamicModelSelection``. No regret bound is known.

    Args:
        kernel: the prior covariance of a function at one time, any GPyTorch kernel, in reward units squared. Its scale
            and λ decide what a prediction is worth: fit them beforehand.
        regularization: λ > 0, the noise variance, in reward units squared.
        forgettings: what ε in [0, 1) may be, the share of the function that a round, or unit of time, replaces; from
            the largest to the least, which is in force first. Give others where times are not rounds.
        least_correlation: observations are dropped of which a memory has forgotten more, which bounds the cost of a
            round unless ε is 0; see ``BackToPrior``. None drops none. "auto" is None on at most 512 arms in double
            precision with an exact posterior, where the cost of a round is bounded anyway, and 1e-3 elsewhere.
        block_size: H, rounds between two choices.
        score_discount: α in (0, 1), the factor by which a score loses weight in a round.
        candidates: arms (A, d), with contexts actions (A, a), or any ``Candidates``; their points get the time as their
            first column, see ``Timed``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        memory: refused, with the reason: ``forgettings`` says what an observation counts for.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``; ``TVGPUCBWidth()``, as in
            ``TVGPUCB``, unless given.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: that of TV-GP-UCB. On at most 512 arms in double precision that is O(A²), for each ε. Elsewhere it
    is O(A n²) on A arms for n observations that count, and once a block the posterior under each ε, O(K n³).
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        seed: int,
        forgettings: Sequence[float] = (0.1, 0.03, 0.01, 0.003, 0.001),
        least_correlation: float | Literal["auto"] | None = "auto",
        block_size: int = 5,
        score_discount: float = 0.95,
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
        refuse_memory(memory, "forgettings")
        checks.instance("forgettings", forgettings, Sequence, "several shares ε, such as (0.1, 0.01)")
        space = resolve_contextual(candidates, bounds, context_dim, action_dim)
        if isinstance(least_correlation, str) and least_correlation == "auto":  # an array is compared number by number
            least_correlation = None if dictionary is None and are_few(space) else 1e-3
        memories = tuple(BackToPrior(forgetting, least_correlation) for forgetting in forgettings)
        super().__init__(
            memories=DynamicModelSelection(memories, block_size, score_discount),
            candidates=space,
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(TVGPUCBWidth() if beta is None else beta, None, prior),
            acquisition=UpperConfidenceRule(),
            seed=seed,
            **common(others),
        )
