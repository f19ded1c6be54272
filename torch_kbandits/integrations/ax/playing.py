"""A bandit that was told the trials of an experiment."""

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from ax.core.optimization_config import OptimizationConfig
from ax.core.outcome_constraint import OutcomeConstraint
from ax.core.types import ComparisonOp
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, Configurations
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import Mode
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError, TheoryWarning
from torch_kbandits.integrations.ax.pool import CandidatePool
from torch_kbandits.integrations.ax.spaces import Parameters, TrialSpace
from torch_kbandits.integrations.ax.told import KnownNoise, Told
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import REWARD, AtLeast, AtMost, Limit, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior, Prior, default_kernel

#: A prior is fitted whenever there are more outcomes.
_ALWAYS = 1e-9


@dataclass(frozen=True, eq=False)
class Settings:
    """What a strategy plays; a value, saved with the experiment. See ``kernel_bandit_strategy``."""

    seed: int
    width: Width
    dictionary: DictionaryRule | None
    memory: Memory | None
    kernel: Kernel | None
    regularization: float | None
    prior_mean: float | None
    clip: bool
    pool: CandidatePool | None
    initialization_trials: int
    constraint_mode: Mode
    constraint_width: Width


class Metric(NamedTuple):
    """A metric as the bandit knows it.

    Attributes:
        sign: -1 where little of it is sought, and its negative is told; else 1.
        prior: what is assumed of that.
        memory: which trials count, and with what noise; None for all alike.
        values: what is told of it, (n,).
    """

    sign: float
    prior: Prior | LearnedPrior
    memory: Memory | None
    values: Tensor


class Played:
    """A bandit that was told all trials.

    Args:
        settings: what is played.
        told: the trials.
        space: their parameterizations as points.
        rows: those that may be tried, if they are listed.
        goals: what is sought.
        plainly: whether what is best by the posterior means is sought, as for a recommendation.

    Attributes:
        metrics: by signature; the first is the reward.
        bandit: at the current time.
    """

    def __init__(
        self,
        settings: Settings,
        told: Told,
        space: TrialSpace,
        rows: Sequence[Parameters] | None,
        goals: OptimizationConfig,
        *,
        plainly: bool = False,
    ) -> None:
        self.settings, self.told, self.space, self.rows = settings, told, space, rows
        self._arms = None if rows is None else space.points(space.completed(rows))
        sought = {name: 1.0 if weight > 0.0 else -1.0 for name, weight in goals.objective.metric_weights}
        limited = {name for each in goals.outcome_constraints for name in each.metric_signatures}
        names = [*sought, *sorted((limited | told.means.keys()) - sought.keys())]
        self.metrics = {name: self._metric(name, sought.get(name, 1.0), name == names[0]) for name in names}
        self.has_time = any(metric.memory for metric in self.metrics.values())
        others = list(self.metrics.items())[1:]
        memories = {
            name: (each.memory or Stationary()) if self.has_time else None for name, each in self.metrics.items()
        }
        reward = self.metrics[names[0]]
        objective = None
        if len(sought) > 1:
            aims = [REWARD, *names[1 : len(sought)]]
            weights: Any = dict.fromkeys(aims, 1.0) if plainly else "random"
            objective = Scalarization(dict.fromkeys(aims, "maximize"), weights)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TheoryWarning)  # it would come with every trial
            self.bandit = Bandit(
                candidates=self._candidates(),
                prior=reward.prior,
                dictionary=self._dictionary(),
                width=ConstantWidth(0.0) if plainly else settings.width,
                acquisition=UpperConfidenceRule(),
                memory=memories[names[0]],
                seed=settings.seed,
                outcomes=[
                    Outcome(name, each.prior, (each.memory or Stationary()) if self.has_time else None)
                    for name, each in others
                ],
                constraints=[self._limit(each, goals, plainly) for each in goals.outcome_constraints],
                objective=objective,
            )
        self._tell([metric.values for _, metric in others], reward.values)

    def model(self, metric: str) -> NystromGP | OnlineGP:
        """Return the posterior of what is told of a metric."""
        return self.bandit.model if metric == next(iter(self.metrics)) else self.bandit.outcome_model(metric)

    def wait(self, waiting: Sequence[Parameters]) -> None:
        """Make trials pending."""
        if waiting:
            points, size = self.space.points(waiting), len(self._context)
            context = {"context": points[:, :size]} if size else {}
            self.bandit.mark_pending(points[:, size:], **context, **self._time)

    def asked(self, n: int) -> list[Parameters]:
        """Return n parameterizations that the bandit asks for."""
        if self.rows is None and self.space.free is None:
            return self.space.completed([{}])
        words: dict[str, Any] = {"context": self._context} if len(self._context) else {}
        found = cast(Any, self.bandit).ask(n, **words, **self._time)
        if self._arms is None or self.rows is None:
            return self.space.configurations(found)
        return self.space.completed([self.rows[int((self._arms == x).all(-1).nonzero()[0])] for x in found])

    @property
    def _context(self) -> Tensor:
        """The context of a round, (c,); of candidates none, which have it in their columns."""
        return self.space.context if self._arms is None else self.space.context[:0]

    @property
    def _time(self) -> dict[str, float]:
        return {"time": self.told.now} if self.has_time else {}

    def _candidates(self) -> Arms | Configurations:
        if self._arms is not None:
            return Arms(self._arms)
        space = self.space.free or self.space.whole
        return Configurations(space, context_dim=len(self._context) or None)

    def _metric(self, name: str, sign: float, is_first: bool) -> Metric:
        """Return a metric; what is given of the prior is of the first alone."""
        settings, told = self.settings, self.told
        level = settings.regularization if is_first else None
        memory, noise = settings.memory, told.noise(name, level)
        if noise:
            memory = KnownNoise(noise, memory)
            level = sum(noise.values()) / len(noise) if level is None else level
        kernel = settings.kernel if is_first else None
        mean = None if settings.prior_mean is None or not is_first else sign * settings.prior_mean
        if kernel is not None and level is not None:
            prior = Prior(self._placed(kernel), level, 0.0 if mean is None else mean)
        else:
            start = default_kernel(len(self.space.order), self.space.whole.groups) if kernel is None else kernel
            words: dict[str, Any] = {"num_initial": 2, "refit_share": _ALWAYS, "clip": settings.clip and is_first}
            prior = LearnedPrior(self._placed(start), level, mean, **words)
        return Metric(sign, prior, memory, sign * told.mean(name))

    def _placed(self, kernel: Kernel) -> Kernel:
        """Return a kernel on the columns in the order of ``space``, of which it was given in their own."""
        try:
            kernel(torch.zeros(1, len(self.space.order), dtype=torch.float64).to(next(kernel.parameters()))).to_dense()
        except (RuntimeError, IndexError) as error:
            raise InputError(
                f"kernel must be one on the unit cube, whose columns are {self.space.whole.names} here: a column for "
                "each parameter, but for an unordered choice of more than two values one for each value. "
                f"{error}"
            ) from error
        places, copy = self.space.order.argsort(), deepcopy(kernel)
        if not torch.equal(places, torch.arange(len(places))):
            copy.active_dims = places if copy.active_dims is None else places[cast(Tensor, copy.active_dims)]
        return copy

    def _dictionary(self) -> DictionaryRule | None:
        """Return the rule; points that it names have their columns in the order of ``space``."""
        rule: Any = self.settings.dictionary
        return replace(rule, points=rule.points[:, self.space.order]) if hasattr(rule, "points") else rule

    def _limit(self, constraint: OutcomeConstraint, goals: OptimizationConfig, plainly: bool) -> Limit:
        """Return a limit; where trials are to be safe those that were within all limits are known to be."""
        settings = self.settings
        ((name, bound, at_most),) = (_bound(constraint),)
        kind, is_safe = AtMost if at_most else AtLeast, settings.constraint_mode == "safe"
        width = ConstantWidth(0.0) if plainly and not is_safe else settings.constraint_width
        return kind(name, bound, settings.constraint_mode, width, self._known_safe(goals) if is_safe else None)

    def _known_safe(self, goals: OptimizationConfig) -> Tensor | None:
        """Return the actions (k, a) of trials in this context that were within all limits."""
        kept = torch.ones(len(self.told.times), dtype=torch.bool)
        for name, bound, at_most in map(_bound, goals.outcome_constraints):
            kept &= (self.told.mean(name) <= bound) if at_most else (self.told.mean(name) >= bound)
        points, size = self.space.points(self.told.parameters)[kept], len(self._context)
        points = points[(points[:, :size] == self._context).all(-1)][:, size:]
        return points if len(points) else None

    def _tell(self, outcomes: Sequence[Tensor], Y: Tensor) -> None:
        """Tell all trials, and look at the bandit now."""
        told = self.told
        X = self.space.points(told.parameters)
        rows = torch.stack([Y, *outcomes]).isfinite().any(0) | told.failed
        history = History(
            X,
            Y,
            torch.arange(len(Y)),
            times=told.times if self.has_time else None,
            outcomes=torch.stack(list(outcomes), -1) if outcomes else None,
            failed=told.failed if outcomes else None,
        ).rows(rows)
        if not len(history.Y):
            return
        self.bandit.replay(history._replace(rounds=torch.arange(len(history.Y))))
        if self.has_time:
            self.wait(told.parameters[:1])
            self.bandit.forget()


def _bound(constraint: OutcomeConstraint) -> tuple[str, float, bool]:
    """Return the metric of a constraint, its bound, and whether it is to be at most that."""
    ((name, weight),) = constraint.metric_weights
    return name, constraint.bound / weight, (constraint.op is ComparisonOp.LEQ) == (weight > 0.0)
