"""What a study seeks: its directions and constraints, as the reward, outcomes, limits and objective of a bandit."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from torch_kbandits import checks
from torch_kbandits.errors import InputError
from torch_kbandits.outcomes import REWARD, AtMost, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior

#: Of values of one name the least and the largest that were finite.
Range = tuple[float, float]

#: How constraints are kept; see ``Limit``.
ConstraintMode = Literal["optimistic", "safe"]


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
        signs = tuple(1.0 if each == StudyDirection.MAXIMIZE else -1.0 for each in study.directions)
        return cls(
            signs, tuple(sorted({name for each in trials if each.state.is_finished() for name in each.constraints}))
        )

    @property
    def has_several(self) -> bool:
        """Whether there are several values."""
        return len(self.signs) > 1

    def reward(self, trial: FrozenTrial) -> float | None:
        """Return the first value, much of which is sought; None if there is none."""
        return self.signs[0] * trial.values[0] if trial.values else None

    def outcomes(self, trial: FrozenTrial, known: Mapping[str, Range]) -> dict[str, float]:
        """Return what else a trial measured, by the names of outcomes: values of which much is sought, and constraints.

        An infinite value counts as the nearest finite one so far, an infinite constraint as one of its sign and of the
        largest size so far; where there is none it was not measured. A trial that failed has constraints alone.

        Args:
            trial: that is finished.
            known: the ranges so far.
        """
        found = {f"constraint {name}": value for name, value in self.constraints(trial).items()}
        for name in found.keys() & known.keys():
            size = max(map(abs, known[name]))
            if not math.isfinite(found[name]) and size:  # 0 has no sign
                found[name] = math.copysign(size, found[name])
        for number, sign in list(enumerate(self.signs))[1:] if trial.state != TrialState.FAIL else ():
            name, value = f"objective {number}", sign * trial.values[number] if trial.values else -math.inf
            found[name] = (
                min(max(value, known[name][0]), known[name][1]) if math.isinf(value) and name in known else value
            )
        return {name: value for name, value in found.items() if math.isfinite(value)}

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

    def is_broken_without_end(self, trial: FrozenTrial) -> bool:
        """Say whether a constraint of a finished trial is infinite: then no value stands for how much it is broken."""
        return math.inf in self.constraints(trial).values()

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
        values = [f"objective {number}" for number in range(1, len(self.signs))]
        outcomes = [Outcome(name, prior) for name in values] + [
            Outcome(f"constraint {name}", bare) for name in self.limits
        ]
        objective = Scalarization(dict.fromkeys([REWARD, *values], "maximize")) if self.has_several else None
        limits = [keeping.limit(f"constraint {name}", tuple(names)) for name in self.limits]
        return {"outcomes": outcomes, "constraints": limits, "objective": objective}


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
