"""IGP-UCB, improved GP-UCB."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_candidates, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class IGPUCB(Bandit):
    """IGP-UCB, improved GP-UCB: the exact posterior and a width with one logarithm fewer.

    Source: Chowdhury and Gopalan, "On kernelized multi-armed bandits", ICML 2017, Algorithm 1. The theorem takes
    λ = 1 + 2/T, and any λ of at least 1 will do. Differs: below 1, where its proof fails, the width is
    ``SelfNormalizedWidth``, or ``MemoryWidth`` under a memory that forgets; ``beta=IGPUCBWidth(...)`` is its own there.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds. Under a memory that forgets, and at λ < 1, the theorem's width holds
            in all of them at once; without it, in each.
        gain: the information gain γ in the width; by default the realised one.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
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
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        memory: Memory | None = None,
        gain: InformationGain | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        theory = theorem_at(
            prior.regularization,
            IGPUCBWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=memory,
        )
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
            prior=prior,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
