"""What a study seeks, and how its trials become rewards and outcomes of a bandit."""

import bisect
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from torch_kbandits import checks
from torch_kbandits.errors import InputError

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
        """Return the constraints of a finished trial by the names of outcomes; infinite where one is not a number.

        Raises:
            InputError: if one is none; the message names it.
        """
        found = {}
        for name, limit in zip(self.limits, self.limit_names, strict=True):
            if name in trial.constraints:
                try:
                    value = float(trial.constraints[name])
                except (TypeError, ValueError):
                    raise InputError(
                        f"constraint {name!r} of trial {trial.number} must be a number, at most 0 where it is kept; "
                        f"got {checks.describe(trial.constraints[name])}."
                    ) from None
                found[limit] = math.inf if math.isnan(value) else value
        return found


class TrialReader:
    """Trials of a study one after another, in the order in which they ended, as what a bandit learns of them.

    A trial may be read again: then what was read of it counts once.

    Args:
        objectives: what the study seeks.
        pruned: whether pruned trials are learned.
    """

    def __init__(self, objectives: Objectives, pruned: Use) -> None:
        self.objectives = objectives
        self._pruned: Use = pruned
        self._completed: list[tuple[float, int]] = []
        self._ranges: dict[str, tuple[float, float]] = {}

    def read(self, trial: FrozenTrial) -> TrialResult | None:
        """Return what is to be learned of a trial; None if nothing."""
        constraints = self.objectives.constraints(trial)
        reward = self._reward(trial, constraints)
        if reward is None:
            return None
        outcomes = self._outcomes(trial, constraints)
        for name, value in outcomes.items():
            least, largest = self._ranges.get(name, (value, value))
            self._ranges[name] = min(least, value), max(largest, value)
        if trial.state == TrialState.COMPLETE and not math.isnan(reward):
            place = bisect.bisect_left(self._completed, entry := (reward, trial.number))
            if self._completed[place : place + 1] != [entry]:
                self._completed.insert(place, entry)
        return reward, outcomes

    def _reward(self, trial: FrozenTrial, constraints: Mapping[str, float]) -> float | None:
        """Return the reward of a trial, NaN of a failure. An infinite one is the worst or best that was finite."""
        if trial.state == TrialState.FAIL:
            return math.nan
        values, completed = self.objectives.values(trial), self._completed
        if not values or (trial.state == TrialState.PRUNED and self._pruned == "ignore"):
            return None
        if math.inf in constraints.values():  # no value stands for how much it is broken
            return math.nan
        if trial.state == TrialState.COMPLETE and math.isfinite(values[0]):
            return values[0]
        if not completed:
            return None
        best = completed[-1 if trial.state == TrialState.COMPLETE else (len(completed) - 1) // 2]
        return min(max(values[0], completed[0][0]), best[0])

    def _outcomes(self, trial: FrozenTrial, constraints: Mapping[str, float]) -> dict[str, float]:
        """Return what else a trial measured: values of which much is sought, and constraints.

        An infinite value counts as the nearest finite one so far, an infinite constraint as one of its sign and of the
        largest size so far; where there is none it was not measured. A trial that failed has constraints alone.
        """
        found = dict[str, Any](constraints)
        for name in found.keys() & self._ranges.keys():
            size = max(map(abs, self._ranges[name]))
            if not math.isfinite(found[name]) and size:  # 0 has no sign
                found[name] = math.copysign(size, found[name])
        names = self.objectives.value_names
        if trial.state != TrialState.FAIL and names:
            values = self.objectives.values(trial) or [-math.inf] * len(self.objectives.signs)
            for name, value in zip(names, values[1:], strict=True):
                least, largest = self._ranges.get(name, (value, value))
                found[name] = min(max(value, least), largest) if math.isinf(value) else value
        return {name: value for name, value in found.items() if math.isfinite(value)}
