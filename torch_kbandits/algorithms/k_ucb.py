"""K-UCB, kernel UCB with contexts."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import KUCBWidth, Width
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class KUCB(Bandit):
    """K-UCB, kernel UCB for contextual bandits: the exact posterior at joint points of context and action.

    CGP-UCB (Krause and Ong, NIPS 2011) differs in its width alone.

    Source: Zenati et al., "Efficient kernel UCB for contextual bandits", AISTATS 2022, Alg. 3. Differs: see
    ``KUCBWidth``; the first action is chosen as all others are, not drawn.

    Args:
        kernel: the prior covariance of joint points, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: actions (A, a), or a ``Candidates`` such as ``ContextualActions``.
        bounds: a box (2, a) of actions instead.
        context_dim: c, the number of context columns; without it there is no context, and candidates are arms.
        action_dim: a, where each round brings its own actions.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
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

    Cost of a round with A actions and u distinct points played: O(A u²); memory O(u²).
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        seed: int,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        theory = theorem(KUCBWidth, noise_scale, norm_bound, failure_probability)
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
