"""Seconds per suggestion of Optuna's samplers and ``KernelBanditSampler``, as the trials of a study accumulate."""

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import optuna
import torch
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.study import Study
from tqdm import tqdm

from benchmarks.report import Report, Table, spread
from torch_kbandits.environments import BoxFunction, synthetic_function
from torch_kbandits.integrations.optuna import KernelBanditSampler

_NOISE = 0.1
_OURS = "KernelBanditSampler"


@dataclass(frozen=True)
class Sizes:
    """What is run: a study of ours as long as the largest number of trials; at each of them others are timed."""

    dimension: int = 6
    trials: tuple[int, ...] = (100, 200, 500, 1_000, 2_000)
    window: int = 50
    repeats_tpe: int = 10
    repeats_gp: int = 3


QUICK = Sizes(dimension=3, trials=(12, 14), window=2, repeats_tpe=1, repeats_gp=1)


def run(quick: bool = False) -> Report:
    """Play one study with ours; at each number of trials let the other samplers suggest from the same trials."""
    sizes = QUICK if quick else Sizes()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    environment = cast(BoxFunction, synthetic_function("hartmann", sizes.dimension, domain="box", seed=0))
    study = optuna.create_study(sampler=KernelBanditSampler(seed=0), direction="maximize")
    seconds: list[float] = []
    measurements: list[dict[str, Any]] = []
    for number in tqdm(range(max(sizes.trials) + 1), desc="optuna_suggestions", unit="trial"):
        if number in sizes.trials:
            measurements.append(_measurement(_OURS, number, seconds[-sizes.window :]))
            others = ((TPESampler(seed=0), sizes.repeats_tpe), (GPSampler(seed=0), sizes.repeats_gp))
            measurements += [_reference(sampler, repeats, study, environment) for sampler, repeats in others]
        seconds.append(_play(study, environment))
    return Report(
        "optuna_suggestions",
        asdict(sizes) | {"optuna": optuna.__version__},
        [_table(measurements, sizes)],
        measurements,
    )


def _play(study: Study, environment: BoxFunction) -> float:
    """Play one trial and return the seconds of its suggestion, which for every sampler include learning the last."""
    start = time.perf_counter()
    trial = study.ask()
    x = [trial.suggest_float(f"x{column}", 0.0, 1.0) for column in range(environment.bounds.shape[1])]
    seconds = time.perf_counter() - start
    low, high = environment.bounds
    point = low + torch.tensor([x], dtype=torch.float64) * (high - low)
    noise = _NOISE * torch.randn((), generator=torch.Generator().manual_seed(trial.number), dtype=torch.float64)
    study.tell(trial, float(environment.mean(point) + noise))
    return seconds


def _reference(sampler: BaseSampler, repeats: int, played: Study, environment: BoxFunction) -> dict[str, Any]:
    """Time a sampler on the trials that were played; the first of its suggestions is left out, as it fills caches."""
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.add_trials(played.trials)
    number = len(played.trials)
    _play(study, environment)
    return _measurement(type(sampler).__name__, number, [_play(study, environment) for _ in range(repeats)])


def _measurement(sampler: str, trials: int, seconds: list[float]) -> dict[str, Any]:
    return {"sampler": sampler, "trials": trials, "seconds": seconds}


def _table(measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    rows = []
    for trials in sizes.trials:
        here = {run["sampler"]: run["seconds"] for run in measurements if run["trials"] == trials}
        ours, gp = (statistics.fmean(here[name]) for name in (_OURS, "GPSampler"))
        rows.append(
            [f"{trials:,}", spread(here[_OURS], 3), f"{ours:.3f}"]
            + [spread(here[name], 3) for name in ("TPESampler", "GPSampler")]
            + [f"{gp / ours:.1f}"]
        )
    title = f"Seconds per suggestion, d = {sizes.dimension}, floats, noise 0.1; ours: the {sizes.window} trials before"
    columns = ["trials", _OURS, "its mean, fits included", "TPESampler", "GPSampler", "GPSampler / ours, means"]
    return Table(title, columns, rows)
