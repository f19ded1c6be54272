"""UI-GP-UCB, noise that grows with age."""

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
    theorem,
)
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import MemoryWidth, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Growth, Linear, Memory, UncertaintyInjection
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class UIGPUCB(Bandit):
    """UI-GP-UCB, GP-UCB with uncertainty injection: the noise variance of an observation grows with its age.

    Source: Mauduit et al., 2025, section 2.1 and Eq. (10); the name is that of Brunzema, von Rohr and Trimpe, "On
    controller tuning with time-varying Bayesian optimization", CDC 2022. Differs from the latter: theirs is a Wiener
    process as the prior on time, whose variance grows without end (``TVGPUCB`` with a ``WienerKernel``). Differs from
    both: the width, which neither states, see ``MemoryWidth``. Differs from the former: a point is chosen with ages of
    the round in which it is played, so the latest reward has age 1, where theirs has 0.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, the noise variance of a fresh observation, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        growth: ``Linear(rate)``, ``Quadratic(rate)`` or ``Exponential(discount)``, or the rate of a linear growth in
            reward units squared per round, or unit of time.
        max_variance: observations of a larger variance are dropped, which bounds the cost of a round.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds: the theorem's width holds in all of them at once. Without it, in each.
        memory: refused, with the reason: ``growth`` says what an observation counts for.
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
        growth: Growth | float,
        max_variance: float | None = None,
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
        refuse_memory(memory, "growth")
        theory = theorem(MemoryWidth, noise_scale, norm_bound, failure_probability, num_bounds=planned(horizon))
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=UncertaintyInjection(growth if isinstance(growth, Growth) else Linear(growth), max_variance),
            theory=theory,
            seed=seed,
            **common(others),
        )
