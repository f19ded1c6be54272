"""The best that Optuna's samplers and ``KernelBanditSampler`` find in few trials, on mixed spaces above all."""

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from scipy.stats import wilcoxon
from tqdm import tqdm

from benchmarks.report import Report, Table
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.integrations.optuna import KernelBanditSampler

_SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "KernelBanditSampler": lambda seed: KernelBanditSampler(seed=seed),
    "GPSampler": lambda seed: GPSampler(seed=seed),
    "TPESampler": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}


@dataclass(frozen=True)
class Sizes:
    """What is run. Seeds are of the problem, its noise and the sampler; each problem has its own number of trials."""

    trials: int | None = None
    seeds: tuple[int, ...] = tuple(range(300, 310))
    problems: tuple[str, ...] = tuple(PROBLEMS)


QUICK = Sizes(trials=11, seeds=(0,), problems=("wells",))

#: Whose values the others are compared with, seed by seed.
_OURS = "KernelBanditSampler"


def run(quick: bool = False) -> Report:
    """Play a study of each sampler on each problem and seed; at the end of each its best trial is judged noise-free."""
    sizes = QUICK if quick else Sizes()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    runs = [(problem, seed, name) for problem in sizes.problems for seed in sizes.seeds for name in _SAMPLERS]
    measurements = [measured(*each, sizes.trials) for each in tqdm(runs, desc="optuna_mixed", unit="study")]
    tables = [_table(problem, measurements, sizes) for problem in sizes.problems]
    return Report("optuna_mixed", asdict(sizes) | {"optuna": optuna.__version__}, tables, measurements)


def measured(problem: str, seed: int, name: str, trials: int | None = None) -> dict[str, Any]:
    """Play one study, and return what it found."""
    made = PROBLEMS[problem]
    objective, trials = made.make(seed), made.trials if trials is None else trials
    noise = np.random.default_rng(seed).normal(0.0, made.noise, trials)
    study = optuna.create_study(sampler=_SAMPLERS[name](seed))
    values = []
    for number in range(trials):
        trial = study.ask()
        values.append(objective(trial))
        study.tell(trial, values[-1] + noise[number])
    sampler = study.sampler
    chosen = sampler.recommend(study) if isinstance(sampler, KernelBanditSampler) else study.best_trial
    found = {"best": min(values), "half": min(values[: trials // 2]), "chosen": values[chosen.number]}
    return {"problem": problem, "sampler": name, "seed": seed} | found


def _table(problem: str, measurements: list[dict[str, Any]], sizes: Sizes) -> Table:
    here = [each for each in measurements if each["problem"] == problem]
    ours = {each["seed"]: each["best"] for each in here if each["sampler"] == _OURS}
    rows = []
    for name in _SAMPLERS:
        of = {each["seed"]: each for each in here if each["sampler"] == name}
        means = [f"{statistics.fmean(each[key] for each in of.values()):.4f}" for key in ("half", "best", "chosen")]
        median = f"{statistics.median(each['best'] for each in of.values()):.4f}"
        rows.append([name, *means[:2], median, means[2], *_paired([(ours[seed], of[seed]["best"]) for seed in of])])
    columns = ["sampler", "best at half, mean", "best, mean", "best, median", "its choice, mean"]
    columns += [f"{_OURS} ahead", "p, ahead", "p, behind"]
    trials = PROBLEMS[problem].trials if sizes.trials is None else sizes.trials
    return Table(f"{problem}: {trials} trials, {len(sizes.seeds)} seeds, noise-free values", columns, rows)


def _paired(pairs: list[tuple[float, float]]) -> list[str]:
    """Return in how many pairs the first is less, and p of Wilcoxon's one-sided tests that it is less, and more."""
    differences = [first - second for first, second in pairs]
    if not any(differences):
        return ["–"] * 3
    tests: list[Any] = [wilcoxon(differences, alternative=side) for side in ("less", "greater")]
    ahead = sum(each < 0.0 for each in differences)
    return [f"{ahead} of {len(differences)}", *(f"{test.pvalue:.3f}" for test in tests)]
