"""What the trials of an experiment say, and what a memory makes of noise that is known."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from ax.adapter.data_utils import ExperimentData
from ax.core.experiment import Experiment
from ax.core.trial_status import TrialStatus
from torch import Tensor

from torch_kbandits.memory import Memory, Stationary

#: The least noise variance of a trial, as a share of the variance of all outcomes.
_LEAST_NOISE = 1e-6
#: Decimals with which Ax saves outcomes, and the size of what matters in them above which these are enough.
_DECIMALS, _COARSE = 10, 1e-4


class Trials(NamedTuple):
    """The n trials that ended, in order of their indices, which are their times.

    By metric there are means, NaN where nothing was measured, and their standard errors, NaN where these are not known.
    """

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
        """Return the noise variances of a metric by trial; none where no standard error is known.

        Trials without one get ``regularization``, or the mean of the others. Variances below a share of that of the
        outcomes are raised to it, for the sake of the factorisations.
        """
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
        size = (
            known.std() if kind == "mean" and len(known) > 1 else known.mean() if kind == "sem" and len(known) else 1.0
        )
        if size > _COARSE:  # so that an experiment that was saved and loaded goes on as it would have
            values = values.round(_DECIMALS)
        found = [np.nan if place is None else values[place] for _, _, place in rows]
        columns[kind][str(metric)] = torch.tensor(found, dtype=torch.float64)
    times = torch.tensor([time for time, _, _ in rows], dtype=torch.float64)
    failed = torch.tensor([place is None for _, _, place in rows], dtype=torch.bool)
    return Trials(times, [parameters for _, parameters, _ in rows], columns["mean"], columns["sem"], failed)


class KnownNoise(Memory):
    """A memory of rewards whose noise variances are known, by the times at which they were made; others have λ.

    Which of them count is that of another memory. Where that keeps noise they have their own; else that grows.
    """

    keeps_noise = False

    def __init__(self, variances: Mapping[float, float], memory: Memory | None) -> None:
        self.variances, self.memory = dict(variances), memory or Stationary()
        self.num_latest = self.memory.num_latest

    def noise(self, times: Tensor, now: float, regularization: float | Tensor) -> Tensor:
        """Return the noise variances of rewards as they count now, (n,)."""
        level = float(regularization)
        fresh = torch.tensor([self.variances.get(time, level) for time in times.tolist()]).to(times)
        if not self.memory.keeps_noise:
            return self.memory.noise(times, now, fresh)
        return fresh.masked_fill(~self.memory.noise(times, now, 1.0).isfinite(), torch.inf)

    def scaled(self, factor: float) -> "KnownNoise":
        """Return it for variances times a factor."""
        variances = {time: variance * factor for time, variance in self.variances.items()}
        return KnownNoise(variances, self.memory.scaled(factor))
