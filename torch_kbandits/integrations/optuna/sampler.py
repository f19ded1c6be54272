"""A sampler of Optuna that plays a kernelized bandit."""

import math
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from gpytorch.kernels import Kernel
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.samplers._base import _process_constraints_after_trial  # as Optuna's samplers have it, which store alike
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from torch_kbandits import checks
from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Configurations
from torch_kbandits.confidence import Width
from torch_kbandits.errors import EmptyHistoryError, InputError, KernelBanditWarning
from torch_kbandits.integrations.optuna.belief import StudyBelief
from torch_kbandits.integrations.optuna.sought import ConstraintMode, Keeping, Reading, Sought, Use
from torch_kbandits.integrations.optuna.trees import Tree, tree_of
from torch_kbandits.integrations.tuning import tuning_bandit, tuning_prior
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import generator_for
from torch_kbandits.priors import LearnedPrior
from torch_kbandits.spaces import Float, ParameterSpace

#: What is played of one objective, and of several.
_SEEKING, _WEIGHING = "gp-ei", "gp-ucb"

#: So many beliefs are kept, for a sampler that serves several studies or the brackets of a pruner in turn.
_REMEMBERED = 8

#: Narrower than elsewhere in the package: studies are short. It found more than 2 did on three problems without noise.
_BETA = 1.0

_STARTED = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

Clock = Literal["trials", "dates"]


class KernelBanditSampler(BaseSampler):
    """Optuna's trials, chosen by a kernelized bandit whose kernel and noise are fitted: see ``LearnedPrior``.

    Parameters that completed trials have, with the same range, are chosen together: those that all have, and those of
    which the value of another says which trials have them, see ``tree_of``. The others are sampled uniformly, each on
    its own, or by ``independent_sampler``. Trials that run meanwhile, in threads or in other
    processes with the same storage, count as if they had returned their posterior mean.

    What is believed follows from the trials of the study alone. So a study in a storage goes on after a crash, with a
    new sampler of the same seed, as it would have gone on without. That holds to rounding where trials run one by one.

    Of several objectives each trial seeks the best of their upper bounds, weighed at random and in units of each one's
    prior deviation, so that trials cover the Pareto front; see ``Scalarization``. Constraints, of ``constraints_func``
    or of ``trial.set_constraint``, have posteriors of their own: a trial is tried only where all of them are at most 0
    by these, or, where that is nowhere so, where it covers the space.

    Values may be noisy, and a configuration may come again. Infinite values count as the worst (or best) finite value
    so far. NaN fails its trial, as always in Optuna. A constraint of infinity is a failure, whatever ``failed`` says:
    such a trial is never recommended.

    Args:
        algorithm: a registry name of the bandit, such as "gp-ei", "ek-ucb" or "gp-ts"; "gp-ei" unless given, and of
            several objectives "gp-ucb".
        beta: the multiplier of the standard deviation, or a ``Width``; 1 unless given, where the algorithm takes one.
        kernel: a GPyTorch kernel on the encoded space, or a function that makes one from the number of coordinates; its
            free parameters are fitted, and one without any is in units of values squared; ``default_kernel`` with a
            length scale for each parameter unless given.
        memory: which trials count, where the objective changes, such as ``SlidingWindow(100)``.
        clock: the time of the memory: "trials", counted as they are learned, or "dates", in seconds.
        clip: whether values far worse than the others count as less far; see ``LearnedPrior``.
        n_startup_trials: trials learned before the bandit plays, at least 2; until then points cover the space evenly.
            Later every eighth trial still does.
        pruned: "learn" pruned trials, at their last intermediate value, but no better than the median of the completed
            trials and no worse than the worst of them; or "ignore" them.
        failed: "learn" from failed trials how likely configurations are to fail: none gets an invented value, those
            that fail more likely than not are avoided, and what failed just now waits; see ``Bandit.tell``. Or "ignore"
            them, as Optuna's samplers do; the latest only count as pending.
        constraints_func: takes a finished trial and returns numbers of which each is to be at most 0, as in Optuna's
            samplers; they are stored with the trial.
        constraint_mode: "optimistic", or "safe": only what is surely feasible is tried; see ``Limit``.
        constraint_beta: the multiplier of the deviation of constraints; 3 for "safe" unless given, else 0, the
            posterior mean: a trial that may just be feasible tells little in a short study.
        safe_params: for "safe", parameters of trials that are known to be feasible. They come first.
        independent_sampler: for parameters that are not chosen together.
        warn_independent_sampling: whether the first use of that is warned about, for each parameter, and that
            ``recommend`` compares only some of the trials.
        seed: addresses all randomness; None for a random one.
        settings: further words of the algorithm. A dictionary that can be capped stops at 400 points unless
            ``max_dictionary`` (None for no cap) and ``when_full`` say otherwise.

    Raises:
        InputError: if an argument does not fit.

    Cost of a suggestion: that of the bandit, flat in the number of trials, and a look at each trial.
    """

    def __init__(
        self,
        *,
        algorithm: str | None = None,
        beta: float | Width | None = None,
        kernel: Kernel | Callable[[int], Kernel] | None = None,
        memory: Memory | None = None,
        clock: Clock = "trials",
        clip: bool = True,
        n_startup_trials: int = 10,
        pruned: Use = "learn",
        failed: Use = "learn",
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        constraint_mode: ConstraintMode = "optimistic",
        constraint_beta: float | None = None,
        safe_params: Sequence[Mapping[str, Any]] = (),
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        for name, value, words in (("clock", clock, Clock), ("pruned", pruned, Use), ("failed", failed, Use)):
            checks.one_of(name, value, get_args(words))
        if theirs := sorted({"outcomes", "constraints", "objective"} & settings.keys()):
            raise InputError(f"Leave out {theirs[0]}: what is sought, and within which limits, the study says.")
        if constraints_func is not None and not callable(constraints_func):
            raise InputError(f"constraints_func must be a function, got {checks.describe(constraints_func)}.")
        if (n_startup_trials := checks.positive_integer("n_startup_trials", n_startup_trials)) < 2:
            raise InputError(
                f"n_startup_trials must be at least 2, since a fit needs two values; got {n_startup_trials}."
            )
        if clock == "dates" and memory is None:
            raise InputError('clock="dates" is the time of a memory: give memory= as well, or leave it out.')
        if independent_sampler is not None:
            checks.instance("independent_sampler", independent_sampler, BaseSampler, "a sampler of Optuna")
        if kernel is not None and not callable(kernel):
            raise InputError(f"kernel must be a GPyTorch kernel or make one, got {checks.describe(kernel)}.")
        self._algorithm, self._beta = algorithm, beta
        self._words = {"memory": memory} | settings
        self._constraints_func = constraints_func
        self._keeping = Keeping(constraint_mode, list(safe_params), constraint_beta)
        self._kernel, self._clip, self._num_initial = kernel, clip, n_startup_trials
        self._clock = clock
        self._pruned: Use = pruned
        self._failed: Use = failed
        self._independent = independent_sampler
        self._warn = warn_independent_sampling
        self._warned: set[str] = set()
        self._warned_of_kinds = False
        self._seed = secrets.randbits(63) if seed is None else seed
        self._suggested: dict[tuple[str, int], dict[str, Any] | None] = {}
        self._forget_studies()
        self._bandit_on(ParameterSpace({"x": Float(0.0, 1.0)}), Sought((1.0,)))  # refuses words that do not fit

    # ---------------------------------------------------------------- what Optuna calls

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that completed trials have, with the same range of several values: see ``tree_of``."""
        return dict(tree_of(_completed(study)).distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of these parameters for a trial.

        Raises:
            InputError: if a parameter has a range that cannot be searched, or the algorithm is not for several
                objectives.
            InfeasibleError: if in "safe" mode nothing is known to be feasible.
        """
        with self._lock:
            trials = study.get_trials(deepcopy=False, states=_STARTED)
            running = {other.number for other in trials if other.state == TrialState.RUNNING}
            mine = {number: values for (name, number), values in self._suggested.items() if name == study.study_name}
            for number in mine.keys() - running:
                del self._suggested[study.study_name, number]
            if not search_space:
                completed = any(other.state == TrialState.COMPLETE for other in trials)
                self._suggested[study.study_name, trial.number] = {} if completed else None
                return {}
            belief = self._belief(study, tree_of(_completed(study), search_space), trials)
            values = belief.suggest(trial, trials, {number: values or {} for number, values in mine.items()})
            self._suggested[study.study_name, trial.number] = values
            return dict(values)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a value of one parameter, uniform on its scale, or by the independent sampler.

        Raises:
            InputError: if its range cannot be searched.
        """
        if self._keeping.is_safe and param_name in (safe := self._keeping.start(trial.number)):
            return safe[param_name]
        self._warn_once(study, trial, param_name, param_distribution)
        if self._independent is not None:
            return self._independent.sample_independent(study, trial, param_name, param_distribution)
        space = Tree({param_name: param_distribution}).space()
        point = space.sample(1, generator_for(self._seed, trial.number, f"parameter {param_name}"))
        return space.decode(point)[0][param_name]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Let the independent sampler know that a trial begins."""
        if self._independent is not None:
            self._independent.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Store the constraints of a trial that ended, and let the independent sampler know."""
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Take another seed from now on, as Optuna asks for in every thread of ``n_jobs``.

        A belief in force keeps its seed, so that it need not be built again. Threads share it under a lock, and a copy
        of the sampler, which starts without one, gets the new seed.
        """
        self._seed = secrets.randbits(63)
        if self._independent is not None:
            self._independent.reseed_rng()

    # ---------------------------------------------------------------- what is believed

    def recommend(self, study: Study) -> FrozenTrial:
        """Return the trial to use in the end: that of the largest posterior mean, of those that are likely feasible.

        With noise ``study.best_trial`` is the luckiest one, and this one the better guess. Of several objectives it is
        one of ``study.best_trials``, without infinitely bad ones if there are others: the best by posterior means with
        equal weights, see ``Scalarization``. Where no trial is known to be feasible it is the best of all by these.

        Where completed trials differ in their parameters or ranges, those with the parameters of ``study.best_trial``,
        or of the first of ``study.best_trials``, are compared, and no others: what only some trials have would be noise
        to the rest. A warning says so, once.

        Raises:
            EmptyHistoryError: if no trial is completed, or they have no parameters in common.
            InfeasibleError: if none is likely feasible.
        """
        trials = study.get_trials(deepcopy=False, states=_STARTED)
        tree = tree_of(_completed(study))
        finished = [trial for trial in trials if trial.state.is_finished()]
        completed = [trial for trial in finished if trial.state == TrialState.COMPLETE]
        front = _front(study)
        with self._lock:
            if all(map(tree.has_all_of, completed)):
                belief = self._belief(study, tree, trials) if tree.distributions else None
            else:
                space = _searched(_leading(study, front, completed))
                finished = [trial for trial in finished if _searched(trial) == space]
                self._warn_of_kinds(len(finished), len(completed))
                belief = self._new_belief(Sought.by(study, trials), Tree(space)) if space else None
            if belief is not None:
                belief.learn(finished)
            if belief is None or not belief.bandit.num_observations:
                raise EmptyHistoryError("No completed trials have parameters in common, so there is none to recommend.")
            number = belief.recommend([trial.number for trial in front])
        return next(trial for trial in study.get_trials() if trial.number == number)

    def _belief(self, study: Study, tree: Tree, trials: Sequence[FrozenTrial]) -> StudyBelief:
        """Return the belief about a space that follows these trials the furthest; a new one if none does."""
        finished = {trial.number: trial for trial in trials if trial.state.is_finished()}
        sought = Sought.by(study, trials)
        following = [
            belief
            for belief in self._beliefs
            if belief.tree == tree and belief.reading.sought == sought and belief.follows(finished)
        ]
        found = max(following, key=lambda belief: belief.num_read) if following else self._new_belief(sought, tree)
        others = [belief for belief in self._beliefs if belief is not found]
        self._beliefs = [*others, found][-_REMEMBERED:]
        return found

    def _new_belief(self, sought: Sought, tree: Tree) -> StudyBelief:
        """Return a belief about a space that was told nothing."""
        space, reading = tree.space(), Reading(sought, self._pruned, self._failed)
        return StudyBelief(
            tree,
            space,
            self._bandit_on(space, sought),
            reading,
            self._keeping,
            num_initial=self._num_initial,
            seed=self._seed,
            dates=self._clock == "dates",
            waits=self._failed == "ignore",
        )

    def _bandit_on(self, space: ParameterSpace, sought: Sought) -> Bandit:
        """Return a bandit on a space that was told nothing."""
        kernel = self._kernel
        if not (kernel is None or isinstance(kernel, Kernel)):
            kernel = kernel(space.dimension)
        prior = tuning_prior(LearnedPrior(kernel, clip=self._clip, num_initial=self._num_initial))
        words: dict[str, Any] = self._words | sought.words(
            prior, replace(prior, clip=False), self._keeping, space.parameters
        )
        algorithm = self._algorithm or (_WEIGHING if sought.has_several else _SEEKING)
        if "beta" in registry.signature(algorithm).parameters:
            words["beta"] = _BETA if self._beta is None else self._beta
        elif self._beta is not None:
            words["beta"] = self._beta
        words |= {"algorithm": algorithm, "candidates": Configurations(space)}
        return tuning_bandit(prior=prior, seed=self._seed, **words)

    def _warn_once(self, study: Study, trial: FrozenTrial, name: str, distribution: BaseDistribution) -> None:
        """Say that a parameter is sampled on its own, once for each, and why; but not before a trial is completed."""
        if not self._warn or name in self._warned or self._suggested.get((study.study_name, trial.number)) is None:
            return
        self._warned.add(name)
        reason = "not every completed trial has it, and no choice before it says which"
        for other in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            if (before := other.distributions.get(name, distribution)) != distribution:
                reason = f"its range changes: {before} in trial {other.number}, now {distribution}"
                break
        warnings.warn(
            f"Parameter {name!r} is sampled on its own, without the bandit: {reason}. If that is intended, say "
            "warn_independent_sampling=False.",
            KernelBanditWarning,
            stacklevel=2,
        )

    def _warn_of_kinds(self, compared: int, completed: int) -> None:
        """Say once that trials differ in kind, of which those of one are compared."""
        if not self._warn or self._warned_of_kinds:
            return
        self._warned_of_kinds = True
        warnings.warn(
            f"The {completed} completed trials differ in their parameters or ranges. Compared are the {compared} with "
            "those of study.best_trial. If that is intended, say warn_independent_sampling=False.",
            KernelBanditWarning,
            stacklevel=3,
        )

    # ---------------------------------------------------------------- copies

    def _forget_studies(self) -> None:
        self._lock = threading.RLock()
        self._beliefs: list[StudyBelief] = []

    def __getstate__(self) -> dict[str, Any]:
        """Return all but what follows from the trials of a study."""
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_beliefs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget_studies()


def _front(study: Study) -> list[FrozenTrial]:
    """Return the Pareto front of several objectives, without trials that are infinitely bad if there are others."""
    if len(study.directions) == 1:
        return []
    sought, front = Sought.by(study, ()), study.best_trials
    return [trial for trial in front if -math.inf not in sought.values(trial)] or front


def _leading(study: Study, front: Sequence[FrozenTrial], completed: Sequence[FrozenTrial]) -> FrozenTrial:
    """Return the best completed trial; of several objectives the first on the Pareto front."""
    if len(study.directions) == 1:
        return max(completed, key=Sought.by(study, ()).values)
    return (front or completed)[0]


def _completed(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _searched(trial: FrozenTrial) -> dict[str, BaseDistribution]:
    """Return the parameters of a trial that have several values."""
    return {name: each for name, each in trial.distributions.items() if not each.single()}
