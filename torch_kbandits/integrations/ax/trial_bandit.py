"""A bandit that was told the trials of an experiment."""

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from ax.core.optimization_config import OptimizationConfig
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
from torch_kbandits.integrations.ax.spaces import Parameters, TrialSpace
from torch_kbandits.integrations.ax.trials import KnownNoise, Trials
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
    candidates: Mapping[str, Sequence[Any]] | None
    initialization_trials: int
    constraint_mode: Mode
    constraint_width: Width


class TrialBandit:
    """A bandit that was told all trials, at the current time.

    Args:
        settings: what is played.
        trials: what is told.
        space: their parameterizations as points.
        rows: those that may be tried, if they are listed.
        goals: what is sought.
        plainly: whether what is best by the posterior means is sought, as for a recommendation.

    Attributes:
        signs: of metrics by signature, of which the first is the reward: -1 where the negative is told.
        memories: of the same.
    """

    def __init__(
        self,
        settings: Settings,
        trials: Trials,
        space: TrialSpace,
        rows: Sequence[Parameters] | None,
        goals: OptimizationConfig,
        *,
        plainly: bool = False,
    ) -> None:
        self.settings, self.trials, self.space, self._rows = settings, trials, space, rows
        self._arms = None if rows is None else space.points(space.completed(rows))
        self._context = space.context if rows is None else space.context[:0]  # candidates have it in their columns
        sought = {name: 1.0 if weight > 0.0 else -1.0 for name, weight in goals.objective.metric_weights}
        limited = {name for each in goals.outcome_constraints for name in each.metric_signatures}
        first, *others = [*sought, *sorted((limited | trials.means.keys()) - sought.keys())]
        self.signs = {name: sought.get(name, 1.0) for name in (first, *others)}
        noise = {name: trials.noise(name, settings.regularization if name == first else None) for name in self.signs}
        self.has_time = settings.memory is not None or any(noise.values())
        memories = {
            name: KnownNoise(known, settings.memory) if known else settings.memory for name, known in noise.items()
        }
        self.memories = {name: memory or Stationary() for name, memory in memories.items()}
        priors = {name: self._prior(name == first, self.signs[name], noise[name].values()) for name in self.signs}
        aims = [REWARD, *others[: len(sought) - 1]]
        weights: Any = dict.fromkeys(aims, 1.0) if plainly else "random"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TheoryWarning)  # it would come with every trial
            self.bandit = Bandit(
                candidates=self._candidates(),
                prior=priors[first],
                dictionary=self._dictionary(),
                width=ConstantWidth(0.0) if plainly else settings.width,
                acquisition=UpperConfidenceRule(),
                memory=self.memories[first] if self.has_time else None,
                seed=settings.seed,
                outcomes=[
                    Outcome(name, priors[name], self.memories[name] if self.has_time else None) for name in others
                ],
                constraints=self._limits(goals, plainly),
                objective=Scalarization(dict.fromkeys(aims, "maximize"), weights) if len(aims) > 1 else None,
            )
        self._tell()

    def model(self, metric: str) -> NystromGP | OnlineGP:
        """Return the posterior of what is told of a metric."""
        return self.bandit.model if metric == next(iter(self.signs)) else self.bandit.outcome_model(metric)

    def values(self, metric: str, trials: Trials) -> Tensor:
        """Return what is told of a metric of trials, (n,)."""
        return self.signs[metric] * trials.mean(metric)

    def wait(self, waiting: Sequence[Parameters]) -> None:
        """Make trials pending."""
        if waiting:
            points, size = self.space.points(waiting), len(self._context)
            context = {"context": points[:, :size]} if size else {}
            self.bandit.mark_pending(points[:, size:], **context, **self._time)

    def asked(self, n: int) -> list[Parameters]:
        """Return n parameterizations that the bandit asks for."""
        if self._rows is None and self.space.free is None:
            return self.space.completed([{}])
        words: dict[str, Any] = {"context": self._context} if len(self._context) else {}
        found = cast(Any, self.bandit).ask(n, **words, **self._time)
        if self._arms is not None and self._rows is not None:
            found = [self._rows[int((self._arms == x).all(-1).nonzero()[0])] for x in found]
        return self.space.completed(found)

    @property
    def _time(self) -> dict[str, float]:
        return {"time": self.trials.now} if self.has_time else {}

    def _candidates(self) -> Arms | Configurations:
        if self._arms is not None:
            return Arms(self._arms)
        return Configurations(self.space.free or self.space.whole, context_dim=len(self._context) or None)

    def _prior(self, is_first: bool, sign: float, noise: Any) -> Prior | LearnedPrior:
        """Return the prior of a metric whose noise variances are known or none; what is given is of the first alone."""
        settings, given = self.settings, self.settings if is_first else None
        level = None if given is None else given.regularization
        if noise and level is None:
            level = sum(noise) / len(noise)
        mean = None if given is None or given.prior_mean is None else sign * given.prior_mean
        kernel = None if given is None else given.kernel
        if kernel is not None and level is not None:
            return Prior(self._in_order(kernel), level, 0.0 if mean is None else mean)
        start = default_kernel(len(self.space.order), self.space.whole.groups) if kernel is None else kernel
        words: dict[str, Any] = {"num_initial": 2, "refit_share": _ALWAYS, "clip": settings.clip and is_first}
        return LearnedPrior(self._in_order(start), level, mean, **words)

    def _in_order(self, kernel: Kernel) -> Kernel:
        """Return a kernel on the columns in the order of ``space``, of which it was given in their own."""
        try:
            kernel(torch.zeros(1, len(self.space.order), dtype=torch.float64).to(next(kernel.parameters()))).to_dense()
        except (RuntimeError, IndexError) as error:
            raise InputError(
                f"kernel must be one on the unit cube, whose columns are {self.space.whole.names} here. {error}"
            ) from error
        places, copy = self.space.order.argsort(), deepcopy(kernel)
        if not torch.equal(places, torch.arange(len(places))):
            copy.active_dims = places if copy.active_dims is None else places[cast(Tensor, copy.active_dims)]
        return copy

    def _dictionary(self) -> DictionaryRule | None:
        """Return the rule; points that it names have their columns in the order of ``space``."""
        rule: Any = self.settings.dictionary
        return replace(rule, points=rule.points[:, self.space.order]) if hasattr(rule, "points") else rule

    def _limits(self, goals: OptimizationConfig, plainly: bool) -> list[Limit]:
        """Return the limits; where trials are to be safe those that were within all of them are known to be."""
        mode, width, bounds = self.settings.constraint_mode, self.settings.constraint_width, []
        within = torch.ones(len(self.trials.times), dtype=torch.bool)
        for each in goals.outcome_constraints:
            ((name, weight),) = each.metric_weights
            kind = AtMost if (each.op is ComparisonOp.LEQ) == (weight > 0.0) else AtLeast
            bounds.append((kind, name, bound := each.bound / weight))
            within &= self.trials.mean(name) <= bound if kind is AtMost else self.trials.mean(name) >= bound
        if mode != "safe":
            return [kind(name, bound, mode, ConstantWidth(0.0) if plainly else width) for kind, name, bound in bounds]
        points, size = self.space.points(self.trials.parameters)[within], len(self._context)
        known = points[(points[:, :size] == self._context).all(-1)][:, size:]
        return [kind(name, bound, mode, width, known if len(known) else None) for kind, name, bound in bounds]

    def _tell(self) -> None:
        """Tell all trials, and look at the bandit now."""
        trials, (first, *others) = self.trials, self.signs
        Y, outcomes = self.values(first, trials), [self.values(name, trials) for name in others]
        history = History(
            self.space.points(trials.parameters),
            Y,
            torch.arange(len(Y)),
            times=trials.times if self.has_time else None,
            outcomes=torch.stack(outcomes, -1) if outcomes else None,
            failed=trials.failed if outcomes else None,
        ).rows(torch.stack([Y, *outcomes]).isfinite().any(0) | trials.failed)
        if len(history.Y):
            self.bandit.replay(history._replace(rounds=torch.arange(len(history.Y))))
            if self.has_time:
                self.wait(trials.parameters[:1])
                self.bandit.forget()
