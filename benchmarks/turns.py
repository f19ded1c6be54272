"""Shorter forms of the benchmarks of rounds, this checkout in turns with another: is it slower than before?

    .venv/bin/python -m benchmarks.turns ../other-checkout arm_rounds contextual_rounds

Each run is a process of its own, with the package and the benchmarks of its checkout. Nothing else should run.
"""

import argparse
import importlib
import inspect
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

#: Sizes that differ from the full ones, where a checkout knows them.
SHORTER: dict[str, dict[str, Any]] = {
    "arm_rounds": {},
    "contextual_rounds": {"rounds": 3000, "repeats": 2, "dense_at": (500,), "dense_rounds": 2, "long_rounds": 20_000},
    "window_rounds": {"rounds": 150, "rebuilt": 1},
    "sharded_arms": {"arms": 300_000},
    "long_run": {"rounds": 8000, "memory_every": 4000},
}


def main() -> None:
    """Run the benchmarks named, all of them unless named, in turns, and print what each checkout says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SHORTER)}")
    options = parser.parse_args()
    for name in options.names or SHORTER:
        for folder in (options.other, Path(__file__).parents[1]):
            print(f"## {name}, {folder.resolve().name}", flush=True)
            environment = os.environ | {"PYTHONPATH": str(folder.resolve())}
            subprocess.run([sys.executable, __file__, name], cwd=folder, env=environment, check=True)


def one(name: str) -> None:
    """Run a benchmark of the checkout that is imported, and print its tables."""
    module: Any = importlib.import_module(f"benchmarks.{name}")
    if name == "arm_rounds":
        arm_rounds()
        return
    full, shorter = module.Sizes, SHORTER[name]
    known = set(inspect.signature(full).parameters)
    module.Sizes = lambda: full(**{word: size for word, size in shorter.items() if word in known})
    for table in module.run(False).tables:
        print(table.markdown(), flush=True)


def arm_rounds() -> None:
    """Print the median of our rounds over 10,000 arms alone, by what happens to the dictionary."""
    from benchmarks.arm_bandits import BANDITS, Case, play
    from benchmarks.arm_rounds import QUICK
    from torch_kbandits.candidates import Arms
    from torch_kbandits.environments import gaussian_bumps

    environment = gaussian_bumps(10_000, 6, seed=0)
    for make in BANDITS.values():  # the first calls of a process load libraries and start threads
        play(make(Arms(environment.arms), QUICK.cases[0], 0), environment, QUICK.cases[0])
    for case in (Case(0.5, 350, 400), Case(1.4, 45, 300)):
        for name, make in BANDITS.items():
            rounds = play(make(Arms(environment.arms), case, 0), environment, case).rounds
            by_change: dict[str, list[float]] = {}
            for each in rounds:
                if case.counts(len(each.dictionary)):
                    by_change.setdefault(each.change, []).append(each.ms)
            medians = {change: f"{statistics.median(ms):.2f} ms of {len(ms)}" for change, ms in by_change.items()}
            print(case.dictionary, name, medians, flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in SHORTER:
        one(sys.argv[1])
    else:
        main()
