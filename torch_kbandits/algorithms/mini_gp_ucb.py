"""mini-GP-UCB, which plays a candidate many times in a row."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_candidates, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import StayRule
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import InformationGain, SelfNormalizedWidth, Width
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class MiniGPUCB(Bandit):
    """mini-GP-UCB: GP-UCB that stays with a candidate until its variance has shrunk by a factor C.

    The posterior is exact and costs what the few distinct candidates cost; switching is rare. ``ask(q=None)`` returns
    all the plays of a candidate.

    Source: Calandriello, Carratino, Lazaric, Valko and Rosasco, "Scaling Gaussian process optimization by evaluating a
    few unique candidates multiple times", ICML 2022. Differs: the width is the self-normalised one, which holds for
    every λ; rewards told while the bandit stays count when it moves on, as in the paper's batched form.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        gain: the information gain γ in the width; by default the realised one.
        batch_threshold: C > 1, the factor by which the variance of a candidate shrinks before another is chosen, as in
            BBKB; the paper's C is one of the standard deviation, the square root of this.
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
        gain: InformationGain | None = None,
        batch_threshold: float = 4.0,
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        theory = theorem(SelfNormalizedWidth, noise_scale, norm_bound, failure_probability, gain=gain)
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
            prior=prior,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            batches=StayRule(batch_threshold),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
