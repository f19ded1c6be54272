"""What tools that tune would use after so many trials, ours and what people use instead, and how long they think.

Less is better; defaults were chosen on other functions and tables, and claims fixed before any seed that judges was
played. In seeds 500 to 508 each tool draws its own start. On ``MIXED`` samplers begin with the same configurations:
where each drew its own, in seeds 700 to 705, the best of the first ten of ``GPSampler`` was better than ours on counts
and ships in every seed, though over 150 seeds ours are no worse than random ones, and with its ten ours was level.

The claim of ``MIXED``: the mean of the paired differences is behind ``GPSampler`` by at most one standard error on
every problem, and a suggestion takes no more processor time.
"""

import statistics
from itertools import product

import torch
from tqdm import tqdm

from benchmarks.mixed_problems import MIXED
from benchmarks.runner import Found, Measurement, Parts, Table, benchmark, chosen, mean_and_error, values
from benchmarks.tuners import GP, SAMPLER, TUNERS, WINDOW, Course, played
from benchmarks.tuning_problems import PROBLEMS

ALL = PROBLEMS | MIXED

#: Trials that are left out where values move, and from the seconds.
_START = 10


@benchmark(problems=("springs", "drift"), seeds=(0,), checkpoints=(12,))
def tuning(
    parts: Parts,
    problems: tuple[str, ...] = tuple(ALL),
    tools: tuple[str, ...] = tuple(name for name, tool in TUNERS.items() if tool.on != "few"),
    seeds: tuple[int, ...] = tuple(range(500, 509)),
    checkpoints: tuple[int, ...] = (40,),
    first: int = 10,
) -> Found:
    """Play a study with each tool on each problem and seed; seeds come last, so that a run may stop after any.

    Samplers of Optuna begin with the same ``first`` configurations, evenly spread. Where a problem moves, what is paid
    counts, the mean after ten trials, and ours is the one with a window.
    """
    keys = [
        {"problem": problem, "tool": tool, "seed": seed, "checkpoints": [*checkpoints], "first": first}
        for seed, problem, tool in product(seeds, problems, tools)
        if _plays(tool, problem)
    ]
    found = [parts.measured(key, lambda key=key: _measured(key)) for key in tqdm(keys, "tuning")]
    return [
        *(_quality(found, problems, tools, number) for number in checkpoints),
        _seconds(found, problems, tools),
    ], found


def _plays(tool: str, problem: str) -> bool:
    given = ALL[problem]
    return {"moving": given.moves, "training": given.trains, "boxes": given.is_box}.get(TUNERS[tool].on, True)


def _measured(key: Measurement) -> Measurement:
    """Play a study; what it would use after some trials, or what was paid, is judged without noise."""
    problem, asked = ALL[key["problem"]], tuple(key["checkpoints"])
    objective = problem.make(key["seed"])
    drawn = objective.space.sample(max(1, key["first"]), torch.Generator().manual_seed(key["seed"]))
    starts = objective.space.decode(drawn[: key["first"]])
    course = Course(objective, max(asked), () if problem.moves else asked, starts)
    played(key["tool"], course, key["seed"])
    tried = [round(objective.value(each, number), 6) for number, each in enumerate(course.tried)]
    if problem.moves:
        used = {str(number): statistics.fmean(tried[_START:number]) for number in asked}
    else:
        used = {str(number): objective.value(course.chosen(number), number) for number in asked}
    return {"used": used, "tried": tried, "seconds": statistics.fmean(course.seconds[_START:])}


def _quality(found: list[Measurement], problems: tuple[str, ...], tools: tuple[str, ...], number: int) -> Table:
    rows = list[list[str]]()
    for problem in problems:
        used = {
            tool: {each["seed"]: each["used"][str(number)] for each in chosen(found, problem=problem, tool=tool)}
            for tool in tools
        }
        cells = [mean_and_error([*each.values()]) if each else "–" for each in used.values()]
        ours, theirs = used.get(WINDOW) or used.get(SAMPLER, {}), used.get(GP, {})
        pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        rows.append([problem, *cells, mean_and_error(pairs) if pairs else "–"])
    title = f"After {number} trials: the value of what each would use, less is better, mean ± standard error over seeds"
    return Table(title, ["problem", *tools, f"{SAMPLER} less {GP}"], rows)


def _seconds(found: list[Measurement], problems: tuple[str, ...], tools: tuple[str, ...]) -> Table:
    rows = []
    for problem in problems:
        each = (values(found, "seconds", problem=problem, tool=tool) for tool in tools)
        rows.append([problem, *(f"{statistics.fmean(some):.3f}" if some else "–" for some in each)])
    return Table("Processor seconds a suggestion, the mean after ten trials", ["problem", *tools], rows)
