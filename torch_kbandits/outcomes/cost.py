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

    rule: ClassVar[type[AcquisitionRule]]  # how the reward is scored
    hint: ClassVar[str]  # of which rules and algorithms that is so
    seeks_best: ClassVar[bool]  # whether cost is that of the search alone: scored by its mean, not recommended by
    kind: ClassVar[str] = "linear"  # as of a ``Scalarization`` that needs no reference
    is_random: ClassVar[bool] = False

    cost: str = "cost"
    weights: tuple[float, float] = field(default=(1.0, 1.0), init=False, repr=False)  # of both, after what was spent

    def __post_init__(self) -> None:
        if not isinstance(self.cost, str) or self.cost in ("", REWARD):
            raise InputError(f"cost must be the name of an outcome, such as 'cost', got {checks.shown(self.cost)}.")

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """Reward and cost, and which of them is sought small."""
        return {REWARD: "maximize", self.cost: "minimize"}

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The name of the cost."""
        return (self.cost,)

    @property
    def names(self) -> tuple[str, ...]:
        """The reward, and the cost unless its weight is 0."""
        return (REWARD, self.cost) if self.weights[1] else (REWARD,)

    def sought(self, seed: int | None = None) -> Tensor:
        """Return the weights of ``names`` in a choice, (k,), in double precision."""
        return torch.tensor(self.weights[: len(self.names)], dtype=torch.float64)

    @abstractmethod
    def unit(self, name: str) -> float | None:
        """Return what the values of one of them are divided by; None for its prior deviation."""

    @abstractmethod
    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective after costs told (n,), NaN where none was, of plays that are over or not yet, (n,)."""

    @abstractmethod
    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return what is maximised, (...,), of scores (k, ...) of ``names``: of the cost of its negative."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BudgetPacing(CostObjective):
    """UCB or Thompson sampling under a budget: the most reward for at most b a round on average.

    A choice maximises the Lagrangian u(x) / s − ν c(x) / b, with the upper bound u of the reward or a draw of it, the
    lower bound c of the cost or a draw of it, at least 0, and the prior deviation s of the reward at the points played.
    The multiplier, or price of the budget, follows from what n plays cost so far:

        ν = step · max(0, spent / b − n) / √n.

    So at most b n + b ν √n / step is spent, whatever the costs were, and ν stays bounded where some play costs less
    than b: what is overspent vanishes on average as 1/√n, and what was saved may be spent later. While ν is 0, choices
    are those without a budget; with b infinite all are. The budget is soft: for one that must not be overspent stop at
    ``bandit.spent``. A cost that was not told counts as 0.

    Source: Zhou and Ji, "On kernelized multi-armed bandits with constraints", NeurIPS 2022; bandits with knapsacks by
    online learning of the multiplier: Agrawal and Devanur, 2014; Badanidiyuru, Kleinberg and Slivkins, 2013. Differs:
    ν is learned by dual averaging in place of projected gradient steps, from the costs told in place of their lower
    bounds, and is not capped: no horizon is needed, and it is read off the history.

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
    step: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.per_round is None) == (self.total is None) or (self.total is None) != (self.rounds is None):
            raise InputError("Give per_round=, what a round may cost on average, or total= and rounds=.")
        checks.keep(self, total=checks.optional(_budget), rounds=checks.optional(checks.positive_integer))
        checks.keep(self, per_round=checks.optional(_budget), step=checks.positive)

    @property
    def pace(self) -> float:
        """What may be spent a round, b."""
        return self.per_round if self.total is None else self.total / self.rounds  # pyright: ignore

    def unit(self, name: str) -> float | None:
        """Return b for the cost, and None for the reward."""
        return None if name == REWARD else self.pace

    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective with weights 1 and ν over their sum; see ``CostObjective``."""
        rounds, spent = int(over.sum()), float(costs.double().nansum()) / self.pace
        nu = self.step * max(0.0, spent - rounds) / math.sqrt(max(rounds, 1))
        return changed(self, weights=(1.0 / (1.0 + nu), nu / (1.0 + nu)))

    def value(self, values: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
        """Return the Lagrangian over 1 + ν; no cost is below 0."""
        return torch.cat([values[:1], values[1:].clamp_max(0.0)]).movedim(0, -1) @ weights.to(values)


@dataclass(frozen=True, eq=False, kw_only=True)
class CostCooling(CostObjective):
    """Expected improvement per unit of cost, with cost cooling: EI(x) / c(x)^α, to find the best point cheaply.

    c is the posterior mean of the cost, at least half of the least cost told: a fitted mean may be below 0. With a
    budget α is the share of it that is left, so that what is expensive is played last; without α = 1. ``recommend`` is
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
    least: float = field(default=0.0, init=False, repr=False)  # what a play costs at least

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.keep(self, budget=checks.optional(checks.positive))

    def unit(self, name: str) -> float | None:
        """Return 1: both are in their own units."""
        return 1.0

    def after(self, costs: Tensor, over: Tensor) -> Self:
        """Return the objective with weights 1 and α; see ``CostObjective``."""
        paid = costs[costs > 0.0].double()
        left = 1.0 if self.budget is None else 1.0 - float(costs.double().nansum()) / self.budget
        least = float(paid.min()) / 2.0 if len(paid) else 0.0
        return changed(self, weights=(1.0, min(max(left, 0.0), 1.0)), least=least)

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
