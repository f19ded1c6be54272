"""Trials of Ax that failed, and wait before their arms are suggested again."""

from collections.abc import Mapping

import torch
from ax.core.experiment import Experiment
from ax.core.observation import ObservationFeatures
from ax.core.trial_status import TrialStatus

from torch_kbandits.outcomes.streaks import Streak

#: Arms are known by their parameters.
_NOWHERE = torch.zeros(0, dtype=torch.float64)

#: Trials that ended with an outcome, after which an arm has no failures in a row any more.
_ENDED = (TrialStatus.COMPLETED, TrialStatus.EARLY_STOPPED)


def with_failed(
    pending: Mapping[str, list[ObservationFeatures]] | None, experiment: Experiment
) -> dict[str, list[ObservationFeatures]] | None:
    """Return what is pending with the arms whose latest trial failed, for each metric.

    After k failures in a row an arm is pending for the next 2^k − 1 trials, as a bandit leaves it out for as many
    rounds; see ``Streak``. Nothing else is learned of failures: Ax's models see outcomes alone.

    Args:
        pending: what Ax says is, by metric.
        experiment: its trials.
    """
    arms, streaks = {}, dict[str, Streak]()
    for index, trial in experiment.trials.items():
        for arm in trial.arms:
            arms[arm.signature] = arm
            before = streaks.get(arm.signature)
            if trial.status == TrialStatus.FAILED:
                count = 1 if before is None else before.count + 1
                streaks[arm.signature] = Streak(_NOWHERE, count, index)
            elif trial.status in _ENDED and before is not None:
                del streaks[arm.signature]
    now = len(experiment.trials)
    waiting = [key for key, each in streaks.items() if each.over > now]
    if not waiting:
        return None if pending is None else dict(pending)
    metrics = {each.signature for each in experiment.metrics.values()} | {*(pending or {})}
    failed = [ObservationFeatures.from_arm(arms[key]) for key in waiting]
    return {name: [*(pending or {}).get(name, []), *failed] for name in sorted(metrics)}
