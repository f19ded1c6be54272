"""Seconds per suggestion of Optuna's samplers and ours, as the trials of a study accumulate."""

import statistics
import time
from typing import cast

import optuna
import torch
from optuna.samplers import GPSampler, TPESampler
from optuna.study import Study
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Table, benchmark, spread
from torch_kbandits.environments import BoxFunction, synthetic_function
from torch_kbandits.integrations.optuna import KernelBanditSampler

OURS = "KernelBanditSampler"


@benchmark(dimension=3, trials=(12, 14), window=2, repeats=(1, 1))
def optuna_suggestions(
    dimension: int = 6,
    trials: tuple[int, ...] = (100, 200, 500, 1_000, 2_000),
    window: int = 50,
    repeats: tuple[int, int] = (10, 3),
) -> Found:
    """Play one study with ours, timed in a window before each number of trials; from these trials let others suggest.

    Their first suggestion is left out, as it fills caches.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    environment = cast(BoxFunction, synthetic_function("hartmann", dimension, domain="box", seed=0))
    study = optuna.create_study(sampler=KernelBanditSampler(seed=0), direction="maximize")
    seconds, found, rows = list[float](), list[Measurement](), list[list[str]]()
    for number in tqdm(range(max(trials) + 1), "optuna_suggestions"):
        if number in trials:
            here = {OURS: seconds[-window:]}
            for sampler, most in zip((TPESampler(seed=0), GPSampler(seed=0)), repeats, strict=True):
                other = optuna.create_study(sampler=sampler, direction="maximize")
                other.add_trials(study.trials)
                here[type(sampler).__name__] = [_suggested(other, environment) for _ in range(most + 1)][1:]
            found += [{"sampler": name, "trials": number, "seconds": times} for name, times in here.items()]
            ours, theirs = (statistics.fmean(here[name]) for name in (OURS, "GPSampler"))
            first, *others = (spread(times, 3) for times in here.values())
            rows.append([f"{number:,}", first, f"{ours:.3f}", *others, f"{theirs / ours:.1f}"])
        seconds.append(_suggested(study, environment))
    title = f"Seconds per suggestion, d = {dimension}, floats, noise 0.1; ours: the {window} trials before"
    columns = ["trials", OURS, "its mean, fits included", "TPESampler", "GPSampler", "GPSampler / ours, means"]
    return [Table(title, columns, rows)], found


def _suggested(study: Study, environment: BoxFunction) -> float:
    """Play one trial and return the seconds of its suggestion, which for every sampler include learning the last."""
    start = time.perf_counter()
    trial = study.ask()
    x = [trial.suggest_float(f"x{column}", 0.0, 1.0) for column in range(environment.bounds.shape[1])]
    seconds = time.perf_counter() - start
    low, high = environment.bounds
    point = low + torch.tensor([x], dtype=torch.float64) * (high - low)
    noise = 0.1 * torch.randn((), generator=torch.Generator().manual_seed(trial.number), dtype=torch.float64)
    study.tell(trial, float(environment.mean(point) + noise))
    return seconds
