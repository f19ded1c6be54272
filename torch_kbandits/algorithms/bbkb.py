"""BBKB, batched BKB."""

import math
from typing import Literal, Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_candidates, resolve_dictionary, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.batches import GlobalBatchRule, LocalBatchRule
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import BKBWidth, ScaledWidth, Width
from torch_kbandits.dictionaries import Resampling, WhenFull
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class BBKB(Bandit):
    """Batched BKB: means and dictionary stay for a batch, whose size adapts; then the dictionary is resampled.

    Within a batch only variances change, by the points played. ``ask(q=None)`` returns the batch that the rule allows,
    which grows with what is known. Rewards told one by one are kept aside until the batch is complete.

    Source: Calandriello, Carratino, Lazaric, Valko and Rosasco, "Near-linear time Gaussian process optimization with
    adaptive batching and resparsification", ICML 2020. Differs: variances are the exact conditional given the points
    of a batch, so that what the dictionary does not span of them shrinks, too, where the paper's stays; the width is
    BKB's times √C, which makes up for the variance that a batch has lost; and what differs in ``BKB``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), or a ``Candidates``.
        bounds: a box (2, d) instead of arms.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds; only the theorem's oversampling needs it.
        oversampling: q̄ > 0, or "theory" for the theorem's, which keeps nearly every point.
        accuracy: ε in (0, 1), the accuracy of the dictionary.
        resampling: "fresh" as in the paper; "coupled" or "growth" for fewer changes of the dictionary, which the
            theorem does not cover: see ``RidgeLeverageSampling``.
        max_dictionary: the most points that the dictionary may have; None for no limit. The theorem knows no limit.
        when_full: what happens when more are wanted, "stop", "warn" or "raise": see ``CappedDictionary``.
        batch_threshold: C > 1, the factor by which variances may shrink in a batch; the larger, the longer the batches
            and the more regret.
        batch_rule: "global" sums leverage scores; "local" watches the variances themselves and allows longer batches.
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

    Cost on A arms: O(A m) a point, O(A m²) a batch; memory O(A m).
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
        oversampling: float | Literal["theory"] = 3.0,
        accuracy: float = 0.5,
        resampling: Resampling = "fresh",
        max_dictionary: int | None = None,
        when_full: WhenFull = "warn",
        batch_threshold: float = 1.2,
        batch_rule: Literal["global", "local"] = "global",
        memory: Memory | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        accuracy = checks.open_unit_interval("accuracy", accuracy)
        checks.one_of("batch_rule", batch_rule, ("global", "local"))
        batches = GlobalBatchRule(batch_threshold) if batch_rule == "global" else LocalBatchRule(batch_threshold)
        theory = theorem(BKBWidth, noise_scale, norm_bound, failure_probability, accuracy=accuracy)
        width = resolve_width(beta, theory, prior)
        super().__init__(
            candidates=resolve_candidates(candidates, bounds),
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
