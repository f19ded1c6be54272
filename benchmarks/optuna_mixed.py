"""The best that Optuna's samplers and ``KernelBanditSampler`` find in few trials, on mixed spaces above all."""

import math
import statistics
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import optuna
import torch
from botorch.test_functions import Hartmann
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import Trial
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler
from tqdm import tqdm

from benchmarks.report import Report, Table
from torch_kbandits.integrations.optuna import KernelBanditSampler

#: What is to be minimised, without its noise.
Objective = Callable[[Trial], float]

_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "KernelBanditSampler": lambda seed: KernelBanditSampler(seed=seed),
    "GPSampler": lambda seed: GPSampler(seed=seed),
    "TPESampler": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}


@dataclass(frozen=True)
class Sizes:
    """What is run. Seeds are of the problem, its noise and the sampler."""

    trials: int = 80
    seeds: tuple[int, ...] = (100, 101, 102)
    problems: tuple[str, ...] = ("wells", "noisy wells", "ridge", "noisy hartmann")


QUICK = Sizes(trials=11, seeds=(0,))

#: Standard deviations of the noise, of which values that the tables show are free.
_NOISE = {"noisy wells": 0.5, "noisy hartmann": 0.1}


def run(quick: bool = False) -> Report:
    """Play a study of each sampler on each problem and seed; at the end of each its best trial is judged noise-free."""
    sizes = QUICK if quick else Sizes()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    runs = [(problem, name, seed) for problem in sizes.problems for seed in sizes.seeds for name in _SAMPLERS]
    measurements = [_measured(*each, sizes.trials) for each in tqdm(runs, desc="optuna_mixed", unit="study")]
    tables = [_table(problem, measurements, sizes) for problem in sizes.problems]
    return Report("optuna_mixed", asdict(sizes) | {"optuna": optuna.__version__}, tables, measurements)


def _measured(problem: str, name: str, seed: int, trials: int) -> dict[str, Any]:
    made = {"ridge": _ridge, "noisy hartmann": _hartmann}
    objective = made[problem]() if problem in made else _wells(seed)
    noise = np.random.default_rng(seed).normal(0.0, _NOISE.get(problem, 0.0), trials)
    study = optuna.create_study(sampler=_SAMPLERS[name](seed))
    values = []
    for number in range(trials):
        trial = study.ask()
        values.append(objective(trial))
        study.tell(trial, values[-1] + noise[number])
    sampler = study.sampler
    chosen = sampler.recommend(study) if isinstance(sampler, KernelBanditSampler) else study.best_trial
    return {
        "problem": problem,
        "sampler": name,
        "seed": seed,
        "best": min(values),
        "half": min(values[: trials // 2]),
        "chosen": values[chosen.number],
    }


def _wells(seed: int) -> Objective:
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


def _ridge() -> Objective:
    """Return the cross-validated error of kernel ridge regression on the diabetes data, as a share of the variance."""
    data: Any = load_diabetes()
    X, centred = data.data, data.target - data.target.mean()
    scalers = {"standard": StandardScaler, "range": MinMaxScaler, "robust": RobustScaler}

    def objective(trial: Trial) -> float:
        scaler = scalers[trial.suggest_categorical("scaler", list(scalers))]()
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
        model = make_pipeline(scaler, components, KernelRidge(**words))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of matrices that are singular where alpha is small
            scores = cross_val_score(model, X, centred, cv=5)
        return min(float(1.0 - scores.mean()), 2.0) if np.isfinite(scores).all() else 2.0

    return objective


def _hartmann() -> Objective:
    """Return Hartmann's function of six numbers, the least value -3.32."""
    function = Hartmann()

    def objective(trial: Trial) -> float:
        point = [trial.suggest_float(f"x{column}", 0.0, 1.0) for column in range(6)]
        return float(function(torch.tensor([point], dtype=torch.float64)))

    return objective


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    here = [each for each in measurements if each["problem"] == problem]
    rows = []
    for name in _SAMPLERS:
        of = {each["seed"]: each for each in here if each["sampler"] == name}
        ahead = sum(
            all(of[seed]["best"] <= other["best"] for other in here if other["seed"] == seed) for seed in sizes.seeds
        )
        means = [f"{statistics.fmean(each[key] for each in of.values()):.4f}" for key in ("half", "best", "chosen")]
        median = f"{statistics.median(each['best'] for each in of.values()):.4f}"
        rows.append([name, *means[:2], median, means[2], f"{ahead} of {len(sizes.seeds)}"])
    columns = ["sampler", "best at half, mean", "best, mean", "best, median", "its choice, mean", "ahead of all"]
    return Table(f"{problem}: {sizes.trials} trials, {len(sizes.seeds)} seeds, noise-free values", columns, rows)
