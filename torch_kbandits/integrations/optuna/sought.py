"""What a study seeks, and how its trials become rewards and outcomes of a bandit."""

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.outcomes import REWARD, AtMost, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior

#: How constraints are kept; see ``Limit``.
ConstraintMode = Literal["optimistic", "safe"]

#: What becomes of trials that were pruned or failed.
Use = Literal["learn", "ignore"]


class Measured(NamedTuple):
    """What there is to learn of a trial: its reward, NaN of a failure, and by name what else was measured."""

    reward: float
    outcomes: Mapping[str, float]

    @property
    def failed(self) -> bool:
        """Whether the trial failed, or broke a limit without end."""
        return math.isnan(self.reward)


@dataclass(frozen=True)
class Sought:
    """What a study seeks. The first value is the reward, the others are outcomes; so are constraints.

    Attributes:
        signs: for each value 1 where the study maximises, -1 where it minimises.
        limits: the names of the constraints that finished trials have, in alphabetical order.
    """

    signs: tuple[float, ...]
    limits: tuple[str, ...] = ()

    @classmethod
    def by(cls, study: Study, trials: Iterable[FrozenTrial]) -> Self:
        """Return what a study seeks, as far as its finished trials say."""
        limits = {name for each in trials if each.state.is_finished() for name in each.constraints}
        return cls(tuple(map(_sign, study.directions)), tuple(sorted(limits)))

    @property
    def has_several(self) -> bool:
        """Whether there are several values."""
        return len(self.signs) > 1

    def values(self, trial: FrozenTrial) -> list[float]:
        """Return the values of a trial, of all of which much is sought; none where it has none."""
        return [sign * value for sign, value in zip(self.signs, trial.values or (), strict=False)]

    def constraints(self, trial: FrozenTrial) -> dict[str, float]:
        """Return the constraints of a finished trial that are limits, by name; infinite where one is not a number.

        Raises:
            InputError: if one is none; the message names it.
        """
        found = {}
        for name in trial.constraints.keys() & {*self.limits}:
            try:
                value = float(trial.constraints[name])
            except (TypeError, ValueError):
                raise InputError(
                    f"constraint {name!r} of trial {trial.number} must be a number, at most 0 where it is kept; got "
                    f"{checks.describe(trial.constraints[name])}."
                ) from None
            found[name] = math.inf if math.isnan(value) else value
        return found

    def words(
        self, prior: LearnedPrior, bare: LearnedPrior, keeping: "Keeping", names: Iterable[str]
    ) -> dict[str, Any]:
        """Return the words of the bandit.

        Args:
            prior: of values.
            bare: of constraints, of which nothing is clipped.
            keeping: how constraints are kept.
            names: of the parameters.
        """
        values, limits = [f"objective {number}" for number in range(1, len(self.signs))], list(map(_named, self.limits))
        outcomes = [Outcome(name, prior) for name in values] + [Outcome(name, bare) for name in limits]
        objective = Scalarization(dict.fromkeys([REWARD, *values], "maximize")) if self.has_several else None
        kept = [keeping.limit(name, tuple(names)) for name in limits]
        return {"outcomes": outcomes, "constraints": kept, "objective": objective}


class Reading:
    """Trials of a study one after another, in the order in which they ended, as what a bandit learns of them.

    Args:
        sought: what the study seeks.
        pruned: whether pruned trials are learned.
        failed: whether failed trials are learned.
    """

    def __init__(self, sought: Sought, pruned: Use, failed: Use) -> None:
        self.sought = sought
        self._pruned: Use = pruned
        self._failed: Use = failed
        self._completed: list[float] = []
        self._ranges: dict[str, tuple[float, float]] = {}

    def copied(self) -> "Reading":
        """Return one that goes on from here."""
        copy = Reading(self.sought, self._pruned, self._failed)
        copy._completed, copy._ranges = list(self._completed), dict(self._ranges)
        return copy

    def read(self, trial: FrozenTrial) -> Measured | None:
        """Return what is to be learned of a trial; None if nothing."""
        if (reward := self._reward(trial)) is None:
            return None
        found = Measured(reward, self._outcomes(trial))
        for name, value in found.outcomes.items():
            least, largest = self._ranges.get(name, (value, value))
            self._ranges[name] = min(least, value), max(largest, value)
        if trial.state == TrialState.COMPLETE and not found.failed:
            bisect.insort(self._completed, reward)
        return found

    def _reward(self, trial: FrozenTrial) -> float | None:
        """Return the reward of a trial, NaN of a failure. An infinite one is the worst or best that was finite."""
        if trial.state == TrialState.FAIL:
            return math.nan if self._failed == "learn" else None
        values, completed = self.sought.values(trial), self._completed
        if not values or (trial.state == TrialState.PRUNED and self._pruned == "ignore"):
            return None
        if math.inf in self.sought.constraints(trial).values():  # no value stands for how much it is broken
            return math.nan
        if trial.state == TrialState.COMPLETE and math.isfinite(values[0]):
            return values[0]
        if not completed:
            return None
        best = completed[-1 if trial.state == TrialState.COMPLETE else (len(completed) - 1) // 2]
        return min(max(values[0], completed[0]), best)

    def _outcomes(self, trial: FrozenTrial) -> dict[str, float]:
        """Return what else a trial measured, by the names of outcomes: values of which much is sought, and constraints.

        An infinite value counts as the nearest finite one so far, an infinite constraint as one of its sign and of the
        largest size so far; where there is none it was not measured. A trial that failed has constraints alone.
        """
        ranges, found = self._ranges, {_named(name): value for name, value in self.sought.constraints(trial).items()}
        for name in found.keys() & ranges.keys():
            size = max(map(abs, ranges[name]))
            if not math.isfinite(found[name]) and size:  # 0 has no sign
                found[name] = math.copysign(size, found[name])
        if trial.state != TrialState.FAIL and self.sought.has_several:
            values = self.sought.values(trial) or [-math.inf] * len(self.sought.signs)
            for name, value in ((f"objective {number}", value) for number, value in enumerate(values) if number):
                least, largest = ranges.get(name, (value, value))
                found[name] = min(max(value, least), largest) if math.isinf(value) else value
        return {name: value for name, value in found.items() if math.isfinite(value)}


@dataclass(frozen=True, eq=False)
class Keeping:
    """How constraints are kept.

    Attributes:
        mode: "optimistic" or "safe".
        safe: parameters of trials that are known to be safe; at least one of them for "safe".
        beta: the multiplier of the deviation of constraints, at least 0; None for 3 where they are to be kept safely,
            else 0, the posterior mean, since studies are short.

    Raises:
        InputError: if an argument does not fit.
    """

    mode: ConstraintMode = "optimistic"
    safe: Sequence[Mapping[str, Any]] = ()
    beta: float | None = None

    def __post_init__(self) -> None:
        checks.one_of("constraint_mode", self.mode, ("optimistic", "safe"))
        if self.beta is not None:
            object.__setattr__(self, "beta", checks.non_negative("constraint_beta", self.beta))
        if any(not isinstance(each, Mapping) for each in self.safe):
            raise InputError("safe_params must be a list of mappings from the names of parameters to values.")
        if self.is_safe != bool(self.safe):
            raise InputError(
                'constraint_mode="safe" starts from trials known to be safe, and nothing else does: give both or '
                'neither, constraint_mode="safe", safe_params=[{"x": 0.5}].'
            )

    @property
    def is_safe(self) -> bool:
        """Whether only what is surely feasible is suggested."""
        return self.mode == "safe"

    def start(self, number: int) -> Mapping[str, Any]:
        """Return the safe parameters of a trial of a number, before anything is known of constraints."""
        return self.safe[number % len(self.safe)]

    def limit(self, name: str, names: Sequence[str]) -> AtMost:
        """Return the limit on an outcome, among parameters of these names."""
        if not self.is_safe:
            return AtMost(name, 0.0, mode="optimistic", beta=self.beta or 0.0)
        known = [{key: each[key] for key in names if key in each} for each in self.safe]
        return AtMost(name, 0.0, beta=self.beta, safe_seed=known)


def _sign(direction: StudyDirection) -> float:
    return 1.0 if direction == StudyDirection.MAXIMIZE else -1.0


def _named(limit: str) -> str:
    """Return the name of the outcome of a constraint."""
    return f"constraint {limit}"
