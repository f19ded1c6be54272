"""CBBKB, batched BKB with contexts."""

import math
from typing import Literal, Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_dictionary, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import GlobalBatchRule
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import BKBWidth, ScaledWidth, Width
from torch_kbandits.dictionaries import Resampling, WhenFull
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class CBBKB(Bandit):
    """CBBKB, contextual batched BKB: the dictionary is resampled from all joint points played, after each batch.

    Contexts differ from round to round, so what is kept up to date are the points played. A dictionary that is drawn
    afresh, as the paper's, looks at all of them after each batch; with resampling "growth" only the points that
    join it do. ``EKUCB`` offers each point once.

    Source: Calandriello et al., ICML 2020; the contextual variant is the baseline of Zenati et al., AISTATS 2022, App.
    F.1. Differs: what differs in ``BBKB``.

    Args:
        kernel: the prior covariance of joint points, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: actions (A, a), or a ``Candidates`` such as ``ContextualActions``.
        bounds: a box (2, a) of actions instead.
        context_dim: c, the number of context columns.
        action_dim: a, where each round brings its own actions.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds; only the theorem's oversampling needs it.
        oversampling: q̄ > 0, or "theory" for the theorem's, which keeps nearly every point.
        accuracy: ε in (0, 1), the accuracy of the dictionary.
        resampling: see ``BKB``.
        max_dictionary: the most points that the dictionary may have; None for no limit. The theorem knows no limit.
        when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
        batch_threshold: C > 1, the factor by which variances may shrink in a batch: it ends when 1 + Σ τ̃ of its points
            exceeds C. The paper tries 3, 10 and 30.
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

    Cost of a round with A actions and n points that count: O(A m²) and that of its pending points; of a batch
    O(m² + n m) for each reward and for each point that joins or leaves the dictionary, in all at most O(n m²), as where
    it is drawn afresh; memory O(n m).
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
        oversampling: float | Literal["theory"] = 3.0,
        accuracy: float = 0.5,
        resampling: Resampling = "fresh",
        max_dictionary: int | None = None,
        when_full: WhenFull = "warn",
        batch_threshold: float = 3.0,
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        accuracy = checks.open_unit_interval("accuracy", accuracy)
        batches = GlobalBatchRule(batch_threshold)
        theory = theorem(BKBWidth, noise_scale, norm_bound, failure_probability, accuracy=accuracy)
        width = resolve_width(beta, theory, prior)
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=resolve_dictionary(
                oversampling, failure_probability, horizon, accuracy, resampling, max_dictionary, when_full
            ),
            width=ScaledWidth(width, math.sqrt(batch_threshold)) if beta is None else width,
            acquisition=UpperConfidenceRule(),
            batches=batches,
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
