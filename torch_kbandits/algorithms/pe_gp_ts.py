"""PE-GP-TS, Thompson sampling that drops priors which the rewards contradict."""

from collections.abc import Sequence
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import ThompsonRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_variants, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import GPTSWidth, InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Memory
from torch_kbandits.priors import Prior, PriorMean, given_prior
from torch_kbandits.priors.families import Elimination, Family
from torch_kbandits.spaces import ParameterSpace


class PEGPTS(Bandit):
    """PE-GP-TS, prior elimination: play the highest maximum of draws from all priors that no rewards contradict.

    Source: Sandberg and Chehreghani, "Efficient prior selection in Gaussian process bandits with Thompson sampling",
    2025. Differs: as ``PEGPUCB`` and ``GPTS``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Unless ``kernels`` are given
            its length scales are those of the first hypothesis: take long ones.
        regularization: λ > 0, the noise variance, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        scales: what the kernel's length scales, all of them, are multiplied by under each hypothesis; None for 1, 1/2,
            1/4, 1/8 and 1/16.
        kernels: a kernel for each hypothesis instead of ``scales``.
        discretization_size: points of the Sobol set on a box.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units; None for √λ in what is rejected.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds. Under a memory that forgets, and at λ < 1, the theorem's width holds
            in all of them at once; without it, in each.
        gain: the information gain γ in the width; by default the realised one under each hypothesis.
        memory: which observations count at a time, where the function changes, such as ``SlidingWindow(500)`` or
            ``Discount(0.99)``. The theorem is for a function that stays.
        dictionary: a rule for Nyström–DTC posteriors; None for exact ones.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one, a ``Prior``.
        beta: v, the multiplier of a draw's deviation from the mean (1 is plain Thompson sampling) or a ``Width``,
            instead of the theorem's, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: K times that of GP-TS for K hypotheses, and on a box twice that.
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
        discretization_size: int = 1024,
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
            GPTSWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=memory,
        )
        variants = resolve_variants(given.kernel, scales, kernels)
        super().__init__(
            family=Family(variants, Elimination(failure_probability, noise_scale)),
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=given,
            dictionary=dictionary,
            width=resolve_width(beta, theory, given),
            acquisition=ThompsonRule(discretization_size),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
