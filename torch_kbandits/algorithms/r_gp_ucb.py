"""R-GP-UCB, restarts in regular intervals."""

import math
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import (
    common,
    planned,
    refuse_memory,
    resolve_contextual,
    resolve_width,
    rounds_to_remember,
    theorem_at,
)
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width, restart_period
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Memory, Restart
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class RGPUCB(Bandit):
    """R-GP-UCB: GP-UCB that forgets everything in regular intervals and starts anew.

    Source: Bogunovic, Scarlett and Cevher, AISTATS 2016; the period of Zhou and Shroff, CISS 2021, Theorem 1. Differs:
    after a restart the variance is the prior's ("σ₀ = 0" in the latter is a slip). At λ >= 1 the default width is
    IGP-UCB's, as in their algorithm; below, where that has no proof, it is that of their proof, ``MemoryWidth``, with
    one bound for each period where the horizon is given, and else one.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance of a fresh observation, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        period: H: rounds between two restarts, or units of time. None for the theorem's, which needs the horizon.
        variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known; only for its H.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds, which the theorem's H needs. At λ < 1 the theorem's width holds in all
            periods at once; without it, in each.
        gain: the information gain γ in the width; by default the realised one of the observations that count.
        memory: refused, with the reason: ``period`` says what an observation counts for.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round with u distinct points that count: O(A u²) on A arms, O(u²) to learn and to forget.
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
        period: float | None = None,
        variation_budget: float | None = None,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        gain: InformationGain | None = None,
        memory: Memory | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        refuse_memory(memory, "period")
        space = resolve_contextual(candidates, bounds, context_dim, action_dim)
        if period is None:
            period = rounds_to_remember("period", restart_period, horizon, variation_budget, prior, space)
        horizon, restarts = planned(horizon), Restart(period)
        blocks = None if horizon is None else math.ceil(horizon / restarts.period)
        theory = theorem_at(
            prior.regularization,
            IGPUCBWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=True,
            num_bounds=blocks,
        )
        super().__init__(
            candidates=space,
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=restarts,
            theory=theory,
            seed=seed,
            **common(others),
        )
