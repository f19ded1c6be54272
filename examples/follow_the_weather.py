"""Follow what people want through the seasons, knowing each day only how well one did.

A café with a terrace decides every morning for what temperature to prepare, from hot soup for −5 °C to ice cream for
40 °C. In the evening the takings, which are noisy, show how well that suited the day: entirely if the day's highest
temperature was what one had prepared for, by 0.61 if it was 5 °C off, hardly if it was 15 °C off. The temperatures are
those that were measured in Seattle from 2013 to 2015; only the takings are computed from them.

A bandit that forgets nothing is compared with two memories, with one that needs no rate of change and, because in a
café somebody does look at the thermometer, with one that is told yesterday's maximum as a context
(``follow_the_weather_policies.py``).

    python examples/follow_the_weather.py              # about a minute
    python examples/follow_the_weather.py --quick      # a few seconds
    python examples/follow_the_weather.py --choose     # how the settings were chosen, on 2012

Writes ``record.json``, ``seasons.png`` and ``figure.png`` to ``runs/follow_the_weather``.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from follow_the_weather_figure import write_figures
from follow_the_weather_policies import BETA, FADING, GROWTH, POLICIES, TRIED, WINDOW
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torch_kbandits import Bandit
from torch_kbandits.environments import SeattleWeather

#: The first day that counts, 2013-01-01; the year before is for choosing settings.
FIRST = 366


def play(bandit: Bandit, problem: SeattleWeather, days: range) -> dict[str, list[float]]:
    """Prepare for a temperature on each day and learn the takings of the evening; return what was done and lost."""
    prepared, rewards, regret = [], [], []
    for day in days:
        told: dict[str, Any] = {}
        if bandit.candidates.is_contextual:
            told = {"context": torch.tensor([problem.temperatures[day - 1]], dtype=torch.float64)}
        x = bandit.ask(**told)
        takings = problem.pull(x, day)
        bandit.tell(x, takings, **told)
        prepared.append(float(x))
        rewards.append(float(takings))
        regret.append(float(problem.regret(x, day)))
    return {"prepared": prepared, "rewards": rewards, "regret": regret}


def run(seed: int, days: int) -> dict[str, Any]:
    """Let every policy live through the same days, and return the record of it."""
    torch.set_num_threads(1)
    problem = SeattleWeather(seed=seed)
    record: dict[str, Any] = {"seed": seed, "policies": {}}
    for name, make in POLICIES.items():
        started = time.perf_counter()
        bandit = make(seed, problem)
        played = play(bandit, problem, range(FIRST, FIRST + days))
        record["policies"][name] = played | {"seconds": time.perf_counter() - started}
    return record


def without_learning(days: int) -> dict[str, float]:
    """Return what would be lost in a day, in the mean, by some who do not learn, or know more than takings."""
    problem = SeattleWeather(seed=0)
    period = range(FIRST, FIRST + days)
    losses = torch.stack([problem.regret(problem.arms, day) for day in period])
    known = [problem.arms[(problem.arms - problem.temperatures[day - 1]).abs().argmin(), None] for day in period]
    return {
        "always the same, had one known which": float(losses.mean(0).min()),
        "any, by lot": float(losses.mean()),
        "yesterday's maximum, as it was": float(
            np.mean([float(problem.regret(x, day)) for x, day in zip(known, period, strict=True)])
        ),
    }


def report(record: dict[str, Any], output: Path) -> None:
    """Print what each policy lost."""
    runs, days = record["runs"], record["settings"]["days"]
    table = Table(
        title=f"{days:,} days from {record['dates'][0]}, mean ± sd of {len(runs)} run{'s' * (len(runs) > 1)}",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "lost in a day", "in the last year", "ms a day"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        losses = [np.mean(one["regret"]) for one in played]
        latest = [np.mean(one["regret"][-365:]) for one in played]
        milliseconds = np.mean([1e3 * one["seconds"] / days for one in played])
        table.add_row(name, spread(losses), spread(latest), f"{milliseconds:.1f}")
    table.add_section()
    for name, loss in record["without_learning"].items():
        table.add_row(name, f"{loss:.3f}", "", "")
    console = Console(width=max(Console().width, 100))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    console.print(
        "Lost: the best takings of the day less the expected ones of what was prepared for; the best are 1. Runs "
        f"differ in the noise of the takings, not in the weather. {record['seconds']:.0f} seconds in all.",
        highlight=False,
    )
    names = [str(output / name) for name in ("record.json", "seasons.png", "figure.png")]
    console.print(f"Wrote {names[0]}, {names[1]} and {names[2]}.", highlight=False, soft_wrap=True)


def spread(values: Sequence[Any]) -> str:
    """Return mean ± standard deviation."""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def choose(seeds: Sequence[int] = (100, 101, 102)) -> None:
    """Print what the settings that were tried lose on 2012, with other seeds than the runs have."""
    torch.set_num_threads(1)
    for name, make in TRIED.items():
        losses = [_lost_in_2012(make, seed) for seed in seeds]
        print(f"{name:24} {spread(losses)}", flush=True)


def _lost_in_2012(make: Callable[[int, SeattleWeather], Bandit], seed: int) -> float:
    problem = SeattleWeather(seed=seed)
    return float(np.mean(play(make(seed, problem), problem, range(1, FIRST))["regret"]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies live through the days in every run, and write record and figure."""
    options = parse_arguments(arguments)
    if options.choose:
        choose()
        return
    started = time.perf_counter()
    seeds = range(options.seed, options.seed + options.runs)
    if options.runs == 1:
        runs = [run(options.seed, options.days)]
    else:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            runs = list(pool.map(run, seeds, repeat(options.days)))
    problem = SeattleWeather(seed=0)
    period = slice(FIRST, FIRST + options.days)
    record = {
        "settings": {
            "days": options.days,
            "seed": options.seed,
            "beta": BETA,
            "window": WINDOW,
            "growth": GROWTH,
            "shown": FADING,
        },
        "versions": versions(),
        "seconds": time.perf_counter() - started,
        "dates": problem.dates[period],
        "temperatures": problem.temperatures[period],
        "without_learning": without_learning(options.days),
        "runs": runs,
    }
    write_record(options.output / "record.json", record)
    write_figures(options.output, record)
    report(record, options.output)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, and make the folder to write to."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    longest = SeattleWeather(seed=0).rounds - FIRST  # pyright: ignore[reportOptionalOperand]
    parser.add_argument(
        "--days", type=whole_number(most=longest), default=longest, help="days from the first of January 2013"
    )
    parser.add_argument(
        "--runs", type=whole_number(), default=4, help="how often all policies start anew, two runs at a time"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the next has the next")
    parser.add_argument("--quick", action="store_true", help="one run of 60 days")
    parser.add_argument("--choose", action="store_true", help="print how settings do on 2012, and do nothing else")
    parser.add_argument("--output", type=Path, default=Path("runs/follow_the_weather"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.days, options.runs = 60, 1
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()
