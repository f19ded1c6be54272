"""What the trials of a study say, told to a bandit one after another."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast

import torch
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from torch_kbandits import checks
from torch_kbandits.bandit import Bandit
from torch_kbandits.bandit.choices import objectives_of
from torch_kbandits.errors import InfeasibleError, InputError
from torch_kbandits.integrations.optuna.conditional_space import ConditionalSpace
from torch_kbandits.integrations.tuning import is_spread
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import Scalarization

#: The attribute, of ``trial.set_user_attr``, that is the noise variance of a trial's first value, in its units squared.
NOISE = "kbandits:noise"
#: The outcome that is what a trial cost.
COST = "cost"
#: What becomes of trials that were pruned.
Use = Literal["learn", "ignore"]


class Objectives(NamedTuple):
    """What a study seeks: for each value, first the reward, then outcomes, 1 or -1, and the names of constraints."""

    signs: tuple[float, ...] = (1.0,)
    constraints: tuple[str, ...] = ()

    @classmethod
    def of(cls, study: Study, trials: Iterable[FrozenTrial] = ()) -> "Objectives":
        """Return what a study seeks, as far as its finished trials say."""
        signs = (1.0 if direction == StudyDirection.MAXIMIZE else -1.0 for direction in study.directions)
        names = {name for each in trials if each.state.is_finished() for name in _constraints(each)}
        return cls(tuple(signs), tuple(sorted(names)))

    @property
    def others(self) -> list[str]:
        """The outcomes that values beside the first one are."""
        return [f"objective {number}" for number in range(1, len(self.signs))]

    @property
    def limits(self) -> list[str]:
        """The outcomes that constraints are."""
        return [f"constraint {name}" for name in self.constraints]


@dataclass(eq=False)
class StudyBandit:
    """A bandit that was told the finished trials of a study, as far as they lie in one search space.

    Trials are told in the order in which they ended. So a bandit that follows a study is that of one who reads all its
    trials at once, and nothing else has to be stored. See ``KernelBanditSampler`` for the last five.
    """

    parameters: ConditionalSpace
    objectives: Objectives
    bandit: Bandit
    pruned: Use
    num_initial: int
    safe: Sequence[Mapping[str, Any]]
    noise: Callable[[FrozenTrial], float | None] | None = None
    cost: Callable[[FrozenTrial], float | None] | None = None

    def __post_init__(self) -> None:
        self._space = self.parameters.space()
        #: The trials that were read, and the rewards of those that were completed, by number; the numbers of all told.
        self.read: dict[int, FrozenTrial] = {}
        self._completed: dict[int, float] = {}
        self._numbers: list[int] = []

    def follows(self, finished: Mapping[int, FrozenTrial]) -> bool:
        """Whether the trials that were read are all among those of a study, by their numbers, and as they were."""
        found = ((trial, finished.get(number)) for number, trial in self.read.items())
        return all(other is trial or other == trial for trial, other in found)

    def learn(self, finished: Iterable[FrozenTrial]) -> None:
        """Tell the bandit the finished trials that it does not know; the first ones at once, by ``replay``."""
        new = [trial for trial in finished if trial.number not in self.read]
        new.sort(key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))
        placed = [(trial, point) for trial in new if (point := self._point(trial)) is not None]
        found = [(trial, point, *result) for trial, point in placed if (result := self._result(trial)) is not None]
        if self.bandit.num_observations == 0 and len(found) > 1:
            X, names = torch.cat([point for _, point, *_ in found]), self.bandit.outcomes
            Y = X.new_tensor([reward for *_, reward, _ in found])
            columns = X.new_tensor([[outcomes.get(name, math.nan) for name in names] for *_, outcomes in found])
            rounds, noise = torch.arange(len(found)), [self._noise(trial) or math.nan for trial, *_ in found]
            told = History(X, Y, rounds, times=rounds.double(), outcomes=columns if names else None)
            self.bandit.replay(told._replace(noise=None if all(map(math.isnan, noise)) else X.new_tensor(noise)))
            self._numbers += [trial.number for trial, *_ in found]
            found = []
        for trial, point, reward, outcomes in found:
            words: Any = {"outcomes": outcomes or None, "failed": math.isnan(reward), "noise": self._noise(trial)}
            self.bandit.tell(point, reward, **words)
            self._numbers.append(trial.number)
            self.read[trial.number] = trial
        self.read |= {trial.number: trial for trial in new}

    def suggest(
        self, trial: FrozenTrial, trials: Sequence[FrozenTrial], suggested: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return a configuration for a running trial, given all, and by number what was suggested to those running."""
        self.bandit.forget()
        self.learn(other for other in trials if other.state.is_finished())
        if self.safe and not self.objectives.constraints:
            safe = self.safe[trial.number % len(self.safe)]
            return {name: value for name, value in safe.items() if name in self._space.parameters}
        if not self.safe and is_spread(self.bandit, trial.number, self.num_initial):
            return self._spread(trial)
        others = [other for other in trials if not other.state.is_finished() and other.number != trial.number]
        points = [point for other in others if (point := self._point(other, suggested.get(other.number))) is not None]
        if points:
            self.bandit.mark_pending(torch.cat(points))
        try:
            return self.bandit.ask()[0]
        except InfeasibleError:
            if self.safe:
                raise
            return self._spread(trial)

    def recommend(self, front: Collection[int] = ()) -> int:
        """Return the number of the trial of the largest posterior mean, the first of equals, if need be of a front."""
        history = self.bandit.history
        succeeded = [row for row, failed in enumerate(history.Y.isnan().tolist()) if not failed]
        rows = [row for row in succeeded if self._numbers[row] in front]
        if rows:
            config, state = self.bandit._config, self.bandit._state
            objectives = objectives_of(config, state, cast(Scalarization, config.objective)).plain
            return self._numbers[rows[int(objectives.value([*objectives.means(history.X[rows])], 0).argmax())]]
        best, played = self.bandit.recommend(), self.bandit.candidates.actions(history.X)
        return next(self._numbers[row] for row in succeeded if played[row] == best)

    def _spread(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return one of the configurations that cover the space evenly, by the number of a trial."""
        first = self._space.sample(1, generator_for(self.bandit.seed, 0, "first trials"), first=trial.number)
        return self._space.decode(first)[0]

    def _point(self, trial: FrozenTrial, suggested: Mapping[str, Any] | None = None) -> Tensor | None:
        """Return the encoding (1, d) of a trial, or None if it does not lie in the space."""
        known = {**(suggested or {}), **trial.params}
        if trial.state == TrialState.FAIL and known.keys() & self.parameters.distributions.keys():
            # Whatever the parameters were that it failed without, it would have failed.
            drawn = self._space.sample(1, generator_for(self.bandit.seed, trial.number, "not suggested"))
            known = self._space.decode(drawn)[0] | known
        try:
            return self._space.encode([self.parameters.values_of(known, trial.distributions)])
        except InputError:  # one is missing, or an enqueued value is outside its range, which Optuna lets pass
            return None

    def _noise(self, trial: FrozenTrial) -> float | None:
        """Return the noise variance of a trial's first value, None where nobody says it."""
        noise = trial.user_attrs.get(NOISE) if self.noise is None else self.noise(trial)
        return None if noise is None else checks.positive(f"the noise of trial {trial.number}", noise)

    def _result(self, trial: FrozenTrial) -> tuple[float, dict[str, float]] | None:
        """Return the reward of a finished trial, NaN of a failure, and its outcomes; None if nothing is learned."""
        is_pruned = trial.state == TrialState.PRUNED
        limits = zip(self.objectives.constraints, self.objectives.limits, strict=True)
        known = _constraints(trial)
        outcomes = {limit: float(known[name]) for name, limit in limits if name in known}
        values = [sign * value for sign, value in zip(self.objectives.signs, trial.values or (), strict=False)]
        failed = trial.state == TrialState.FAIL or math.inf in outcomes.values()
        if not (failed or values) or (is_pruned and self.pruned == "ignore"):
            return None
        reward = math.nan
        if not failed and all(map(math.isfinite, values)):
            reward, *others = values
            if is_pruned and not self._completed:
                return None
            if is_pruned:
                earlier = sorted(self._completed.values())
                reward = min(max(reward, earlier[0]), earlier[(len(earlier) - 1) // 2])
            else:
                self._completed[trial.number] = reward
                outcomes |= dict(zip(self.objectives.others, others, strict=True))
        cost = None if self.cost is None else self.cost(trial)
        if cost is not None:
            outcomes[COST] = checks.non_negative(f"the cost of trial {trial.number}", cost)
        return reward, {name: value for name, value in outcomes.items() if math.isfinite(value)}


def _constraints(trial: FrozenTrial) -> Mapping[str, float]:
    """Return the constraints of a trial by name; Optuna below 5 numbers them, and shows them to samplers alone."""
    known = getattr(trial, "constraints", None)
    if known is None:
        known = {str(number): value for number, value in enumerate(trial.system_attrs.get("constraints") or ())}
    return known
