"""EK-UCB, kernel UCB on a dictionary that grows."""

import math
from typing import Literal, Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import capped, common, resolve_contextual, resolve_kors, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import EKUCBWidth, ScaledWidth, Width
from torch_kbandits.dictionaries import WhenFull
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class EKUCB(Bandit):
    """EK-UCB, efficient kernel UCB: K-UCB at the cost of a dictionary that KORS grows, incremental throughout.

    A round costs the same however many were played, except where a point joins the dictionary.

    Source: Zenati, Bietti, Diemert, Mairal, Martin and Gaillard, "Efficient kernel UCB for contextual bandits",
    AISTATS 2022, Alg. 2. Differs: see ``KORS`` and ``EKUCBWidth``; the first action is chosen as all others are, not
    drawn; batches, which the paper leaves to future work; several points may be pending, given which variances are
    conditional also where the dictionary does not span.

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
        horizon: T, the planned number of rounds; only the theorem's oversampling needs it.
        oversampling: γ > 0, KORS's budget, or "theory" for the theorem's, which keeps nearly every point.
        projection: μ > 0, the scale below which KORS drops directions, in reward units squared; λ unless given, which
            balances regret and time: a larger one is faster and regrets more.
        max_dictionary: the most points that the dictionary may have; None for no limit. The theorem knows no limit.
        when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: means and dictionary stay, as in
            BBKB, until 1 + Σ τ̃ of its points exceeds C; the theorem's width is then √C times wider. None: rewards are
            learned at once.
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

    Cost of a round with A actions: O(A m²), and O(n m) when a point joins; memory O(n m).
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
        horizon: int | None = None,
        oversampling: float | Literal["theory"] = 1.0,
        projection: float | None = None,
        memory: Memory | None = None,
        max_dictionary: int | None = None,
        when_full: WhenFull = "warn",
        batch_threshold: float | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        rule = resolve_kors(oversampling, projection, failure_probability, horizon)
        theory = theorem(EKUCBWidth, noise_scale, norm_bound, failure_probability, projection=projection)
        width = resolve_width(beta, theory, prior)
        batches = None if batch_threshold is None else GlobalBatchRule(batch_threshold)
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=capped(rule, max_dictionary, when_full),
            width=width if batches is None or beta is not None else ScaledWidth(width, math.sqrt(batches.threshold)),
            acquisition=UpperConfidenceRule(),
            batches=batches,
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
