"""What plays cost as part of what is sought: pacing under a budget, and improvement per unit of cost."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.acquisition import AcquisitionRule, ExpectedImprovementRule, OptimisticRule
from torch_kbandits.errors import InputError
from torch_kbandits.numerics.shallow import changed
from torch_kbandits.outcomes.scalarization import REWARD, Direction, Scalarization


@dataclass(frozen=True, eq=False, kw_only=True)
class CostObjective(ABC):
    """The reward is sought, and an outcome is what a play costs: give ``BudgetPacing`` or ``CostCooling``."""

    rule: ClassVar[type[AcquisitionRule]]  #: How the reward is scored.
    hint: ClassVar[str]  #: Of which rules and algorithms that is so.
    seeks_best: ClassVar[bool]  #: Whether the cost is that of the search alone: scored by its mean, not recommended by.
    kind: ClassVar[str] = "linear"  #: As of a ``Scalarization`` that needs no reference.
    is_random: ClassVar[bool] = False

    cost: str = "cost"

    def __post_init__(self) -> None:
        if not isinstance(self.cost, str) or self.cost in ("", REWARD):
            raise InputError(f"cost must be the name of an outcome, such as 'cost', got {checks.shown(self.cost)}.")
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Refuse arguments that do not fit."""

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """Reward and cost, and which of them is sought small."""
        return {REWARD: "maximize", self.cost: "minimize"}

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The name of the cost."""
        return (self.cost,)

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Those of reward and cost that count in a choice."""

    @abstractmethod
    def unit(self, name: str) -> float | None:
        """Return what the values of one of them are divided by; None for its prior deviation."""

    @abstractmethod
    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective after costs told (n,), NaN where none was, of plays that are over or not yet, (n,)."""

    @abstractmethod
    def sought(self, seed: int | None = None) -> Tensor:
        """Return the weights of ``names`` in a choice, (k,), in double precision."""

    @abstractmethod
    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return what is maximised, (...,), of scores (k, ...) of ``names``: of the cost of its negative."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetPacing(CostObjective):
    """UCB or Thompson sampling under a budget: the most reward for at most b a round on average.

    A choice maximises the Lagrangian u(x) / s − ν c(x) / b, with the upper bound u of the reward or a draw of it, the
    lower bound c of the cost or a draw of it, at least 0, and the prior deviation s of the reward at the points played.
    The multiplier is 0 before any play, and rises where more than b was spent:

        ν ← max(0, ν + step (cost / b − 1) / √t)    for the t-th that was told.

    So after n plays what was spent is at most b n + b ν √n / step, whatever the costs were, and ν stays bounded where
    some play costs less than b. While it is 0, choices are those without a budget; with b infinite all are. The budget
    is soft: for one that must not be overspent stop at ``bandit.spent``. A cost that was not told counts as 0.

    Source: Zhou and Ji, "On kernelized multi-armed bandits with constraints", NeurIPS 2022; bandits with knapsacks by
    online learning of the multiplier: Agrawal and Devanur, 2014; Badanidiyuru, Kleinberg and Slivkins, 2013. Differs:
    ν follows the costs told, not their lower bounds, is not capped, and its steps fall as 1/√t: no horizon is needed.

    Args:
        per_round: b > 0, in units of the cost; may be infinite.
        total: instead the budget in all of so many ``rounds``: b is their ratio.
        rounds: see ``total``.
        step: how fast the multiplier follows.
        cost: the name of the outcome that is the cost, at least 0.

    Raises:
        InputError: if an argument does not fit.
    """

    rule, hint = OptimisticRule, "UpperConfidenceRule or ThompsonRule, as GPUCB, EKUCB and GPTS do"
    seeks_best = False

    per_round: float | None = None
    total: float | None = None
    rounds: int | None = None
    step: float = 1.0
    multiplier: float | None = field(default=None, init=False, repr=False)  # ν; None before it is known

    def _check(self) -> None:
        if (self.per_round is None) == (self.total is None) or (self.total is None) != (self.rounds is None):
            raise InputError("Give per_round=, what a round may cost on average, or total= and rounds=.")
        checks.keep(self, total=checks.optional(_budget), rounds=checks.optional(checks.positive_integer))
        checks.keep(self, per_round=checks.optional(_budget), step=checks.positive)

    @property
    def pace(self) -> float:
        """What may be spent a round, b."""
        return self.per_round if self.total is None else self.total / self.rounds  # pyright: ignore

    @property
    def names(self) -> tuple[str, ...]:
        """The reward, and the cost unless the multiplier is 0."""
        return (REWARD,) if self.multiplier == 0.0 else (REWARD, self.cost)

    def unit(self, name: str) -> float | None:
        """Return b for the cost, and None for the reward."""
        return None if name == REWARD else self.pace

    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective with the multiplier that follows from what was told; see ``CostObjective``."""
        if not len(costs):
            return changed(self, multiplier=0.0)
        sizes = self.step / torch.arange(1, len(costs) + 1, dtype=torch.float64).sqrt()
        walk = (sizes * (costs.double().nan_to_num(0.0) / self.pace - over.double())).cumsum(0)
        return changed(self, multiplier=float(walk[-1] - walk.min().clamp_max(0.0)))  # of the walk kept at least 0

    def sought(self, seed: int | None = None) -> Tensor:
        """Return 1 and ν over their sum."""
        weights = torch.tensor([1.0, self.multiplier or 0.0][: len(self.names)], dtype=torch.float64)
        return weights / weights.sum()

    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return the Lagrangian over 1 + ν; no cost is below 0."""
        values = torch.cat([values[:1], values[1:].clamp_max(0.0)])
        return (weights.to(values) * values.movedim(0, -1)).sum(-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class CostCooling(CostObjective):
    """Expected improvement per unit of cost, with cost cooling: EI(x) / c(x)^α, to find the best point cheaply.

    c is the posterior mean of the cost, at least half of the least cost told: a fitted mean may be below 0. With a
    budget α is the share of it that is left, so that what is dear is played in the end; without α = 1. ``recommend`` is
    the best by the reward alone.

    Source: Snoek et al., NeurIPS 2012 (EI per second); Lee et al., "Cost-aware Bayesian optimization", 2020 (CArBO's
    cost cooling). Differs: the budget is counted from the first play, not from the end of the initial design, which is
    the usual one; the posterior is of the cost, not of its logarithm.

    Args:
        budget: what may be spent in all, in units of the cost; None for no cooling.
        cost: the name of the outcome that is the cost, above 0.

    Raises:
        InputError: if an argument does not fit.
    """

    rule, hint = ExpectedImprovementRule, "ExpectedImprovementRule, as GPEI does"
    seeks_best = True

    budget: float | None = None
    exponent: float = field(default=1.0, init=False, repr=False)  # α
    least: float = field(default=0.0, init=False, repr=False)  # what a play costs at least

    def _check(self) -> None:
        checks.keep(self, budget=checks.optional(checks.positive))

    @property
    def names(self) -> tuple[str, ...]:
        """Reward and cost; the reward alone once the budget is spent."""
        return (REWARD, self.cost) if self.exponent else (REWARD,)

    def unit(self, name: str) -> float | None:
        """Return 1: both are in their own units."""
        return 1.0

    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective with the exponent that follows from what was spent; see ``CostObjective``."""
        paid = costs[costs > 0.0].double()
        left = 1.0 if self.budget is None else 1.0 - float(costs.double().nansum()) / self.budget
        return changed(self, exponent=min(max(left, 0.0), 1.0), least=float(paid.min()) / 2.0 if len(paid) else 0.0)

    def sought(self, seed: int | None = None) -> Tensor:
        """Return 1 and α."""
        return torch.tensor([1.0, self.exponent][: len(self.names)], dtype=torch.float64)

    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return log EI − α log c."""
        if len(values) == 1:
            return values[0]
        least = max(self.least, torch.finfo(values.dtype).tiny)
        return values[0] - weights[1].to(values) * (-values[1]).clamp_min(least).log()


def _budget(name: str, value: float) -> float:
    """Return a number above 0 that may be infinite."""
    return math.inf if isinstance(value, float) and value == math.inf else checks.positive(name, value)


#: What may be sought in place of the reward alone.
Objective = Scalarization | CostObjective
