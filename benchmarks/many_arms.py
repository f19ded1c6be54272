"""A million arms in single precision: memory of the whole process and seconds a round.

``python -m benchmarks.many_arms SIZES`` measures in a fresh interpreter and prints the result; SIZES is JSON.
"""

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.bandwidth import read_rate
from benchmarks.memory import peak_bytes, resident_bytes
from benchmarks.report import Report, Table, run_module, spread
from torch_kbandits import Bandit
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import FixedDictionary


@dataclass(frozen=True)
class Sizes:
    """What is run."""

    arms: int = 1_000_000
    dimension: int = 6
    lengthscale: float = 0.5
    dictionary: int = 100
    rounds: int = 50
    beyond_cache: int = 2**30


QUICK = Sizes(arms=2_000, dimension=2, dictionary=10, rounds=5, beyond_cache=2**20)


def run(quick: bool = False) -> Report:
    """Play in a process of its own; measure the bandwidth in this one, so that it takes no memory there."""
    sizes = QUICK if quick else Sizes()
    measurement = json.loads(run_module("benchmarks.many_arms", json.dumps(asdict(sizes))))
    measurement["limit_seconds"] = 4 * sizes.arms * sizes.dictionary / read_rate(sizes.beyond_cache)
    return Report("many_arms", asdict(sizes), [_table(measurement, sizes)], [measurement])


def measure(sizes: Sizes) -> dict[str, Any]:
    """Return memory and times of a bandit with a fixed dictionary, all in this process.

    Memory counts from before the arms exist to the peak: arms, their copy in the bandit, the table and whatever a round
    needs for a while.
    """
    _play(Sizes(arms=100, dictionary=5, rounds=2))  # loads libraries
    before = resident_bytes()
    set_up, seconds = _play(sizes)
    return {
        "what": "many arms",
        "before_bytes": before,
        "peak_bytes": peak_bytes(),
        "set_up_seconds": set_up,
        "seconds": seconds,
    }


def _play(sizes: Sizes) -> tuple[float, list[float]]:
    """Return the seconds until the second ``ask``, and those of the rounds after."""
    generator = torch.Generator().manual_seed(0)
    arms = torch.rand(sizes.arms, sizes.dimension, generator=generator)
    start = time.perf_counter()
    bandit = Bandit(
        candidates=Arms(arms),
        kernel=kernel(sizes.lengthscale, torch.float32),
        regularization=REGULARIZATION,
        dictionary=FixedDictionary(arms[: sizes.dictionary]),
        width=ConstantWidth(BETA),
        seed=0,
    )
    # The first round embeds all arms.
    x = bandit.ask()
    bandit.tell(x, _reward(x, generator))
    x = bandit.ask()
    set_up = time.perf_counter() - start
    seconds = []
    for _ in range(sizes.rounds):
        y = _reward(x, generator)
        start = time.perf_counter()
        bandit.tell(x, y)
        x = bandit.ask()
        seconds.append(time.perf_counter() - start)
    return set_up, seconds


def _reward(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a noisy wave at x (1, d): an environment would take memory for the means of all arms."""
    return torch.sin(math.pi * x).mean(-1) + 0.1 * torch.randn(1, generator=generator)


def _table(measurement: dict[str, Any], sizes: Sizes) -> Table:
    embedding = 4 * sizes.arms * sizes.dictionary
    memory = measurement["peak_bytes"] - measurement["before_bytes"]
    rows = [
        ["peak memory above that before the arms, MiB", f"{memory / 2**20:,.0f}"],
        ["of which the embedding, MiB", f"{embedding / 2**20:,.0f}"],
        ["seconds until the second ask", f"{measurement['set_up_seconds']:.2f}"],
        ["seconds a round", spread(measurement["seconds"], 4)],
        ["seconds of one read of the embedding", f"{measurement['limit_seconds']:.4f}"],
    ]
    title = f"{sizes.arms:,} arms, dictionary of {sizes.dictionary}, single precision, {sizes.rounds} rounds"
    return Table(title, ["what", "median (min–max)"], rows)


if __name__ == "__main__":
    print(json.dumps(measure(Sizes(**json.loads(sys.argv[1])))))
