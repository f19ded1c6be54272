"""GP-TS, Thompson sampling."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import GPTSWidth, InformationGain, Width
from torch_kbandits.dictionaries import KORS
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class GPTS(Bandit):
    """GP-TS, Gaussian-process Thompson sampling: play the maximiser of a draw from N(μ, v² cov).

    Source: Chowdhury and Gopalan, "On kernelized multi-armed bandits", ICML 2017, Algorithm 2, where v is the width
    here. Differs: on a box the draw is made on a Sobol set of fixed size, see ``theoretical_discretization_size``;
    beyond 2,000 distinct arms, and on arms in files and blocks, the prior part of a draw is approximated, see
    ``prior_draws`` and ``WavePrior``; contexts; a Nyström posterior in place of the exact one, if asked for. At λ < 1,
    where the proof fails, v is ``SelfNormalizedWidth`` at δ/2, or ``MemoryWidth`` under a memory that forgets;
    ``beta=GPTSWidth(...)`` is its own there.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared.
        regularization: λ > 0, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds. Under a memory that forgets, and at λ < 1, the theorem's width holds
            in all of them at once; without it, in each.
        oversampling: γ > 0, KORS's budget, for a Nyström posterior whose cost does not grow with the rounds; None for
            the exact one. No theorem here covers draws from the Nyström posterior.
        gain: the information gain γ in the width; by default the realised one.
        discretization_size: points of the Sobol set on a box.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round on A arms with u distinct ones played: O(A u + A²) up to 2,000 arms, O(A (u + d)) beyond; memory
    the same. On a box with N points in its Sobol set: O(u² + N³). With contexts O(A u² + A³), and with a dictionary of
    m points O(A m² + A³).
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
        oversampling: float | None = None,
        memory: Memory | None = None,
        gain: InformationGain | None = None,
        discretization_size: int = 1024,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
        theory = theorem_at(
            prior.regularization,
            GPTSWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=memory,
        )
        super().__init__(
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=None if oversampling is None else KORS(oversampling),
            width=resolve_width(beta, theory, prior),
            acquisition=ThompsonRule(discretization_size),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
