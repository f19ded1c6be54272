"""Choose learning rate and momentum anew before every epoch, while what is best changes as training goes on.

A small network is trained on scikit-learn's digits (``choose_learning_rate_training.py``). Before each epoch a learning
rate and a momentum are chosen; the reward is by how much the epoch lowers the logarithm of the validation loss. Early
on a large rate brings most, later little is left to win and a large rate may lose: the same arm, another reward. So
this is a bandit problem that changes with time. EK-UCB plays it with and without a memory that forgets, next to random
choices, constant rates and cosine schedules. A bandit needs a single training and knows the rates only by their range.

    python examples/choose_learning_rate.py              # one to two minutes on two idle cores
    python examples/choose_learning_rate.py --quick      # a few seconds

Writes ``record.json`` and ``figure.png`` to ``runs/choose_learning_rate``.
"""

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from choose_learning_rate_figure import draw
from choose_learning_rate_training import MOMENTA, RATES, TOLERANCE, Training
from gpytorch.kernels import RBFKernel, ScaleKernel
from records import make_folder, versions, whole_number, write_record
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from torch_kbandits import algorithms
from torch_kbandits.memory import Linear, Memory, SlidingWindow, UncertaintyInjection
from torch_kbandits.plotting.style import write_figure

#: Arms: the place of the rate in the logarithm of its range, and the momentum, both in [0, 1].
ARMS = torch.cartesian_prod(
    torch.linspace(0.0, 1.0, len(RATES), dtype=torch.float64),
    torch.linspace(0.0, 1.0, len(MOMENTA), dtype=torch.float64),
)

#: The prior of rewards, set by hand on the seeds 100 to 104: improvements of some 15%, alike over a decade of rates.
DEVIATION, LENGTHSCALES, REGULARIZATION, BETA = 0.15, (0.3, 1.0), 0.001, 1.0

#: Epochs after which the figure shows what each rate would bring.
LOOKS = (0, 3, 20, 60)

Chooser = Callable[[int], tuple[float, float]]


def bandit_chooser(memory: Memory | None, seed: int) -> tuple[Chooser, Callable[[float], None]]:
    """Return how a bandit chooses, and how it learns the reward of its choice."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.outputscale = torch.tensor(DEVIATION**2, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor([LENGTHSCALES], dtype=torch.float64)
    bandit = algorithms.EKUCB(
        candidates=ARMS, kernel=kernel, regularization=REGULARIZATION, beta=BETA, memory=memory, seed=seed
    )

    def choose(epoch: int) -> tuple[float, float]:
        place, fraction = bandit.ask()[0].tolist()
        return RATES[round(place * (len(RATES) - 1))], MOMENTA[round(fraction * (len(MOMENTA) - 1))]

    return choose, lambda reward: bandit.tell(bandit.pending, torch.tensor([reward], dtype=torch.float64))


def contender(name: str, epochs: int, seed: int) -> tuple[Chooser, Callable[[float], None]]:
    """Return how a contender chooses before each epoch, and what it does with the reward."""
    memories = {
        "bandit, static": None,
        "bandit, window of 20": SlidingWindow(20),
        "bandit, injection": UncertaintyInjection(Linear(0.0005)),
    }
    if name in memories:
        return bandit_chooser(memories[name], seed)
    if name == "random":
        generator = np.random.default_rng(seed)
        return lambda epoch: (float(generator.choice(RATES)), float(generator.choice(MOMENTA))), lambda reward: None
    kind, peak = name.split()
    if kind == "constant":
        return lambda epoch: (float(peak), 0.9), lambda reward: None
    return lambda epoch: (float(peak) * 0.5 * (1.0 + math.cos(math.pi * epoch / epochs)), 0.9), lambda reward: None


#: The contenders in the order of the table.
NAMES = (
    "bandit, static",
    "bandit, window of 20",
    "bandit, injection",
    "random",
    *(f"constant {rate}" for rate in (0.01, 0.1, 1.0)),
    *(f"cosine {rate}" for rate in (0.01, 0.1, 1.0)),
)


def run(seed: int, epochs: int) -> dict[str, Any]:
    """Let every contender train the same network on the same digits, and return the record of it."""
    torch.set_num_threads(1)
    record: dict[str, Any] = {"seed": seed, "contenders": {}, "looks": {}}
    for name in NAMES:
        training = Training(seed)
        choose, learn = contender(name, epochs, seed)
        played: dict[str, Any] = {"rate": [], "momentum": [], "reward": [], "test_loss": []}
        seconds = 0.0
        for epoch in range(epochs):
            if name == "bandit, static" and epoch in LOOKS:
                record["looks"][epoch] = training.improvements()
            started = time.perf_counter()
            rate, momentum = choose(epoch)
            seconds += time.perf_counter() - started
            reward = training.epoch(rate, momentum)
            started = time.perf_counter()
            learn(reward)
            seconds += time.perf_counter() - started
            played["rate"].append(rate)
            played["momentum"].append(momentum)
            played["reward"].append(reward)
            played["test_loss"].append(training.loss(training.digits.test))
        record["contenders"][name] = played | {
            "accuracy": training.accuracy(),
            "undone": training.undone,
            "deciding_seconds": seconds,
        }
    return record


def report(record: dict[str, Any], output: Path) -> None:
    """Print what each contender reached, and how the bandits compare."""
    runs, epochs = record["runs"], record["settings"]["epochs"]
    title = f"{epochs} epochs, mean ± sd of {len(runs)} run(s)"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
    headings = ("", "test loss,\nwhole training", "test loss,\nend", "test accuracy,\nend", "epochs\nundone")
    for column in headings:
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name in NAMES:
        played = [one["contenders"][name] for one in runs]
        table.add_row(
            name,
            spread([whole(each) for each in played]),
            spread([each["test_loss"][-1] for each in played]),
            spread([each["accuracy"] for each in played]),
            f"{np.mean([each['undone'] for each in played]):.1f}",
        )
    console = Console(width=max(Console().width, 100))  # a pipe would get 80 columns and cut the cells
    console.print(table)
    console.print("Whole training: the geometric mean of the test loss after each epoch.")
    for name in NAMES[:3]:
        for other in ("random", "bandit, static", "constant 0.1", "cosine 1.0"):
            if other != name:
                console.print(verdict(name, other, runs), highlight=False)
    console.print(f"{record['seconds']:.0f} seconds in all.", highlight=False)
    console.print(f"Wrote {output / 'record.json'} and {output / 'figure.png'}.", highlight=False, soft_wrap=True)


def verdict(name: str, other: str, runs: Sequence[dict[str, Any]]) -> str:
    """Say by how much the test loss of one contender over the whole training is below that of another."""
    ratios = np.log([whole(one["contenders"][name]) / whole(one["contenders"][other]) for one in runs])
    text = f"{name} on {other}: test loss {np.expm1(ratios.mean()):+.1%}, lower in {(ratios < 0).sum()} of {len(runs)}"
    if len(runs) == 1:
        return f"{text} run."
    error = ratios.std(ddof=1) / len(runs) ** 0.5
    return f"{text} runs{', too little to tell them apart' if abs(ratios.mean()) <= 2.0 * error else ''}."


def whole(played: dict[str, Any]) -> float:
    """Return the geometric mean of the test loss over the epochs."""
    return float(np.exp(np.mean(np.log(played["test_loss"]))))


def spread(values: Sequence[float]) -> str:
    """Return mean ± standard deviation."""
    return f"{np.mean(values):.3f}" + (f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Let all contenders train in every run, and write record and figure."""
    options = parse_arguments(arguments)
    started = time.perf_counter()
    seeds = range(options.seed, options.seed + options.runs)
    if options.runs == 1:
        runs = [run(options.seed, options.epochs)]
    else:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            runs = list(pool.map(run, seeds, repeat(options.epochs)))
    record = {
        "settings": {
            "epochs": options.epochs,
            "seed": options.seed,
            "rates": RATES,
            "momenta": MOMENTA,
            "tolerance": TOLERANCE,
            "deviation": DEVIATION,
            "lengthscales": LENGTHSCALES,
            "regularization": REGULARIZATION,
            "beta": BETA,
        },
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
    parser.add_argument("--epochs", type=whole_number(), default=80, help="epochs of a training, a choice before each")
    parser.add_argument(
        "--runs", type=whole_number(), default=8, help="how often all contenders start anew, two runs at a time"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run; the next has the next")
    parser.add_argument("--quick", action="store_true", help="one run of 6 epochs")
    parser.add_argument("--output", type=Path, default=Path("runs/choose_learning_rate"), help="folder to write to")
    options = parser.parse_args(arguments)
    if options.quick:
        options.epochs, options.runs = 6, 1
    make_folder(parser, options.output)
    return options


if __name__ == "__main__":
    main()
