"""DMS-GP-UCB, which chooses its memory by prediction."""

from collections.abc import Sequence
from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, refuse_memory, resolve_contextual, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import DynamicModelSelection, default_discounts
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class DMSGPUCB(Bandit):
    """DMS-GP-UCB, dynamic model selection: GP-UCB under the memory that predicted the latest rewards best.

    It needs no rate of change. Every reward scores every memory, so none has to be played in order to be judged.

    Source: ours, from Raftery, Kárný and Ettler, "Online prediction under model uncertainty via dynamic model
    averaging", Technometrics 2010, and W-GP-UCB (Deng et al., AISTATS 2022); see ``DynamicModelSelection``. No regret
    bound is known.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Its scale and λ decide what a
            prediction is worth: fit them beforehand.
        regularization: λ > 0, the noise variance, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        memories: what to choose from; None for discounts that remember about 10, 20, 50 and 100 rounds, and all. Give
            others where times are not rounds. The last one is in force first.
        block_size: H, rounds between two choices.
        score_discount: α in (0, 1), the factor by which a score loses weight in a round.
        noise_scale: R > 0, the sub-Gaussian constant of the noise, in reward units.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ in (0, 1).
        horizon: T, the planned number of rounds: at λ < 1 the theorem's width holds in all of them at once. Without it,
            in each.
        gain: the information gain γ in the width; by default the realised one of the observations that count.
        memory: refused, with the reason: ``memories`` says what an observation counts for.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: as W-GP-UCB with the memory in force, and once a block under each memory.
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
        memories: Sequence[Memory] | None = None,
        block_size: int = 5,
        score_discount: float = 0.95,
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
        refuse_memory(memory, "memories")
        theory = theorem_at(
            prior.regularization,
            IGPUCBWidth,
            noise_scale,
            norm_bound,
            failure_probability,
            horizon,
            gain=gain,
            forgets=True,
        )
        given = default_discounts() if memories is None else memories
        super().__init__(
            memories=DynamicModelSelection(given, block_size, score_discount),  # pyright: ignore[reportArgumentType]
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            theory=theory,
            seed=seed,
            **common(others),
        )
