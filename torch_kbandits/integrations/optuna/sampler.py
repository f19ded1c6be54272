"""A sampler of Optuna that plays a kernelized bandit."""

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from gpytorch.kernels import Kernel
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from torch_kbandits import checks
from torch_kbandits.algorithms import registry
from torch_kbandits.bandit import Bandit
from torch_kbandits.candidates import Configurations
from torch_kbandits.confidence import Width
from torch_kbandits.errors import EmptyHistoryError, InputError, KernelBanditWarning
from torch_kbandits.integrations.optuna.conditional_space import ConditionalSpace, searched, space_of
from torch_kbandits.integrations.optuna.study_bandit import COST, Objectives, StudyBandit, Use
from torch_kbandits.integrations.tuning import tuning_bandit, tuning_prior
from torch_kbandits.memory import Memory
from torch_kbandits.numerics.random import Lock, generator_for
from torch_kbandits.outcomes import REWARD, AtMost, CostCooling, Outcome, Scalarization
from torch_kbandits.priors import LearnedPrior
from torch_kbandits.spaces import Float, ParameterSpace

#: So many bandits are kept, for a sampler that serves several studies or the brackets of a pruner in turn.
_REMEMBERED = 8

#: Narrower than elsewhere in the package: studies are short. It found more than 2 did on three problems without noise.
_BETA = 1.0

_STARTED = (TrialState.RUNNING, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class KernelBanditSampler(BaseSampler):
    """Optuna's trials, chosen by a kernelized bandit whose kernel and noise are fitted: see ``LearnedPrior``.

    Parameters that completed trials have, with the same range, are chosen together: those that all have, and those of
    which the value of another says which trials have them. Trials that run meanwhile, also in other processes, count as
    if they had returned their posterior mean. The posterior follows from the trials alone, so a study in a storage goes
    on with a new sampler of the same seed; to rounding, and where trials run one by one.

    Several objectives are weighed as by ``Scalarization``. A trial is tried only where all constraints, of
    ``trial.set_constraint``, are at most 0 by their posteriors, or, where that is nowhere so, where it covers the
    space. Trials without a finite value, and with a constraint of infinity, have failed.

    Args:
        algorithm: a registry name, such as "ek-ucb" or "gp-ts"; "gp-ei" unless given, and of several objectives
            "gp-ucb".
        beta: the multiplier of the standard deviation, or a ``Width``; 1 unless given, where the algorithm takes one.
        kernel: a GPyTorch kernel on the encoded space, or a function that makes one from the number of coordinates.
        memory: which trials count, where the objective changes, such as ``SlidingWindow(100)``; time is their number.
        clip: whether values far worse than the others count as less far.
        n_startup_trials: trials learned before the bandit plays, at least 2; until then, and with the trials 8, 16, 32,
            … later, the space is covered evenly.
        pruned: "learn" pruned trials, at their last intermediate value, but no better than the median of the completed
            trials and no worse than the worst of them; or "ignore" them.
        safe_params: parameters of trials that are known to be feasible. They come first, and then only what is surely
            feasible is tried; see ``Limit``.
        constraint_beta: the multiplier of the deviation of constraints; 3 with ``safe_params`` unless given, else 0,
            the posterior mean: a trial that may just be feasible tells little in a short study.
        noise: given a finished trial, returns the noise variance of its (first) value, in units of that squared, or
            None where it is not known; unless given it is ``trial.set_user_attr("kbandits:noise", variance)``.
        cost: given a finished trial, returns what it cost, at least 0, or None where it is not known, such as
            ``lambda trial: trial.duration.total_seconds()``: then the improvement per unit of cost is sought, by a
            posterior of it; see ``CostCooling``.
        cost_budget: what may be spent in all, with which expensive trials come later; None for no such end.
        independent_sampler: for parameters that are not chosen together; unless given each is uniform.
        warn_independent_sampling: whether these are named, once each, and that ``recommend`` compares some trials only.
        seed: addresses all randomness; None for a random one.
        settings: further words of the algorithm. A dictionary stops at 400 points unless ``max_dictionary`` (None for
            no cap) and ``when_full`` say otherwise.

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
        clip: bool = True,
        n_startup_trials: int = 10,
        pruned: Use = "learn",
        constraint_beta: float | None = None,
        safe_params: Sequence[Mapping[str, Any]] = (),
        noise: Callable[[FrozenTrial], float | None] | None = None,
        cost: Callable[[FrozenTrial], float | None] | None = None,
        cost_budget: float | None = None,
        independent_sampler: BaseSampler | None = None,
        warn_independent_sampling: bool = True,
        seed: int | None = None,
        **settings: Any,
    ) -> None:
        if theirs := sorted({"outcomes", "constraints", "objective"} & settings.keys()):
            raise InputError(f"Leave out {theirs[0]}: what is sought, and within which limits, the study says.")
        checks.absent_or("independent_sampler", independent_sampler, BaseSampler, "a sampler of Optuna")
        if any(not isinstance(each, Mapping) for each in safe_params):
            raise InputError("safe_params must be a list of mappings from the names of parameters to values.")
        self._algorithm, self._beta, self._words = algorithm, beta, {"memory": memory} | settings
        self._kernel, self._clip = kernel, clip
        self._num_initial = checks.whole_number("n_startup_trials", n_startup_trials, least=2)  # a fit needs two values
        self._pruned: Use = checks.one_of("pruned", pruned, get_args(Use))
        for name, function in (("noise", noise), ("cost", cost)):
            if not (function is None or callable(function)):
                raise InputError(f"{name} must be a function of a trial, got {checks.describe(function)}.")
        if cost is None and cost_budget is not None:
            raise InputError("cost_budget is of what trials cost: give cost, a function of a trial.")
        self._safe, self._noise, self._cost = list(safe_params), noise, cost
        self._cooling = None if cost is None else CostCooling(budget=cost_budget, cost=COST)
        self._constraint_beta = checks.optional(checks.non_negative)("constraint_beta", constraint_beta)
        self._independent, self._warn = independent_sampler, warn_independent_sampling
        self._warned: set[str] = set()
        self._seed = secrets.randbits(63) if seed is None else seed
        #: By study and number of a trial that runs, once others were completed, what was suggested to it.
        self._suggested: dict[str, dict[int, dict[str, Any]]] = {}
        self._lock, self._studies = Lock(), list[StudyBandit]()
        self._bandit_on(ParameterSpace({"x": Float(0.0, 1.0)}), Objectives())  # refuses words that do not fit

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that completed trials have, with the same range of several values: see ``space_of``."""
        return dict(space_of(_completed(study)).distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of these parameters for a trial; ``InputError`` names a range that cannot be searched.

        ``InfeasibleError`` if only what is surely feasible is to be tried, and nothing is.
        """
        with self._lock.held:
            trials, completed = study.get_trials(deepcopy=False, states=_STARTED), _completed(study)
            running, suggested = {each.number for each in trials if not each.state.is_finished()}, self._suggested
            mine = {number: each for number, each in suggested.get(study.study_name, {}).items() if number in running}
            suggested[study.study_name] = mine
            values = {}
            if search_space:
                following = self._following(study, space_of(completed, search_space), trials)
                values = following.suggest(trial, trials, mine)
            if completed:
                mine[trial.number] = values
            return dict(values)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return a value of one parameter, uniform on its scale, or by the independent sampler."""
        if self._safe and param_name in (safe := self._safe[trial.number % len(self._safe)]):
            return safe[param_name]
        # What no completed trial has comes with a choice that is new, and is searched from then on.
        is_late = trial.number in self._suggested.get(study.study_name, {})
        if is_late and any(param_name in each.params for each in _completed(study)):
            self._warn_once(
                param_name,
                f"Parameter {param_name!r} is sampled on its own, without the bandit: its range changes, or not every "
                "completed trial has it and no choice before it says which.",
            )
        if self._independent is not None:
            return self._independent.sample_independent(study, trial, param_name, param_distribution)
        space = ConditionalSpace({param_name: param_distribution}).space()
        point = space.sample(1, generator_for(self._seed, trial.number, f"parameter {param_name}"))
        return space.decode(point)[0][param_name]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Let the independent sampler know that a trial begins."""
        if self._independent is not None:
            self._independent.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Let the independent sampler know that a trial ended."""
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Take another seed, as Optuna asks for in every thread of ``n_jobs``; a bandit in force keeps its own."""
        self._seed = secrets.randbits(63)
        if self._independent is not None:
            self._independent.reseed_rng()

    def recommend(self, study: Study) -> FrozenTrial:
        """Return the trial to use in the end: that of the largest posterior mean, of those that are likely feasible.

        Of several objectives it is one of ``study.best_trials``, of finite values if there is any: the best by
        posterior means with equal weights, see ``Scalarization``. Where completed trials differ in their parameters or
        ranges, those with the parameters of ``study.best_trial`` alone are compared, and a warning says so, once.
        ``EmptyHistoryError`` if no trial is completed, ``InfeasibleError`` if none is likely feasible.
        """
        with self._lock.held:
            found = self._learned(study)
            if found is None or not found.bandit.num_observations:
                raise EmptyHistoryError("No completed trials have parameters in common, so there is none to recommend.")
            number = found.recommend([trial.number for trial in study.best_trials if len(study.directions) > 1])
        return next(trial for trial in study.get_trials() if trial.number == number)

    def says(self, stop: Callable[[Bandit], bool], study: Study) -> bool:
        """Return what a function says of the bandit that was told all finished trials; False before there is one."""
        with self._lock.held:
            found = self._learned(study)
            return found is not None and found.bandit.num_observations > 0 and bool(stop(found.bandit))

    def _learned(self, study: Study) -> StudyBandit | None:
        """Return the bandit that was told the finished trials; None where they have no parameters in common."""
        trials, completed = study.get_trials(deepcopy=False, states=_STARTED), _completed(study)
        finished, parameters = [trial for trial in trials if trial.state.is_finished()], space_of(completed)
        if not all(searched(trial).items() <= parameters.distributions.items() for trial in completed):
            parameters = ConditionalSpace(searched((study.best_trials or completed)[0]))
            finished = [trial for trial in finished if searched(trial) == parameters.distributions]
            self._warn_once(
                "",
                f"The {len(completed)} completed trials differ in their parameters or ranges. Compared are the "
                f"{len(finished)} with those of study.best_trial.",
            )
        found = self._following(study, parameters, trials) if parameters.distributions else None
        if found is not None:
            found.learn(finished)
        return found

    def _following(self, study: Study, parameters: ConditionalSpace, trials: Sequence[FrozenTrial]) -> StudyBandit:
        """Return the bandit on a space that follows these trials the furthest; a new one if none does."""
        finished = {each.number: each for each in trials if each.state.is_finished()}
        objectives = Objectives.of(study, trials)
        known = [each for each in self._studies if (each.parameters, each.objectives) == (parameters, objectives)]
        following = [each for each in known if each.follows(finished)]
        found = max(following, key=lambda each: len(each.read), default=None)
        if found is None:
            bandit = self._bandit_on(parameters.space(), objectives)
            words = self._pruned, self._num_initial, self._safe, self._noise, self._cost
            found = StudyBandit(parameters, objectives, bandit, *words)
        self._studies = [*(each for each in self._studies if each is not found), found][-_REMEMBERED:]
        return found

    def _bandit_on(self, space: ParameterSpace, objectives: Objectives) -> Bandit:
        """Return a bandit on a space that was told nothing."""
        kernel: Any = self._kernel
        if callable(kernel) and not isinstance(kernel, Kernel):
            kernel = kernel(space.dimension)
        prior = tuning_prior(LearnedPrior(kernel, clip=self._clip, num_initial=self._num_initial))
        unclipped, others = replace(prior, clip=False), objectives.others
        outcomes = [Outcome(name, prior) for name in others] + [Outcome(name, unclipped) for name in objectives.limits]
        if self._cooling is not None and others:
            raise InputError("cost is weighed against one value, and this study has several: leave out cost.")
        words: dict[str, Any] = self._words | {
            "outcomes": outcomes if self._cooling is None else [*outcomes, Outcome(COST, unclipped)],
            "constraints": [self._limit(name, space) for name in objectives.limits],
            "objective": Scalarization(dict.fromkeys([REWARD, *others], "maximize")) if others else self._cooling,
        }
        algorithm = self._algorithm or ("gp-ucb" if others else "gp-ei")
        if "beta" in registry.signature(algorithm).parameters or self._beta is not None:
            words["beta"] = _BETA if self._beta is None else self._beta
        return tuning_bandit(algorithm, Configurations(space), prior, seed=self._seed, **words)

    def _limit(self, name: str, space: ParameterSpace) -> AtMost:
        """Return the limit on an outcome of the trials of a space."""
        if not self._safe:
            return AtMost(name, 0.0, mode="optimistic", beta=self._constraint_beta or 0.0)
        known = [{key: each[key] for key in space.parameters if key in each} for each in self._safe]
        return AtMost(name, 0.0, beta=self._constraint_beta, safe_seed=known)

    def _warn_once(self, about: str, message: str) -> None:
        """Say something once, unless nobody wants to hear it."""
        if self._warn and about not in self._warned:
            self._warned.add(about)
            message = f"{message} If that is intended, say warn_independent_sampling=False."
            warnings.warn(message, KernelBanditWarning, stacklevel=3)


class StopStudyWhen:
    """A callback of ``study.optimize`` that ends a study of a ``KernelBanditSampler`` once a function says so.

    Args:
        stop: asked after each trial of the bandit that was told all that are finished, such as
            ``StopWhen(no_better_by=0.01)``, in the units of the objective, in either direction. ``regret`` needs
            ``beta`` where the algorithm has none. ``InputError`` if it is no function or the sampler is another.
    """

    def __init__(self, stop: Callable[[Bandit], bool]) -> None:
        if not callable(stop):
            raise InputError(f"stop must be a function of the bandit such as a StopWhen, got {checks.describe(stop)}.")
        self._stop = stop

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """End the study, if it is time."""
        checks.instance("the sampler of the study", study.sampler, KernelBanditSampler, "a KernelBanditSampler")
        if cast(KernelBanditSampler, study.sampler).says(self._stop, study):
            study.stop()


def _completed(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
