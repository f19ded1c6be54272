"""LB-GP-UCB, length-scale balancing."""

import math
from collections.abc import Sequence
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_variants, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Memory
from torch_kbandits.priors import Prior, PriorMean, given_prior
from torch_kbandits.priors.families import Balancing, Family, shrinking_scales
from torch_kbandits.spaces import ParameterSpace

#: The round up to which length scales join.
_HORIZON = 10_000


class LBGPUCB(Bandit):
    """LB-GP-UCB, length-scale balancing: GP-UCB by length scales that play so that their regret bounds stay equal.

    Source: Ziomek, Adachi and Osborne, "Bayesian optimisation with unknown hyperparameters: regret bounds
    logarithmically closer to optimal", NeurIPS 2024. Differs: as ``Balancing``; the longest length scale is given, and
    not fitted to first points; Matérn kernels have the same steps e^(−1/d), where theirs are e^(−1/(d + 2ν));
    any kernels; contexts; and Nyström posteriors, if asked for.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Unless ``kernels`` are given
            its length scales are those of the first hypothesis: take long ones.
        regularization: λ > 0, the noise variance, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis; None for
            e^(−i/d), of which the first take part from the beginning, and each other once t^shrinkage reaches its
            e^(i/d).
        kernels: a kernel for each hypothesis instead of ``scales``.
        num_starting: how many of the default length scales take part from the beginning.
        shrinkage: p >= 0, by which the shortest length scale is T^(−p) of the longest after T rounds.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what is rejected.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds; without it length scales join up to round 10,000. Under a memory that
            forgets, and at λ < 1, the theorem's width holds in all of them at once; without it, in each.
        gain: the information gain γ in the width; by default the realised one under each hypothesis.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        dictionary: a rule for Nyström–DTC posteriors; None for exact ones.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one, a ``Prior``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: K times that of GP-UCB, for K hypotheses.
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
        scales: Sequence[float] | None = None,
        kernels: Sequence[Kernel] | None = None,
        num_starting: int = 5,
        shrinkage: float = 0.25,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        gain: InformationGain | None = None,
        memory: Memory | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        given = given_prior(prior, kernel, regularization, mean)
        theory = theorem_at(
            given.regularization,
            IGPUCBWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=memory,
        )
        where = resolve_contextual(candidates, bounds, context_dim, action_dim)
        num_starting = checks.size("num_starting", num_starting)
        shrinkage = checks.non_negative("shrinkage", shrinkage)
        dimension = where.example.shape[-1]
        number = dimension * shrinkage * math.log(_HORIZON if horizon is None else horizon)
        number = 1 + int(min(number, checks.LARGEST_SIZE))
        default = shrinking_scales(max(num_starting, number), dimension)
        first = num_starting if scales is None and kernels is None else None
        rule = Balancing(failure_probability, noise_scale, first, shrinkage, 1.0 / dimension)
        super().__init__(
            family=Family(resolve_variants(given.kernel, scales, kernels, default), rule),
            candidates=where,
            prior=given,
            dictionary=dictionary,
            width=resolve_width(beta, theory, given),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
