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
from itertools import product

import numpy as np
from tqdm import tqdm

from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, values
from benchmarks.tuners import GP, SAMPLER, TUNERS, WINDOW, Course, played
from benchmarks.tuning_problems import PROBLEMS
from torch_kbandits.experiments.summary import Difference, difference, summary_of

#: After so many trials, of those at which studies are looked at, tables show values.
_SHOWN = (10, 20, 40, 60)

#: Where values move, what is told of a checkpoint is the mean of so many trials before it.
_RECENT = 10


@benchmark(
    problems=("wells", "drift"),
    seeds=(0,),
    checkpoints=(6, 10, 12),
    trials=12,
    few_problems=("wells",),
    few_seeds=1,
    few_trials=6,
)
def tuning(
    parts: Parts,
    problems: tuple[str, ...] = tuple(PROBLEMS),
    seeds: tuple[int, ...] = tuple(range(500, 509)),
    checkpoints: tuple[int, ...] = (10, 15, 20, 30, 40, 50, 60),
    trials: int | None = None,
    few_problems: tuple[str, ...] = ("slices", "cells"),
    few_seeds: int = 3,
    few_trials: int = 30,
) -> Found:
    """Play a study with each tool on each problem and seed, which is of the problem, its noise and the tool.

    Seeds come last, so that a run may stop after any of them. A problem has its own number of trials unless ``trials``
    says otherwise. The tools of Ax play few problems and seeds, and fewer trials.
    """
    few = {"problems": few_problems, "seeds": seeds[:few_seeds], "trials": few_trials}
    keys = studies(problems, seeds, trials, few)
    found = [parts.measured(key, lambda key=key: measured(key, checkpoints)) for key in tqdm(keys, "tuning")]
    return tables(found, few), found


def studies(
    problems: tuple[str, ...], seeds: tuple[int, ...], trials: int | None, few: Measurement
) -> list[Measurement]:
    """Return what is played: each problem, tool, seed and number of trials."""
    found = []
    for seed, name in product(seeds, problems):
        problem, is_few = PROBLEMS[name], name in few["problems"] and seed in few["seeds"]
        on = {"all": True, "moving": problem.moves, "training": problem.trains, "few": is_few, "boxes": False}
        for tool, how in TUNERS.items():
            if on[how.on]:
                number = few["trials"] if how.on == "few" else trials or problem.trials
                found.append({"problem": name, "tool": tool, "seed": seed, "trials": number})
    return found


def measured(key: Measurement, checkpoints: tuple[int, ...]) -> Measurement:
    """Play a study and return what it is judged by, all of it without noise.

    ``values`` are, by the numbers of trials, those of what the tool would use then, or where they move the means of the
    last trials; ``judged`` is the last, or the mean of all after the first ten.
    """
    problem = PROBLEMS[key["problem"]]
    asked = tuple(number for number in checkpoints if number <= key["trials"])
    objective = problem.make(key["seed"])
    course = played(key["tool"], Course(objective, key["trials"], () if problem.moves else asked), key["seed"])
    if problem.moves:
        paid = [objective.value(each, number) for number, each in enumerate(course.tried)]
        shown = {str(number): statistics.fmean(paid[max(0, number - _RECENT) : number]) for number in asked}
        judged = statistics.fmean(paid[_RECENT:])
    else:
        shown = {str(number): objective.value(course.chosen(number), number) for number in asked}
        judged = shown[str(asked[-1])]
    return {"values": shown, "judged": judged, "seconds": statistics.median(course.seconds)}


# ---------------------------------------------------------------- what is shown


def tables(found: list[Measurement], few: Measurement) -> list[Table]:
    """Return who is ahead, a table for each problem, that with Ax, and the seconds."""
    problems = list(dict.fromkeys(each["problem"] for each in found))
    shown = [_of_problem(problem, chosen(found, problem=problem)) for problem in problems]
    return [_ahead(found, problems), *shown, _few(found, few), _seconds(found, problems)]


def _ours(problem: str) -> str:
    """Return which of our tools the others are compared with."""
    return WINDOW if PROBLEMS[problem].moves else SAMPLER


def _paired(here: list[Measurement], one: str, other: str) -> Difference | None:
    """Return what the first tool is judged by less the second's, seed by seed; None where there are no such pairs."""
    first, second = ({each["seed"]: each["judged"] for each in chosen(here, tool=name)} for name in (one, other))
    pairs = [value - second[seed] for seed, value in first.items() if seed in second]
    return difference(pairs) if pairs else None


def _ahead(found: list[Measurement], problems: list[str]) -> Table:
    others, rows = [name for name, tool in TUNERS.items() if tool.on != "few"], list[list[str]]()
    for problem in problems:
        us, cells = _ours(problem), list[str]()
        for name in others:
            less = None if name == us else _paired(chosen(found, problem=problem), us, name)
            cells.append("–" if less is None else f"{_verdict(less)}{less.wins} of {less.pairs}")
        rows.append([problem, us, *cells])
    title = "Who is ahead at the end: the interval of paired differences, and in how many seeds ours is below"
    return Table(title, ["problem", "ours", *(f"against {name}" for name in others)], rows)


def _verdict(less: Difference) -> str:
    if less.lower is None or less.upper is None:
        return ""
    return "ahead, " if less.upper < 0.0 else "behind, " if less.lower > 0.0 else "level, "


def _of_problem(problem: str, here: list[Measurement]) -> Table:
    moves, us, rows = PROBLEMS[problem].moves, _ours(problem), list[list[str]]()
    shown = [number for number in _SHOWN if str(number) in chosen(here, tool=us)[0]["values"]]
    for name in [name for name, tool in TUNERS.items() if tool.on != "few" and chosen(here, tool=name)]:
        of = chosen(here, tool=name)
        cells = [str(summary_of([each["values"][str(number)] for each in of])) for number in shown]
        cells += [str(summary_of(values(of, "judged")))] * moves
        less = None if name == us else _paired(here, name, us)
        rows.append([name, *cells, *(["–", "–"] if less is None else [str(less), f"{less.wins} of {less.pairs}"])])
    heads = [f"to {number}" if moves else f"after {number}" for number in shown] + [f"all after {_RECENT}"] * moves
    title = f"{problem}: {PROBLEMS[problem].measure}, medians [quartiles] of {len(chosen(here, tool=us))} seeds"
    return Table(title, ["tool", *heads, f"less that of {us} [95%]", "below it"], rows)


def _few(found: list[Measurement], few: Measurement) -> Table:
    rows, (problems, seeds, trials) = [], few.values()
    for name in [name for name, tool in TUNERS.items() if tool.on in ("all", "few")]:
        of = [
            [each for each in chosen(found, tool=name, problem=problem) if each["seed"] in seeds]
            for problem in problems
        ]
        rows.append([name, *(str(summary_of([each["values"][str(trials)] for each in runs])) for runs in of)])
    title = f"With Ax: values after {trials} trials, medians [range] of seeds {seeds[0]} to {seeds[-1]}"
    return Table(title, ["tool", *(f"{name}: {PROBLEMS[name].measure}" for name in problems)], rows)


def _seconds(found: list[Measurement], problems: list[str]) -> Table:
    rows = []
    for name in TUNERS:
        cells = []
        for problem in problems:
            mine, gp = (
                {each["seed"]: each["seconds"] for each in chosen(found, problem=problem, tool=tool)}
                for tool in (name, GP)
            )
            cells.append(f"{np.median([mine[seed] / gp[seed] for seed in mine]):.2g}" if mine else "–")
        rows.append([name, *cells])
    title = f"Processor seconds from one trial to the next, over {GP}'s: medians of studies' medians, paired by seed"
    return Table(title, ["tool", *problems], rows)
