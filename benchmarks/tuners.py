"""Tools that tune, ours and what people would use instead, each playing a study of one objective."""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import optuna
from ax import ChoiceParameterConfig, Client, RangeParameterConfig
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import Trial
from sklearn.base import BaseEstimator

from benchmarks.tuning_problems import Configuration, Objective
from torch_kbandits import Categorical, Float, Integer, ParameterSpace
from torch_kbandits.integrations.ax import kernel_bandit_strategy, recommend
from torch_kbandits.integrations.optuna import KernelBanditSampler
from torch_kbandits.integrations.sklearn import KernelBanditSearchCV
from torch_kbandits.memory import SlidingWindow

#: The trials that count where an objective moves: as docs/integrations/optuna.md has it, tuned by nobody.
_LATEST = 30


class Course:
    """What a tool tries in one study, what it would use, and the processor time between two trials.

    ``asked`` says after how many of them the tool says which configuration it would use. Samplers of Optuna are given
    the ``first`` ones.
    """

    def __init__(
        self, objective: Objective, trials: int, asked: tuple[int, ...], first: Sequence[Configuration] = ()
    ) -> None:
        self.objective, self.trials, self.asked, self.first = objective, trials, asked, first
        self.tried: list[Configuration] = []
        self.told: list[float] = []
        self.seconds: list[float] = []
        self._chosen: dict[int, Configuration] = {}
        self._since = time.process_time()

    def play(self, configuration: Configuration) -> float:
        """Evaluate the next trial and return what the tool is told."""
        self.seconds.append(time.process_time() - self._since)
        self.told.append(self.objective.told(configuration, len(self.tried)))
        self.tried.append(dict(configuration))
        self._since = time.process_time()
        return self.told[-1]

    def choose(self, says: Callable[[], Configuration]) -> None:
        """Note what the tool would use, if it is asked now; how long that took it does not count."""
        if len(self.tried) in self.asked:
            self._chosen[len(self.tried)] = says()
            self._since = time.process_time()

    def chosen(self, number: int) -> Configuration:
        """Return what the tool would use after so many trials: what it said, else the best that it was told."""
        return self._chosen.get(number) or self.tried[int(np.argmin(self.told[:number]))]


class Tuner(NamedTuple):
    """A tool, and what it plays: "all" problems, the "moving" ones, "training", "boxes" of floats alone, or "few".

    ``play`` plays a course with a seed.
    """

    play: Callable[[Course, int], None]
    on: Literal["all", "moving", "training", "boxes", "few"] = "all"


def _with_optuna(make: Callable[..., BaseSampler], latest: int | None = None, **words: Any) -> Any:
    """Return what plays the trials of a sampler, which sees all of them or the latest ones in a study of their own."""

    def play(course: Course, seed: int) -> None:
        sampler = make(seed=seed, **words)
        study = optuna.create_study(sampler=sampler)
        for each in course.first:
            study.enqueue_trial(dict(each))
        for _ in range(course.trials):
            if latest is not None:
                finished = study.trials[-latest:]
                study = optuna.create_study(sampler=sampler)
                study.add_trials(finished)
            trial = study.ask()
            study.tell(trial, course.play(_suggested(trial, course.objective.space)))
            if isinstance(sampler, KernelBanditSampler):
                course.choose(lambda study=study, sampler=sampler: sampler.recommend(study).params)

    return play


def _suggested(trial: Trial, space: ParameterSpace) -> Configuration:
    """Return a configuration of a space, whose parameters are suggested in their order."""
    found: dict[str, Any] = {}
    for name, each in space.parameters.items():
        if any(found.get(other) not in values for other, values in each.when):
            continue
        if isinstance(each, Categorical):
            found[name] = trial.suggest_categorical(name, list(each.choices))
        elif isinstance(each, Integer):
            found[name] = trial.suggest_int(name, each.low, each.high, log=each.log)
        elif isinstance(each, Float):
            found[name] = trial.suggest_float(name, each.low, each.high, step=each.step, log=each.log)
    return found


class _Played(BaseEstimator):
    """An estimator whose parameters are a configuration, and whose score is less what its trial returns."""

    def __init__(self, play: Callable[[Configuration], float], **configuration: Any) -> None:
        self.play, self.configuration = play, configuration

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"play": self.play, **self.configuration}

    def set_params(self, **params: Any) -> "_Played":
        self.configuration |= params
        return self

    def fit(self, X: Any, y: Any = None) -> "_Played":
        return self

    def score(self, X: Any, y: Any = None) -> float:
        return -self.play(self.configuration)


def _with_sklearn(course: Course, seed: int) -> None:
    """Play a ``KernelBanditSearchCV``; its one split is the trial, which has folds of its own where it needs them."""
    rows = np.arange(2)

    def play(configuration: Configuration) -> float:  # not copied with the estimator, as a method would be
        return course.play(configuration)

    words: dict[str, Any] = {"n_iter": course.trials, "cv": [(rows, rows)], "refit": False, "random_state": seed}
    KernelBanditSearchCV(_Played(play), course.objective.space.parameters, **words).fit(np.zeros((2, 1)))


def _with_ax(ours: bool) -> Callable[[Course, int], None]:
    """Return what plays Ax's client with its own strategy or ours."""

    def play(course: Course, seed: int) -> None:
        client = Client(random_seed=seed)
        client.configure_experiment(parameters=[_config(*each) for each in course.objective.space.parameters.items()])
        client.configure_optimization(objective="-loss")
        if ours:
            client.set_generation_strategy(kernel_bandit_strategy(seed=seed))
        for _ in range(course.trials):
            for index, parameters in client.get_next_trials(max_trials=1).items():
                client.complete_trial(index, raw_data={"loss": course.play(parameters)})
            course.choose(lambda: recommend(client) if ours else client.get_best_parameterization()[0])

    return play


def _config(name: str, parameter: Any) -> RangeParameterConfig | ChoiceParameterConfig:
    """Return a parameter that is always there in Ax's words."""
    if isinstance(parameter, Categorical):
        kind = "bool" if isinstance(parameter.choices[0], bool) else "str"
        return ChoiceParameterConfig(name=name, values=list(parameter.choices), parameter_type=kind, is_ordered=False)
    return RangeParameterConfig(
        name=name,
        bounds=(parameter.low, parameter.high),
        parameter_type="int" if isinstance(parameter, Integer) else "float",
        step_size=parameter.step if isinstance(parameter, Float) else None,
        scaling="log" if parameter.log else None,
    )


SAMPLER, WINDOW = "KernelBanditSampler", f"KernelBanditSampler, latest {_LATEST}"
SEARCH, STRATEGY = "KernelBanditSearchCV", "kernel_bandit_strategy"
GP, GP_WINDOW, AX, TPE, RANDOM = "GPSampler", f"GPSampler, latest {_LATEST}", "Ax's default", "TPESampler", "random"
CMA = "CmaEsSampler"

TUNERS = {
    SAMPLER: Tuner(_with_optuna(KernelBanditSampler)),
    WINDOW: Tuner(_with_optuna(KernelBanditSampler, memory=SlidingWindow(_LATEST)), "moving"),
    SEARCH: Tuner(_with_sklearn, "training"),
    STRATEGY: Tuner(_with_ax(ours=True), "few"),
    GP: Tuner(_with_optuna(GPSampler)),
    GP_WINDOW: Tuner(_with_optuna(GPSampler, _LATEST), "moving"),
    AX: Tuner(_with_ax(ours=False), "few"),
    TPE: Tuner(_with_optuna(TPESampler)),
    RANDOM: Tuner(_with_optuna(RandomSampler)),
    CMA: Tuner(_with_optuna(CmaEsSampler), "boxes"),
}


def played(name: str, course: Course, seed: int) -> Course:
    """Return a course when a tool has played it; what the tools write into logs is not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        logging.disable(logging.WARNING)
        try:
            TUNERS[name].play(course, seed)
        finally:
            logging.disable(logging.NOTSET)
    return course
