"""What tools that tune have found after so many trials: ours, and what people would use instead of them.

The claims were fixed after one study of each tool on half of the problems, at seed 3, and before any of the seeds that
judge was played. Ahead and behind are of the paired differences over seeds: ahead where the 95% interval of their
median lies below 0, behind where it lies above.

1. Where nothing moves, six problems: ``KernelBanditSampler`` is behind ``GPSampler`` on none, has a median difference
   below 0 from ``TPESampler`` on at least four and from random search on all six, and is ahead of the latter on four.
2. On the three of these that train ``KernelBanditSearchCV`` is level with ``KernelBanditSampler``, and has a median
   difference below 0 from random search.
3. Where the optimum moves, two problems: with a window of 30 trials ``KernelBanditSampler`` pays less than without in
   the median on both, and than ``GPSampler`` on both. Not claimed: to pay less than ``GPSampler`` on the latest 30
   trials, or than ``TPESampler``, which did better on drift at seed 3.
4. Of Ax nothing is claimed: a trial takes its strategies too long for more than three seeds.
"""

import statistics
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import optuna
from tqdm import tqdm

from benchmarks.parts import Parts
from benchmarks.report import Report, Table
from benchmarks.tuners import GP, SAMPLER, TUNERS, WINDOW, Course, played
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.experiments.summary import Difference, difference, estimate

#: By problem and tool, the measurement of each seed.
Studies = dict[tuple[str, str], dict[int, dict[str, Any]]]

#: After so many trials, of those at which studies are looked at, tables show values.
_SHOWN = (10, 20, 40, 60)

#: Where values move, what is told of a checkpoint is the mean of so many trials before it.
_RECENT = 10


@dataclass(frozen=True)
class Sizes:
    """What is run. Seeds are of the problem, its noise and the tool.

    A problem has its own number of trials unless ``trials`` says otherwise. The tools of Ax play few problems and
    seeds, and fewer trials.
    """

    problems: tuple[str, ...] = tuple(PROBLEMS)
    seeds: tuple[int, ...] = tuple(range(500, 509))
    checkpoints: tuple[int, ...] = (10, 15, 20, 30, 40, 50, 60)
    trials: int | None = None
    few_problems: tuple[str, ...] = ("slices", "cells")
    few_seeds: int = 3
    few_trials: int = 30

    def of(self, problem: str, few: bool = False) -> tuple[int, ...]:
        """Return the numbers of trials after which a study is looked at; the last is its end."""
        trials = self.few_trials if few else self.trials or PROBLEMS[problem].trials
        return tuple(number for number in self.checkpoints if number <= trials)


QUICK = Sizes(("wells", "drift"), (0,), (6, 10, 12), 12, ("wells",), 1, 6)


def run(quick: bool, parts: Parts) -> Report:
    """Play a study with each tool on each problem and seed; seeds come last, so that a run may stop after any of them.

    Args:
        quick: whether to play next to nothing.
        parts: where studies are kept, and taken from.
    """
    sizes = QUICK if quick else Sizes()
    measurements = [
        parts.measured(key, lambda key=key: measured(key, sizes))
        for key in tqdm(studies(sizes), desc="tuning", unit="study")
    ]
    versions = {"optuna": optuna.__version__, "ax": version("ax-platform")}
    return Report("tuning", asdict(sizes) | versions, tables(measurements, sizes), measurements)


def studies(sizes: Sizes) -> list[dict[str, Any]]:
    """Return what is played: each problem, tool, seed and number of trials."""
    found = []
    for seed in sizes.seeds:
        for name in sizes.problems:
            problem, few = PROBLEMS[name], name in sizes.few_problems and seed in sizes.seeds[: sizes.few_seeds]
            on = {"all": True, "moving": problem.moves, "training": problem.trains, "few": few}
            found += [
                {"problem": name, "tool": tool, "seed": seed, "trials": sizes.of(name, how.on == "few")[-1]}
                for tool, how in TUNERS.items()
                if on[how.on]
            ]
    return found


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


# ---------------------------------------------------------------- what is shown


def tables(measurements: list[dict[str, Any]], sizes: Sizes) -> list[Table]:
    """Return who is ahead, a table for each problem, that with Ax, and the seconds."""
    studies_of: Studies = {}
    for each in measurements:
        studies_of.setdefault((each["problem"], each["tool"]), {})[each["seed"]] = each
    of_problems = [_of_problem(problem, studies_of, sizes) for problem in sizes.problems]
    return [_ahead(studies_of, sizes), *of_problems, _few(studies_of, sizes), _seconds(studies_of, sizes)]


def ours(problem: str) -> str:
    """Return which of our tools the others are compared with."""
    return WINDOW if PROBLEMS[problem].moves else SAMPLER


def _paired(studies_of: Studies, problem: str, one: str, other: str) -> Difference | None:
    """Return what the first tool is judged by less the second's, seed by seed; None where there are no such pairs."""
    first, second = (studies_of.get((problem, name), {}) for name in (one, other))
    pairs = [(first[seed]["judged"], second[seed]["judged"]) for seed in first if seed in second]
    return difference([left - right for left, right in pairs]) if pairs else None


def _ahead(studies_of: Studies, sizes: Sizes) -> Table:
    rows = []
    others = [name for name, tool in TUNERS.items() if tool.on != "few"]
    for problem in sizes.problems:
        cells = []
        for name in others:
            found = None if name == ours(problem) else _paired(studies_of, problem, ours(problem), name)
            cells.append("–" if found is None else f"{_verdict(found)}{found.wins} of {found.pairs}")
        rows.append([problem, ours(problem), *cells])
    title = "Who is ahead at the end: the interval of paired differences, and in how many seeds ours is below"
    return Table(title, ["problem", "ours", *(f"against {name}" for name in others)], rows)


def _verdict(found: Difference) -> str:
    if found.lower is None or found.upper is None:
        return ""
    return "ahead, " if found.upper < 0.0 else "behind, " if found.lower > 0.0 else "level, "


def _of_problem(problem: str, studies_of: Studies, sizes: Sizes) -> Table:
    moves, us = PROBLEMS[problem].moves, ours(problem)
    shown = [number for number in sizes.of(problem) if number in _SHOWN]
    rows = []
    for name, tool in TUNERS.items():
        of = studies_of.get((problem, name), {}).values()
        if not of or tool.on == "few":
            continue
        cells = [str(estimate([each["values"][str(number)] for each in of])) for number in shown]
        if moves:
            cells.append(str(estimate([each["judged"] for each in of])))
        found = None if name == us else _paired(studies_of, problem, name, us)
        cells += ["–", "–"] if found is None else [str(found), f"{found.wins} of {found.pairs}"]
        rows.append([name, *cells])
    heads = [f"to {number}" if moves else f"after {number}" for number in shown]
    title = f"{problem}: {PROBLEMS[problem].measure}, medians [quartiles] of {len(sizes.seeds)} seeds"
    columns = ["tool", *heads, *([f"all after {_RECENT}"] if moves else []), f"less that of {us} [95%]", "below it"]
    return Table(title, columns, rows)


def _few(studies_of: Studies, sizes: Sizes) -> Table:
    end, seeds = str(sizes.few_trials), sizes.seeds[: sizes.few_seeds]
    rows = []
    for name, tool in TUNERS.items():
        if tool.on in ("all", "few"):
            of = [[studies_of[problem, name][seed] for seed in seeds] for problem in sizes.few_problems]
            rows.append([name, *(str(estimate([each["values"][end] for each in studies])) for studies in of)])
    title = f"With Ax: values after {end} trials, medians [range] of seeds {seeds[0]} to {seeds[-1]}"
    return Table(title, ["tool", *(f"{name}: {PROBLEMS[name].measure}" for name in sizes.few_problems)], rows)


def _seconds(studies_of: Studies, sizes: Sizes) -> Table:
    rows = []
    for name in TUNERS:
        cells = []
        for problem in sizes.problems:
            of, gp = studies_of.get((problem, name), {}), studies_of[problem, GP]
            ratios = [each["seconds"] / gp[seed]["seconds"] for seed, each in of.items()]
            cells.append(f"{statistics.median(ratios):.2g}" if ratios else "–")
        rows.append([name, *cells])
    title = f"Processor seconds from one trial to the next, over {GP}'s: medians of studies' medians, paired by seed"
    return Table(title, ["tool", *sizes.problems], rows)
