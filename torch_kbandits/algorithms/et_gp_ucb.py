"""ET-GP-UCB, which restarts when a reward is a surprise."""

from typing import Unpack

from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.algorithms.arguments import common, resolve_contextual, resolve_width, theorem_at
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.adaptation import ResidualTrigger
from torch_kbandits.bandit.words import CommonWords
from torch_kbandits.candidates import Candidates
from torch_kbandits.confidence import IGPUCBWidth, InformationGain, Width
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.memory import Memory
from torch_kbandits.priors import LearnedPrior, Prior, PriorMean, prior_of
from torch_kbandits.spaces import ParameterSpace


class ETGPUCB(Bandit):
    """ET-GP-UCB, event-triggered GP-UCB: GP-UCB that forgets everything when a reward leaves its confidence band.

    It needs no rate of change. The reward that triggered a restart counts after it.

    Source: Brunzema, von Rohr, Solowjow and Trimpe, "Event-triggered time-varying Bayesian optimization", TMLR 2025.
    Differs: the default width of the choice is as for ``SWGPUCB``; on arms theirs is
    ``beta=BayesianGPUCBWidth(num_arms, failure_probability)``. Rewards may be told several at a time, see
    ``ResidualTrigger``; a trigger for functions of an RKHS is ``Bandit(trigger=ResidualTrigger(width=...))``.

    Args:
        kernel: the prior covariance, any GPyTorch kernel, in reward units squared. Its scale sets what counts as a
            surprise: with too large a one changes go unnoticed, with too small a one restarts never end.
        regularization: λ > 0, the noise variance, in reward units squared.
        candidates: arms (A, d), with contexts actions (A, a), or a ``Candidates``.
        bounds: a box (2, d) instead of arms, with contexts (2, a).
        context_dim: c, the number of context columns; without it there is no context.
        action_dim: a, where each round brings its own actions.
        false_alarm_probability: δ of the trigger in (0, 1): on a function that stays, the probability of a restart
            before the next change is at most this.
        noise_scale: R > 0, the standard deviation of the noise, in reward units; the trigger takes √λ unless given.
        norm_bound: B > 0, a bound on the RKHS norm of the reward function at all times.
        failure_probability: δ of the width in (0, 1).
        horizon: T, the planned number of rounds: at λ < 1 the theorem's width holds in all of them at once. Without it,
            in each.
        memory: which observations count at a time, beside the restarts; None for all since the last.
        gain: the information gain γ in the width; by default the realised one.
        dictionary: a rule for a Nyström–DTC posterior; None for the exact one. The trigger's probability is proved for
            the exact one.
        mean: the prior mean, in reward units: a number, a value for each arm, a GPyTorch mean, or a function of points
            (n, d); see ``Bandit``.
        prior: all three in one: a ``Prior``, or a ``LearnedPrior()`` where nobody knows them; see ``Bandit``.
        beta: a multiplier of the standard deviation (2 here is 4 in BoTorch) or a ``Width``, instead of the theorem's
            width, which over-explores in practice; then R and B are not needed. The trigger has a width of its own.
        seed: addresses all randomness.
        others: ``outcomes``, ``constraints`` and ``objective``: what is measured beside the reward, its limits, and
            what is sought of all; see ``Bandit``.

    Cost of a round: as GP-UCB with the observations since the last restart.
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
        false_alarm_probability: float = 0.1,
        noise_scale: float | None = None,
        norm_bound: float | None = None,
        failure_probability: float = 0.1,
        horizon: int | None = None,
        memory: Memory | None = None,
        gain: InformationGain | None = None,
        dictionary: DictionaryRule | None = None,
        mean: PriorMean | None = None,
        prior: Prior | LearnedPrior | None = None,
        beta: float | Width | None = None,
        **others: Unpack[CommonWords],
    ) -> None:
        prior = prior_of(prior, kernel, regularization, mean)
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
        super().__init__(
            trigger=ResidualTrigger(false_alarm_probability, noise_scale),
            candidates=resolve_contextual(candidates, bounds, context_dim, action_dim),
            prior=prior,
            dictionary=dictionary,
            width=resolve_width(beta, theory, prior),
            acquisition=UpperConfidenceRule(),
            memory=memory,
            theory=theory,
            seed=seed,
            **common(others),
        )
