"""Rules that draw: with a share of uniform choices, or by the exponentials of scores, with exact probabilities."""

from dataclasses import dataclass, replace
from typing import Any, Never, Self

import torch
from botorch.models.model import Model
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition.domain import Domain
from torch_kbandits.acquisition.rules import AcquisitionRule, ArmPosterior, OptimisticRule, Shares
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.random import generator_for


@dataclass(frozen=True)
class EpsilonGreedy:
    """Choose by a rule, but with probability ε uniformly at random of all that may be played.

    So nothing that may be played has a propensity below ε / A: what off-policy evaluation needs. That holds as well
    while a prior is not fitted yet and points are spread, and within limits, where safe points are sought. On a box or
    a ``ParameterSpace`` the choice is mixed in the same way, and there are no propensities. The band of a theorem holds
    as before; regret may rise by ε times that of uniform play. ``Bandit.rule`` and ``acquisition()`` are the rule's.

    Source: Sutton and Barto, Reinforcement Learning, 2018, 2.2; Langford and Zhang, NeurIPS 2007, in contexts.

    Args:
        rule: any ``AcquisitionRule``.
        epsilon: ε in [0, 1].
    """

    rule: AcquisitionRule
    epsilon: float

    def __post_init__(self) -> None:
        checks.instance("rule", self.rule, AcquisitionRule, "a rule such as UpperConfidenceRule()")
        checks.keep(self, epsilon=checks.unit_interval)

    def explores(self, seed: int) -> bool:
        """Say whether the choice of a seed is uniform."""
        generator = generator_for(seed, 0, "epsilon")
        return bool(torch.rand((), generator=generator, dtype=torch.float64, device="cpu") < self.epsilon)

    def mixed(self, probabilities: Tensor, rows: Tensor | None) -> Tensor:
        """Return the rule's probabilities (A,) mixed with uniform ones on the rows (k,) that may be played, or all."""
        every = torch.arange(len(probabilities)) if rows is None else rows.cpu()
        uniform = torch.zeros_like(probabilities).index_fill(0, every, 1.0 / len(every))
        return torch.lerp(probabilities, uniform, self.epsilon)


@dataclass(frozen=True)
class SoftmaxRule(AcquisitionRule):
    """Choose arm i with probability proportional to exp(score_i / T): Boltzmann exploration.

    Only listed candidates have such probabilities: arms, or the actions of a round.

    Source: Sutton and Barto, Reinforcement Learning, 2018, 2.8; drawn by the maximum with Gumbel noise, Gumbel, 1954.

    Args:
        rule: whose scores these are; one that draws nothing: ``UpperConfidenceRule``, or one for improvement.
        temperature: T > 0, in prior standard deviations of the reward, the largest of an arm or a play, so that units
            of rewards do not matter. The scores of ``ExpectedImprovementRule`` are logarithms and have no units.
    """

    rule: AcquisitionRule
    temperature: float

    is_random = True

    def __post_init__(self) -> None:
        checks.instance("rule", self.rule, AcquisitionRule, "a rule such as UpperConfidenceRule()")
        checks.keep(self, temperature=checks.positive)
        if self.rule.is_random or self.rule.num_stages or not self.rule.needs_observations:
            name = type(self.rule).__name__
            raise InputError(f"SoftmaxRule needs scores of a rule that draws nothing; {name} has none: take another.")
        for name in ("uses_width", "needs_incumbent"):
            object.__setattr__(self, name, getattr(self.rule, name))

    def scaled_to(self, surrogate: Any) -> Self:
        """Return the rule with the temperature in the units of its scores."""
        scaled = self.rule.scaled_to(surrogate)
        if not isinstance(scaled, OptimisticRule):
            return replace(self, rule=scaled)
        unit = float(surrogate.kernel_bound().sqrt())
        return replace(self, rule=scaled, temperature=self.temperature * (unit if unit > 0.0 else 1.0))

    def on_arms(self, posterior: ArmPosterior, beta: Tensor, seed: int) -> Tensor:
        """Return scores and Gumbel noise times T, less the highest score, (A,)."""
        scores = self.rule.on_arms(posterior, beta, seed)
        generator = generator_for(seed, 0, "softmax")
        uniforms = torch.rand(len(scores), generator=generator, dtype=torch.float64, device="cpu")
        exponentials = uniforms.neg().log1p().neg().clamp_min(torch.finfo(uniforms.dtype).tiny)
        return scores - scores.max() + (-self.temperature * exponentials.log()).to(scores)

    def probabilities(self, posterior: ArmPosterior, scores: Tensor, beta: Tensor, seed: int, shares: Shares) -> Tensor:
        """Return exp(score_i / T) over their sum, (A,)."""
        return torch.softmax(self.rule.on_arms(posterior, beta, seed).cpu().double() / self.temperature, 0)

    def function(self, model: Model, beta: Tensor, X_pending: Tensor | None, domain: Domain, seed: int) -> Never:
        """Raise: no function is maximised."""
        raise InputError("SoftmaxRule draws one of listed candidates and maximises no acquisition function.")
