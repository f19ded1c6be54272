"""W-GP-UCB, discounted rewards."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import (
    common,
    planned,
    refuse_memory,
    resolve_contextual,
    resolve_width,
    rounds_to_remember,
    theorem,
)
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import MemoryWidth, Width, window_size
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Discount, Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class WGPUCB(Bandit):
    """W-GP-UCB, weighted GP-UCB: an observation counts less with every round, by a constant factor.

    Source: Deng, Zhou, Kim, Tewari, Gupta and Shroff, "Weighted Gaussian process bandits for non-stationary
    environments", AISTATS 2022, as written in Mauduit et al., 2025, Eq. (9). Differs: see ``MemoryWidth``, which needs
    nothing but the posterior instead of a second, doubly weighted variance. A point is chosen with ages of the round in
    which it is played, so the latest reward has age 1, where theirs has 0. The discount of a horizon is ours: it
    remembers as long as SW-GP-UCB's window.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance of a fresh observation, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        discount: η, above 0 and at most 1: the factor by which a weight falls in a round, or unit of time. None for
            e^(−1/w), w being ``window_size`` of the horizon: weights e^(−age/w) sum to w.
        variation_budget: P_T, a bound on Σ ‖f_(t+1) − f_t‖_k over the horizon, if known; only for that w.
        least_weight: observations of a smaller weight are dropped, which bounds the cost of a round.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds: the theorem's width holds in all of them at once. Without it, in each.
            A discount of None needs it, too.
        memory: refused, with the reason: ``discount`` says what an observation counts for.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round with u distinct points that count: O(u³ + A u²) on A arms.
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
        discount: float | None = 0.99,
        variation_budget: float | None = None,
        least_weight: float | None = 1e-6,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        memory: Memory | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        refuse_memory(memory, "discount")
        theory = theorem(MemoryWidth, noise_scale, norm_bound, failure_probability, num_bounds=planned(horizon))
        checks.optional(checks.non_negative)("variation_budget", variation_budget)
        space = resolve_contextual(candidates, bounds, context_dim, action_dim)
        forgetting = Discount(1.0 if discount is None else discount, least_weight)
        if discount is None:
            window = rounds_to_remember("discount", window_size, horizon, variation_budget, prior, space)
            forgetting = forgetting.with_horizon(window)
        super().__init__(
            candidates=space,
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=forgetting,
            theory=theory,
            seed=seed,
            **common(others),
        )
