"""What the trials of an experiment say, and a bandit that was told them."""

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from ax.adapter.data_utils import ExperimentData
from ax.core.experiment import Experiment
from ax.core.optimization_config import OptimizationConfig
from ax.core.trial_status import TrialStatus
from ax.core.types import ComparisonOp
from torch import Tensor

from torch_kbandits.acquisition import UpperConfidenceRule
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Arms, Configurations
from torch_kbandits.confidence import ConstantWidth, Width
from torch_kbandits.confidence.base import Mode
from torch_kbandits.dictionaries import DictionaryRule
from torch_kbandits.errors import InputError, TheoryWarning
from torch_kbandits.integrations.ax.spaces import Parameters, TrialSpace
from torch_kbandits.memory import Memory, Stationary
from torch_kbandits.models import NystromGP, OnlineGP
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import REWARD, AtLeast, AtMost, Limit, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior, Prior, default_kernel

_ALWAYS: Any = {"num_initial": 2, "refit_share": 1e-9}  # a prior is fitted to two or more, whenever there are more
_LEAST_NOISE = 1e-6  # the least noise variance of a trial, as a share of the variance of all outcomes
#: Decimals with which Ax saves outcomes, and the size of what matters in them above which these are enough.
_DECIMALS, _COARSE = 10, 1e-4


class Trials(NamedTuple):
    """The n trials that ended, by time, with means and standard errors by metric, NaN where these are not known."""

    times: Tensor
    parameters: list[Mapping[str, Any]]
    means: Mapping[str, Tensor]
    sems: Mapping[str, Tensor]
    failed: Tensor

    @property
    def now(self) -> float:
        """The current time: one after the latest trial."""
        return float(self.times[-1]) + 1.0 if len(self.times) else 0.0

    @property
    def num_outcomes(self) -> int:
        """Of how many trials something was measured."""
        return len(self.times) - int(self.failed.sum())

    def mean(self, metric: str) -> Tensor:
        """Return what was measured of a metric, (n,)."""
        return self.means.get(metric, torch.full_like(self.times, torch.nan))

    def noise(self, metric: str, regularization: float | None) -> dict[float, float]:
        """Return the noise variances of a metric by time, filled in where one lacks; none if all do."""
        squares = self.sems.get(metric, torch.full_like(self.times, torch.nan)).square()
        if not len(known := squares[squares.isfinite()]):
            return {}
        measured = self.mean(metric)[self.mean(metric).isfinite()]
        least = _LEAST_NOISE * (float(measured.var()) if len(measured) > 1 else 1.0) or _LEAST_NOISE
        filled = squares.nan_to_num(float(known.mean()) if regularization is None else regularization)
        return dict(zip(self.times.tolist(), filled.clamp_min(least).tolist(), strict=True))


def read(data: ExperimentData, experiment: Experiment) -> Trials:
    """Return what data says of the trials of an experiment, and which failed; those beyond its space are left out."""
    frame, space, arms = data.observation_data, experiment.search_space, experiment.arms_by_name
    rows: list[Any] = [(float(trial), arms[arm].parameters, place) for place, (trial, arm) in enumerate(frame.index)]
    lost = [(index, each) for index, each in experiment.trials.items() if each.status == TrialStatus.FAILED]
    rows += [(float(index), arm.parameters, None) for index, trial in lost for arm in trial.arms]
    rows = [row for row in rows if space.check_membership(row[1], check_all_parameters_present=False)]
    rows.sort(key=lambda row: row[0])
    columns: dict[str, dict[str, Tensor]] = {"mean": {}, "sem": {}}
    for kind, metric in frame.columns if len(frame) else ():
        values = frame[kind, metric].to_numpy(dtype="float64")
        known = values[~np.isnan(values)]
        # So that an experiment that was saved and loaded goes on as it would have.
        is_mean = kind == "mean"
        if len(known) < 1 + is_mean or (known.std() if is_mean else known.mean()) > _COARSE:
            values = values.round(_DECIMALS)
        found = [np.nan if place is None else values[place] for _, _, place in rows]
        columns[kind][str(metric)] = torch.tensor(found, dtype=torch.float64)
    times = torch.tensor([time for time, _, _ in rows], dtype=torch.float64)
    failed = torch.tensor([place is None for _, _, place in rows], dtype=torch.bool)
    return Trials(times, [parameters for _, parameters, _ in rows], columns["mean"], columns["sem"], failed)


class KnownNoise(Memory):
    """A memory of rewards whose noise variances are known, by time, of which those count that another memory says."""

    keeps_noise = False

    def __init__(self, variances: Mapping[float, float], memory: Memory | None) -> None:
        self.variances, self.memory = dict(variances), memory or Stationary()
        self.num_latest = self.memory.num_latest

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return the noise variances of rewards as they count now, (n,)."""
        levels = torch.as_tensor(regularization).expand(times.shape).tolist()
        known = [self.variances.get(time, level) for time, level in zip(times.tolist(), levels, strict=True)]
        fresh = torch.tensor(known).to(times)
        if not self.memory.keeps_noise:
            return self.memory.noise(times, now, fresh)
        return fresh.masked_fill(~self.memory.noise(times, now, 1.0).isfinite(), torch.inf)

    def scaled(self, factor: float) -> "KnownNoise":
        """Return it for variances times a factor."""
        variances = {time: variance * factor for time, variance in self.variances.items()}
        return KnownNoise(variances, self.memory.scaled(factor))


@dataclass(frozen=True, eq=False)
class Settings:
    """What a strategy plays, saved with the experiment; see ``kernel_bandit_strategy``."""

    seed: int
    prior: Prior | LearnedPrior
    width: Width
    dictionary: DictionaryRule | None
    memory: Memory | None
    candidates: Mapping[str, Sequence[Any]] | None
    initialization_trials: int
    constraint_mode: Mode
    constraint_width: Width


class TrialBandit:
    """A bandit that was told all trials, at the current time.

    With ``plainly`` what is best by the posterior means is sought, as for a recommendation. Of metrics by signature, of
    which the first is the reward, ``signs`` are -1 where the negative is told; ``memories`` are of the same.
    """

    def __init__(
        self, settings: Settings, trials: Trials, space: TrialSpace, goals: OptimizationConfig, *, plainly: bool = False
    ) -> None:
        self.settings, self.trials, self.space = settings, trials, space
        self._rows = space.completed(space.rows)
        self._arms = space.points(self._rows)
        sought = {name: 1.0 if weight > 0.0 else -1.0 for name, weight in goals.objective.metric_weights}
        limited = {name for each in goals.outcome_constraints for name in each.metric_signatures}
        first, *others = [*sought, *sorted((limited | trials.means.keys()) - sought.keys())]
        self.signs = {name: sought.get(name, 1.0) for name in (first, *others)}
        fitted = LearnedPrior(clip=False)
        given = {name: settings.prior if name == first else fitted for name in self.signs}
        noise = {name: trials.noise(name, each.regularization) for name, each in given.items()}
        self.has_time = settings.memory is not None or any(noise.values())
        memories = {
            name: KnownNoise(known, settings.memory) if known else settings.memory for name, known in noise.items()
        }
        self.memories = {name: memory or Stationary() for name, memory in memories.items()}
        priors = {name: self._prior(each, self.signs[name], noise[name].values()) for name, each in given.items()}
        measured = [Outcome(each, priors[each], self.memories[each] if self.has_time else None) for each in others]
        aims = [REWARD, *others[: len(sought) - 1]]
        weights: Any = dict.fromkeys(aims, 1.0) if plainly else "random"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TheoryWarning)  # it would come with every trial
            self.bandit = Bandit(
                candidates=Arms(self._arms) if self._rows else Configurations(space.encoded),
                prior=priors[first],
                dictionary=settings.dictionary,
                width=ConstantWidth(0.0) if plainly else settings.width,
                acquisition=UpperConfidenceRule(),
                memory=self.memories[first] if self.has_time else None,
                seed=settings.seed,
                outcomes=measured,
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
            self.bandit.mark_pending(self.space.points(waiting), **self.time)

    def asked(self, n: int) -> list[Parameters]:
        """Return n parameterizations that the bandit asks for."""
        if not (self.space.is_free or self._rows):
            return self.space.completed([{}])
        found = cast(Any, self.bandit).ask(n, **self.time)
        if self._rows:
            found = [self._rows[int((self._arms - x).abs().amax(-1).argmin())] for x in found]
        return self.space.completed(found)

    @property
    def time(self) -> dict[str, float]:
        """The word by which the bandit is asked now, if it has a clock."""
        return {"time": self.trials.now} if self.has_time else {}

    def _prior(self, given: Prior | LearnedPrior, sign: float, noise: Any) -> Prior | LearnedPrior:
        """Return the prior of a metric, told with a sign, whose noise variances are known or none."""
        space = self.space.encoded
        kernel = deepcopy(given.kernel or default_kernel(space.dimension, space.groups)).double()
        try:
            kernel(torch.zeros(1, space.dimension, dtype=torch.float64)).to_dense()
        except (RuntimeError, IndexError) as error:
            hint = f"one on the unit cube, whose columns are {space.names} here"
            raise InputError(f"the kernel of prior must be {hint}. {error}") from error
        level = sum(noise) / len(noise) if noise and given.regularization is None else given.regularization
        mean = None if given.mean is None else sign * cast(float, given.mean)
        if isinstance(given, LearnedPrior):
            is_known = level is not None and not any(each.requires_grad for each in kernel.parameters())
            if mean is None or not is_known:
                return replace(given, kernel=kernel, regularization=level, mean=mean, **_ALWAYS)
        return Prior(kernel, cast(float, level), mean or 0.0)

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
        rows = [row for row, kept in zip(self.trials.parameters, within.tolist(), strict=True) if kept]
        rows = [row for row in rows if self.space.encoded.held.items() <= row.items()]
        known = self.space.points(rows) if rows else None
        return [kind(name, bound, mode, width, known) for kind, name, bound in bounds]

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
