"""GP-UCB."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import check_theory, common, resolve_candidates, resolve_width
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import GPUCBWidth, InformationGain, RealizedGain, Width
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class GPUCB(Bandit):
    """GP-UCB: the exact posterior and the width of Srinivas et al. for functions in an RKHS.

    Source: Srinivas, Krause, Kakade and Seeger, "Gaussian process optimization in the bandit setting: no regret and
    experimental design", ICML 2010, Theorem 3. For the Bayesian width on finitely many arms give
    ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``. Differs: repeated plays are merged, which changes no
    number.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        noise_scale: R > 0, only for ``guarantee``: the theorem takes noise bounded by √λ.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: the information gain γ in the width; by default the realised one.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then B is not needed.
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
        gain: InformationGain | None = None,
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        check_theory(noise_scale, norm_bound, failure_probability)
        gain = RealizedGain() if gain is None else gain
        theory = None if norm_bound is None else GPUCBWidth(norm_bound, failure_probability, gain)
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
            prior=prior,
            width=resolve_width(beta, theory, prior, needed="norm_bound"),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            theory=theory,
            noise_scale=noise_scale,
            seed=seed,
            **common(others),
        )
