"""GP-PI, a baseline."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import ProbabilityOfImprovementRule
from torch_kbandits.algorithms.arguments import common, resolve_candidates
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class GPPI(Bandit):
    """GP-PI: probability of improving on the best posterior mean so far; a baseline without a regret bound.

    Source: Kushner, 1964; BoTorch's ``LogProbabilityOfImprovement``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        margin: improvements count above this many units of reward; at 0 the best point so far would be played for ever.
            Unless given it is 0.01 of the largest prior deviation, of an arm or, without arms, of a point played; so
            units of rewards do not matter.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round on A arms with u distinct ones played: O(A u); memory O(A u). On a box O(u²) and the search.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        seed: int,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        margin: float | None = None,
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
            prior=prior,
            acquisition=ProbabilityOfImprovementRule(margin),
            memory=memory,
            seed=seed,
            **common(others),
        )
