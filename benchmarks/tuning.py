"""What tools that tune have found after so many trials: ours, and what people would use instead of them.

The claims were fixed after one study of each tool on half of the problems, at seed 3, and before any of the seeds that
judge was played. Ahead and behind are of the paired differences over seeds: ahead where the 95% interval of their
median lies below 0, behind where it lies above.

1. Where nothing moves, six problems: ``KernelBanditSampler`` is behind ``GPSampler`` on none, has a median difference
   below 0 from ``TPESampler`` on at least four and from random search on all six, and is ahead of the latter on four.
2. There ``KernelBanditSearchCV`` is level with ``KernelBanditSampler`` on all six, and has a median difference below 0
   from random search on all six.
3. Where the optimum moves, two problems: with a window of 30 trials ``KernelBanditSampler`` pays less than without in
   the median on both, and than ``GPSampler`` on both. Not claimed: to pay less than ``GPSampler`` on the latest 30
   trials, or than ``TPESampler``, which did better on drift at seed 3.
4. Of Ax nothing is claimed: a trial takes its strategies too long for more than three seeds.
"""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import ax
import optuna
from tqdm import tqdm

from benchmarks.parts import Parts
from benchmarks.report import Report, Table
from benchmarks.tuners import GP, GP_WINDOW, RANDOM, SAMPLER, SEARCH, TPE, TUNERS, WINDOW, Course, played
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.experiments.summary import Difference, difference, estimate

#: Where values move, what is told of a checkpoint is the mean of so many trials before it.
_RECENT = 10


@dataclass(frozen=True)
class Sizes:
    """What is run. Seeds are of the problem, its noise and the tool.

    A problem has its own number of trials unless ``trials`` says otherwise; dear tools play on some problems and seeds
    alone, and less.
    """

    problems: tuple[str, ...] = tuple(PROBLEMS)
    seeds: tuple[int, ...] = tuple(range(500, 509))
    checkpoints: tuple[int, ...] = (10, 15, 20, 30, 40, 50, 60)
    trials: int | None = None
    dear_problems: tuple[str, ...] = ("concrete", "slices", "cells")
    dear_seeds: int = 3
    dear_trials: int = 30

    def of(self, problem: str, dear: bool = False) -> tuple[int, ...]:
        """Return the numbers of trials after which a study is looked at; the last is its end."""
        trials = self.dear_trials if dear else self.trials or PROBLEMS[problem].trials
        return tuple(number for number in self.checkpoints if number <= trials)


QUICK = Sizes(("wells", "drift"), (0,), (6, 12), 12, ("wells",), 1, 6)


def run(quick: bool = False, parts: Parts | None = None) -> Report:
    """Play a study with each tool on each problem and seed; seeds come last, so that a run may stop after any of them.

    Args:
        quick: whether to play next to nothing.
        parts: where studies are kept, and taken from.
    """
    sizes, parts = QUICK if quick else Sizes(), parts or Parts(None)
    measurements = [
        parts.measured(key, lambda key=key: measured(key, sizes))
        for key in tqdm(studies(sizes), desc="tuning", unit="study")
    ]
    versions = {"optuna": optuna.__version__, "ax": ax.__version__}
    return Report("tuning", asdict(sizes) | versions, tables(measurements, sizes), measurements)


def studies(sizes: Sizes) -> list[dict[str, Any]]:
    """Return what is played: each problem, tool, seed and number of trials."""
    return [
        {"problem": problem, "tool": name, "seed": seed, "trials": sizes.of(problem, tool.dear)[-1]}
        for seed in sizes.seeds
        for problem in sizes.problems
        for name, tool in TUNERS.items()
        if (tool.moving if PROBLEMS[problem].moves else tool.still)
        and (not tool.dear or (problem in sizes.dear_problems and seed in sizes.seeds[: sizes.dear_seeds]))
    ]


def measured(key: dict[str, Any], sizes: Sizes) -> dict[str, Any]:
    """Play a study and return what it is judged by, all of it without noise.

    Returns:
        By the numbers of trials, as texts, the values of what the tool would use then, or where values move the means
        of the last trials; ``judged``, the last of these, or the mean of all trials after the first ten; and the median
        of the processor seconds from one trial to the next.
    """
    problem = PROBLEMS[key["problem"]]
    asked = tuple(number for number in sizes.checkpoints if number <= key["trials"])
    objective = problem.make(key["seed"])
    course = played(key["tool"], Course(objective, key["trials"], () if problem.moves else asked), key["seed"])
    if problem.moves:
        paid = [objective.value(each, number) for number, each in enumerate(course.tried)]
        values = {str(number): statistics.fmean(paid[max(0, number - _RECENT) : number]) for number in asked}
        judged = statistics.fmean(paid[_RECENT:])
    else:
        values = {str(number): objective.value(course.chosen(number), number) for number in asked}
        judged = values[str(key["trials"])]
    return {"values": values, "judged": judged, "seconds": statistics.median(course.seconds)}


def tables(measurements: list[dict[str, Any]], sizes: Sizes) -> list[Table]:
    return []
