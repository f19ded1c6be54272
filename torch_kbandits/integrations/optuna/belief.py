"""What the trials of a study say, told to a bandit one after another."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import torch
from optuna.trial import FrozenTrial, TrialState
from torch import Tensor

from torch_kbandits.bandit import Bandit
from torch_kbandits.errors import InfeasibleError, InputError
from torch_kbandits.integrations.optuna.sought import Keeping, Measured, Reading
from torch_kbandits.integrations.optuna.trees import Tree
from torch_kbandits.integrations.tuning import is_spread
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.observations.clock import Clock
from torch_kbandits.observations.history import History
from torch_kbandits.outcomes import Scalarization
from torch_kbandits.spaces import ParameterSpace

#: So many of the latest failed trials stay pending, each at the cost of a hallucination in every suggestion.
_FAILED = 20

#: By so much of the range of the front the reference of its scalarisation lies below the worst of it.
_MARGIN = 0.1

_Found = tuple[FrozenTrial, Tensor, Measured]


class StudyBelief:
    """A bandit that was told the finished trials of a study, as far as they lie in one search space.

    Trials are told in the order in which they ended. So a belief that follows a study is that of one who reads all its
    trials at once, and nothing else has to be stored.

    Args:
        tree: the search space: the parameters of all trials, and those on which others depend.
        space: the same, as a space of parameters.
        bandit: one that was told nothing, on that space.
        reading: how trials become rewards.
        keeping: how constraints are kept.
        num_initial: trials that are learned before the bandit chooses.
        seed: of the first points, which cover the space evenly.
        dates: whether the bandit's time is that of the calendar.
        waits: whether what failed is not learned and stays pending.
    """

    def __init__(
        self,
        tree: Tree,
        space: ParameterSpace,
        bandit: Bandit,
        reading: Reading,
        keeping: Keeping,
        *,
        num_initial: int,
        seed: int,
        dates: bool,
        waits: bool,
    ) -> None:
        self.tree, self.space, self.bandit, self.reading, self.keeping = tree, space, bandit, reading, keeping
        self.num_initial, self.seed, self._dates, self._waits = num_initial, seed, dates, waits
        self._read: dict[int, FrozenTrial] = {}
        self._numbers: list[int] = []

    @property
    def num_read(self) -> int:
        """How many trials were read."""
        return len(self._read)

    def follows(self, finished: Mapping[int, FrozenTrial]) -> bool:
        """Whether the trials that were read are all among those of a study, by their numbers, and as they were."""
        found = ((trial, finished.get(number)) for number, trial in self._read.items())
        return all(other is trial or other == trial for trial, other in found)

    def learn(self, finished: Iterable[FrozenTrial]) -> None:
        """Tell the bandit the finished trials that it does not know.

        Those of an old study are replayed, which makes of all fits the last alone; see ``Bandit.replay``.
        """
        new = [trial for trial in finished if trial.number not in self._read]
        new.sort(key=lambda trial: (trial.datetime_complete or datetime.min, trial.number))
        if self.bandit.num_observations == 0 and len(found := self._found(new, reading := self.reading.copied())) > 1:
            self.bandit.replay(self._history(found))
            self._note(found, reading)
        else:
            for trial in new:
                found = self._found([trial], reading := self.reading.copied())
                for _, point, measured in found:
                    words: dict[str, Any] = {"failed": True} if measured.failed else {"y": measured.reward}
                    self.bandit.tell(point, time=self._time(trial), outcomes=measured.outcomes or None, **words)
                self._note(found, reading)
        self._read |= {trial.number: trial for trial in new}

    def suggest(
        self, trial: FrozenTrial, trials: Sequence[FrozenTrial], suggested: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return a configuration for a running trial, after reading what is new.

        Args:
            trial: that will be evaluated there.
            trials: all trials of the study that wait no more.
            suggested: by their numbers, what was suggested to running trials and is not all stored yet.
        """
        self.bandit.forget()
        self.learn(other for other in trials if other.state.is_finished())
        if self.keeping.is_safe and not self.reading.sought.limits:
            return {
                name: value for name, value in self.keeping.start(trial.number).items() if name in self.space.parameters
            }
        if not self.keeping.is_safe and is_spread(trial.number, self.bandit.num_observations, self.num_initial):
            return self._spread(trial)
        time = self._not_before_the_last(trial.datetime_start or datetime.now())
        others = [*self._failed(trials), *(o for o in trials if not o.state.is_finished() and o.number != trial.number)]
        points = [point for other in others if (point := self._point(other, suggested.get(other.number))) is not None]
        if points:
            self.bandit.mark_pending(torch.cat(points), time=time)
        try:
            return self.bandit.ask(time=time)[0]
        except InfeasibleError:
            if self.keeping.is_safe:
                raise
            return self._spread(trial)

    def _spread(self, trial: FrozenTrial) -> dict[str, Any]:
        """Return one of the configurations that cover the space evenly."""
        # By the trial's number: if its evaluation fails, the next one is elsewhere.
        first = self.space.sample(1, generator_for(self.seed, 0, "first trials"), first=trial.number)
        return self.space.decode(first)[0]

    def recommend(self, front: Collection[int] = ()) -> int:
        """Return the number of the trial of the largest posterior mean, the first of those that are equal.

        Args:
            front: the trials to choose from, of several objectives; all where none of them was learned.
        """
        history = self.bandit.history
        failed = history.Y.isnan().tolist()
        rows = [row for row, number in enumerate(self._numbers) if number in front and not failed[row]]
        if rows:
            return self._numbers[rows[int(self._worth(history.X[rows]).argmax())]]
        best = self.bandit.recommend(time=self._not_before_the_last(datetime.now()))
        played = zip(self._numbers, self.bandit.candidates.actions(history.X), failed, strict=True)
        return next(number for number, x, lost in played if x == best and not lost)

    def _worth(self, X: Tensor) -> Tensor:
        """Return the posterior means of several objectives at points (n, d), scalarised with equal weights, (n,)."""
        goals = cast(Scalarization, self.bandit.objective)
        models = [self.bandit.model, *map(self.bandit.outcome_model, goals.outcomes)]
        with torch.no_grad():
            scales = [cast(Tensor, model.covar_module(X, diag=True)).max().sqrt() for model in models]
            means = [model.posterior(X).mean.squeeze(-1) for model in models]
        values = torch.stack([mean / scale for mean, scale in zip(means, scales, strict=True)])
        worst, best = values.amin(-1), values.amax(-1)
        return goals.value(values, goals.sought(), worst - _MARGIN * (best - worst))

    def _found(self, ended: Sequence[FrozenTrial], reading: Reading) -> list[_Found]:
        """Return what there is to learn of trials: each with its point (1, d) and what was measured."""
        placed = ((trial, self._point(trial)) for trial in ended)
        read = ((trial, point, reading.read(trial)) for trial, point in placed if point is not None)
        return [(trial, point, measured) for trial, point, measured in read if measured is not None]

    def _history(self, found: Sequence[_Found]) -> History:
        """Return trials as the rounds of a bandit that is told one after another."""
        X, rounds = torch.cat([point for _, point, _ in found]), torch.arange(len(found))
        times = [Clock().moved_to(self._time(trial), number).now for number, (trial, _, _) in enumerate(found)]
        names, rewards = self.bandit.outcomes, X.new_tensor([measured.reward for _, _, measured in found])
        outcomes = X.new_tensor([[measured.outcomes.get(name, math.nan) for name in names] for _, _, measured in found])
        return History(X, rewards, rounds, times=X.new_tensor(times), outcomes=outcomes if names else None)

    def _note(self, found: Sequence[_Found], reading: Reading) -> None:
        """Note trials of which the bandit was told, after which trials are read so."""
        self.reading = reading
        self._numbers += [trial.number for trial, _, _ in found]
        self._read |= {trial.number: trial for trial, _, _ in found}

    def _time(self, trial: FrozenTrial) -> datetime | None:
        """Return when a trial ended; None where time is counted in trials."""
        return trial.datetime_complete if self._dates else None

    def _failed(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return trials that failed and were not learned: their points stay pending, to be tried last again."""
        if not self._waits:
            return []
        return [trial for trial in trials if trial.state == TrialState.FAIL][-_FAILED:]

    def _point(self, trial: FrozenTrial, suggested: Mapping[str, Any] | None = None) -> Tensor | None:
        """Return the encoding (1, d) of a trial, or None if it does not lie in the space.

        Parameters that a trial failed without are drawn: whatever they were, it would have failed.
        """
        known = {**(suggested or {}), **trial.params}
        if trial.state == TrialState.FAIL and known.keys() & self.tree.distributions.keys():
            drawn = self.space.sample(1, generator_for(self.seed, trial.number, "not suggested"))
            known = self.space.decode(drawn)[0] | known
        try:
            return self.space.encode([self.tree.values_of(known, trial.distributions)])
        except InputError:  # one is missing, or an enqueued value is outside its range, which Optuna lets pass
            return None

    def _not_before_the_last(self, time: datetime) -> datetime | None:
        """Return a time, but not before the last reward; None where time is counted in trials."""
        if not self._dates:
            return None
        ends = (trial.datetime_complete for trial in self._read.values())
        return max((end for end in ends if end is not None and end > time), default=time)
