"""Run a batch reactor below 80 °C, while yields are known weeks later and the catalyst grows old.

Before each batch the feed and the temperature of the jacket are set, knowing how warm the feed water is. The peak
temperature is measured at once, the yield 5 to 40 batches later, in a laboratory that loses some samples. Better yields
are near the limit of 80 °C, and a batch above it is an incident. As the catalyst ages the same set-points give less
and grow hotter; after three fifths of the batches there is a new one.

A bandit that plays only what surely keeps the limit is compared with one that forgets nothing, with one that plays what
may keep it, with one that knows no limit, and with two ways to be careful that learn nothing
(``run_a_reactor_policies.py``). The plant is simulated (``run_a_reactor_plant.py``); what bandits assume of it is an
engineer's guess, not its formulas.

    python examples/run_a_reactor.py              # about three minutes on two cores
    python examples/run_a_reactor.py --quick      # several seconds

Writes ``record.json`` and ``figure.png`` to ``runs/run_a_reactor``.
"""

import argparse
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from run_a_reactor_figure import draw
from run_a_reactor_plant import LIMIT, SET_POINTS, Course, course, product, settings, temperature
from run_a_reactor_policies import POLICIES, SAFE, Learning, Policy
from run_a_reactor_policies import settings as chosen

from torch_kbandits.plotting.style import write_figure

#: The temperature of the feed water, in °C, for which the figure shows what is believed to be safe.
WATER = 14.0

#: The shares of the first catalyst's life after which it shows it.
SHOWN = (0.005, 1.0)


@dataclass(frozen=True)
class Played:
    """What a policy did.

    Attributes:
        set_points: feed and jacket temperature of each batch.
        peaks: expected peak temperatures, in °C.
        yields: expected yields, in kg.
        beliefs: what is believed of temperatures, at the batches that the figure shows.
        seconds: spent by the policy itself, of the processor.
    """

    set_points: list[list[float]]
    peaks: list[float]
    yields: list[float]
    beliefs: list[dict[str, Any]]
    seconds: float


def play(policy: Policy, around: Course, shown: Sequence[int] = ()) -> Played:
    """Run the reactor; temperatures are told after each batch, and yields when the laboratory knows them."""
    set_points, peaks, yields, beliefs, seconds = [], [], [], [], 0.0
    for batch, (water, age) in enumerate(zip(around.water.tolist(), around.ages.tolist(), strict=True)):
        started = time.process_time()
        if batch == around.changed:
            policy.change_catalyst()
        if len(known := np.flatnonzero(around.known == batch)):
            policy.yielded(known.tolist(), [yields[one] + around.yield_noise[one] for one in known])
        x = policy.set_point(batch, water)
        seconds += time.process_time() - started

        set_points.append(x.flatten().tolist())
        peaks.append(float(temperature(x, water, age)))
        yields.append(float(product(x, water, age)))
        if batch in shown and isinstance(policy, Learning):
            beliefs.append(
                {
                    "batch": batch,
                    "bounds": policy.bounds(WATER).tolist(),
                    "peaks": temperature(SET_POINTS, WATER, age).tolist(),
                }
            )
        started = time.process_time()
        policy.warmed(peaks[-1] + around.temperature_noise[batch])
        seconds += time.process_time() - started
    return Played(set_points, peaks, yields, beliefs, seconds)


def run(seed: int, batches: int) -> dict[str, Any]:
    """Let every policy run the same reactor, and return the record of it."""
    torch.set_num_threads(1)
    around = course(batches, seed)
    shown = [round(share * (around.changed - 1)) for share in SHOWN]
    record: dict[str, Any] = {
        "seed": seed,
        "changed": around.changed,
        "best": [around.best(batch) for batch in range(batches)],
        "policies": {},
    }
    for name, make in POLICIES.items():
        played = play(make(seed), around, shown if name == SAFE else ())
        if played.beliefs:
            record["beliefs"] = played.beliefs
        record["policies"][name] = {
            "set_points": played.set_points,
            "peaks": played.peaks,
            "yields": played.yields,
            "seconds": played.seconds,
        }
    return record


def report(record: dict[str, Any], output: Path) -> None:
    """Print how hot each policy let the reactor become, and what it lost."""
    runs, batches = record["runs"], record["settings"]["batches"]
    table = Table(
        title=f"{batches:,} batches, mean ± sd of {len(runs)} run{'s' * (len(runs) > 1)}",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in ("", "incidents", "by how much, °C,\nin the mean", "hottest, °C", "lost, kg\na batch", "ms a batch"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in POLICIES:
        played = [one["policies"][name] for one in runs]
        peaks = np.array([one["peaks"] for one in played])
        above = peaks[peaks > LIMIT] - LIMIT
        lost = [np.mean(np.subtract(one["best"], one["policies"][name]["yields"])) for one in runs]
        table.add_row(
            name,
            spread((peaks > LIMIT).sum(-1), ".1f"),
            f"{above.mean():.2f}" if len(above) else "",
            f"{peaks.max():.1f}",
            spread(lost, ".2f"),
            f"{np.mean([1e3 * one['seconds'] / batches for one in played]):.0f}",
        )
    console = Console(width=max(Console().width, 130))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    console.print(
        "Temperatures and yields are expected ones. Lost: the yield of the best set-point that keeps the limit less "
        "that of the one played, which is negative where the limit is broken for more. "
        f"{record['seconds']:.0f} seconds in all.",
        highlight=False,
    )
    console.print(f"Wrote {output / 'record.json'} and {output / 'figure.png'}.", highlight=False, soft_wrap=True)


def spread(values: Sequence[Any] | np.ndarray, form: str) -> str:
    """Return mean ± standard deviation."""
    mean = f"{np.mean(values):{form}}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):{form}}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all policies run the reactor in every run, and write record and figure."""
    options = parse_arguments(arguments)
    started = time.perf_counter()
    seeds = range(options.seed, options.seed + options.runs)
    if options.runs == 1:
        runs = [run(options.seed, options.batches)]
    else:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            runs = list(pool.map(run, seeds, repeat(options.batches)))
    record = {
        "settings": {"batches": options.batches, "seed": options.seed, "water": WATER} | settings() | chosen(),
        "versions": versions(),
        "seconds": time.perf_counter() - started,
        "runs": runs,
    }
    write_record(options.output / "record.json", record)
    write_figure(options.output / "figure.png", draw(record))
    report(record, options.output)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, and make the folder to write to."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--batches", type=whole_number(10), default=400, help="batches in a run, at least 10")
    parser.add_argument(
        "--runs", type=whole_number(), default=3, help="how often all policies start anew, two runs at a time"
    )
    parser.add_argument("--seed", type=int, default=10, help="seed of the first run; the next has the next")
    parser.add_argument("--quick", action="store_true", help="one run of 40 batches")
    parser.add_argument("--output", type=Path, default=Path("runs/run_a_reactor"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.batches, options.runs = 40, 1
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()
