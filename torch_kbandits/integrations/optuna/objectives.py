"""What a study seeks, and how its trials become rewards and outcomes of a bandit."""

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

#: What becomes of trials that were pruned.
Use = Literal["learn", "ignore"]

#: What there is to learn of a trial: its reward, NaN of a failure, and by name what else was measured.
TrialResult = tuple[float, Mapping[str, float]]


@dataclass(frozen=True)
class Objectives:
    """What a study seeks. The first value is the reward, the others are outcomes; so are constraints.

    Attributes:
        signs: for each value 1 where the study maximises, -1 where it minimises.
        limits: the names of the constraints that finished trials have, in alphabetical order.
    """

    signs: tuple[float, ...] = (1.0,)
    limits: tuple[str, ...] = ()

    @classmethod
    def of(cls, study: Study, trials: Iterable[FrozenTrial] = ()) -> Self:
        """Return what a study seeks, as far as its finished trials say."""
        signs = (1.0 if direction == StudyDirection.MAXIMIZE else -1.0 for direction in study.directions)
        limits = {name for each in trials if each.state.is_finished() for name in each.constraints}
        return cls(tuple(signs), tuple(sorted(limits)))

    @property
    def value_names(self) -> list[str]:
        """The outcomes that values beside the first one are."""
        return [f"objective {number}" for number in range(1, len(self.signs))]

    @property
    def limit_names(self) -> list[str]:
        """The outcomes that constraints are, in the order of ``limits``."""
        return [f"constraint {name}" for name in self.limits]

    def values(self, trial: FrozenTrial) -> list[float]:
        """Return the values of a trial, of all of which much is sought; none where it has none."""
        return [sign * value for sign, value in zip(self.signs, trial.values or (), strict=False)]

    def constraints(self, trial: FrozenTrial) -> dict[str, float]:
        """Return the constraints of a finished trial by the names of outcomes."""
        pairs = zip(self.limits, self.limit_names, strict=True)
        return {limit: float(trial.constraints[name]) for name, limit in pairs if name in trial.constraints}


class TrialReader:
    """Trials of a study one after another, in the order in which they ended, as what a bandit learns of them.

    A trial may be read again: then what was read of it counts once.
    """

    def __init__(self, objectives: Objectives, pruned: Use) -> None:
        self.objectives = objectives
        self._pruned: Use = pruned
        self._completed: list[tuple[float, int]] = []

    def read(self, trial: FrozenTrial) -> TrialResult | None:
        """Return what is to be learned of a trial, without what is infinite; None if nothing."""
        outcomes, values = self.objectives.constraints(trial), self.objectives.values(trial)
        failed = trial.state == TrialState.FAIL or math.inf in outcomes.values()
        if not (failed or values) or (trial.state == TrialState.PRUNED and self._pruned == "ignore"):
            return None
        failed = failed or not all(map(math.isfinite, values))
        reward = math.nan if failed else values[0]
        if not failed and trial.state == TrialState.PRUNED:
            if not self._completed:
                return None
            (worst, _), (median, _) = self._completed[0], self._completed[(len(self._completed) - 1) // 2]
            reward = min(max(reward, worst), median)
        elif not failed:
            place = bisect.bisect_left(self._completed, entry := (reward, trial.number))
            if self._completed[place : place + 1] != [entry]:
                self._completed.insert(place, entry)
            outcomes |= dict(zip(self.objectives.value_names, values[1:], strict=True))
        return reward, {name: value for name, value in outcomes.items() if math.isfinite(value)}
