"""SupKernelUCB, stages of independent rewards."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import StagedRule
from torch_kbandits.algorithms.arguments import check_theory, common, resolve_contextual, resolve_width, theorem
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Arms, Candidates
from torch_kbandits.candidates.timed import untimed
from torch_kbandits.confidence import FixedDesignWidth, Width
from torch_kbandits.errors import InputError
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class SupKernelUCB(Bandit):
    """SupKernelUCB: K-UCB in stages that learn from disjoint sets of rounds, for a regret of order √(T d_eff ln A).

    The stage in which a point was chosen is remembered until it is told. What is told without having been asked for,
    or was chosen by its upper bound, enters no stage: it serves ``model`` and ``recommend`` and no choice.

    Source: Valko, Korda, Munos, Flaounas and Cristianini, "Finite-time analysis of kernelised contextual bandits", UAI
    2013. Differs: see ``StagedRule`` and ``FixedDesignWidth``; several points may be pending.

    Args:
        kernel: the prior covariance of joint points, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: actions (A, a), or a ``Candidates`` such as ``ContextualActions`` without bounds; arms may be in
            files or blocks.
        bounds: refused, with a hint: the stages go through a finite set.
        context_dim: c, the number of context columns; without it there is no context, and candidates are arms.
        action_dim: a, where each round brings its own actions.
        num_actions: where each round brings its own actions, the most that one brings; the theorem's width needs it.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds. It sets the widths at which stages decide: a reward is explored until
            its error is below 1/√T, in reward units.
        memory: which observations count at a time in all stages, where the function changes, such as
            ``SlidingWindow(500)`` or ``Discount(0.99)``. The theorem is for a function that stays.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: for each of the S = ⌈½ log₂ T⌉ stages that of K-UCB with the points of that stage, O(S A u²) with A
    actions and u distinct points in the largest; and K-UCB's for a reward. Memory: S + 1 times that of K-UCB at most.
    """

    def __init__(
        self,
        *,
        kernel: Kernel | None = None,
        regularization: float | None = None,
        horizon: int,
        seed: int,
        candidates: Tensor | Candidates | ParameterSpace | None = None,
        bounds: Tensor | None = None,
        context_dim: int | None = None,
        action_dim: int | None = None,
        num_actions: int | None = None,
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
        check_theory(noise_scale, norm_bound, failure_probability)
        rule = StagedRule(horizon)
        actions = _finite(resolve_contextual(candidates, bounds, context_dim, action_dim))
        most, theory = _most(actions, num_actions), None
        if most is not None:
            num_bounds = horizon * rule.num_stages * most
            theory = theorem(FixedDesignWidth, noise_scale, norm_bound, failure_probability, num_bounds=num_bounds)
        needed = "noise_scale and norm_bound, and num_actions where each round brings its own actions"
        super().__init__(
            candidates=actions,
            prior=prior,
            width=resolve_width(beta, theory, prior, needed),
            acquisition=rule,
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )


def _finite(candidates: Candidates) -> Candidates:
    """Return candidates of which there are finitely many."""
    if not untimed(candidates).is_finite:
        raise InputError(
            "SupKernelUCB looks at all actions one by one: give a finite set, candidates (A, a), or action_dim where "
            "each round brings its own. On a box use KUCB or EKUCB, or a grid."
        )
    return candidates


def _most(candidates: Candidates, num_actions: int | None) -> int | None:
    """Return the most actions of a round, None where it is not known."""
    actions = untimed(candidates)
    known = actions.source if isinstance(actions, Arms) else getattr(actions, "set", None)
    if num_actions is None:
        return None if known is None else len(known)
    if known is not None:
        raise InputError(f"Leave out num_actions: there are always {len(known)} actions.")
    return checks.positive_integer("num_actions", num_actions)
