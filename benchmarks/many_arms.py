"""A million arms in single precision: memory of the whole process and seconds a round."""

import math
import time

import torch

from benchmarks.arm_bandits import BETA, REGULARIZATION, kernel
from benchmarks.runner import Found, Table, apart, benchmark, peak_bytes, resident_bytes, spread
from torch_kbandits import Bandit
from torch_kbandits.candidates import Arms
from torch_kbandits.confidence import ConstantWidth
from torch_kbandits.dictionaries import FixedDictionary


@benchmark(arms=2_000, dimension=2, dictionary=10, rounds=5)
def many_arms(
    arms: int = 1_000_000,
    dimension: int = 6,
    dictionary: int = 100,
    rounds: int = 50,
    device: str = "cpu",
) -> Found:
    """Play in a process of its own, on a device maybe; memory is the host's."""
    found = apart(in_a_process, arms, dimension, dictionary, rounds, device)
    rows = [
        ["peak memory above that before the arms, MiB", f"{found['memory'] / 2**20:,.0f}"],
        ["of which the embedding, MiB", f"{4 * arms * dictionary / 2**20:,.0f}"],
        ["seconds until the second ask", f"{found['set_up']:.2f}"],
        ["seconds a round", spread(found["seconds"], 4)],
    ]
    title = f"{arms:,} arms on {device}, dictionary of {dictionary}, single precision, {rounds} rounds"
    return [Table(title, ["what", "median (min–max)"], rows)], [found]


def in_a_process(arms: int, dimension: int, dictionary: int, rounds: int, device: str) -> dict:
    """Return times of a bandit with a fixed dictionary, and its memory, from before the arms exist to the peak."""
    _played(100, dimension, 5, 2, device)  # loads libraries
    before = resident_bytes()
    set_up, *seconds = _played(arms, dimension, dictionary, rounds, device)
    return {"memory": peak_bytes() - before, "set_up": set_up, "seconds": seconds}


def _played(arms: int, dimension: int, dictionary: int, rounds: int, device: str) -> list[float]:
    """Return the seconds until the second ``ask``, in the first of which all arms are embedded, and of each round."""
    generator = torch.Generator().manual_seed(0)
    points, start = torch.rand(arms, dimension, generator=generator).to(device), time.perf_counter()
    prior = {"kernel": kernel(dtype=torch.float32), "regularization": REGULARIZATION}
    rules = {"dictionary": FixedDictionary(points[:dictionary]), "width": ConstantWidth(BETA)}
    bandit = Bandit(candidates=Arms(points), seed=0, **prior, **rules)
    seconds, x = list[float](), bandit.ask()
    for _ in range(1 + rounds):
        # A noisy wave: an environment would take memory for the means of all arms.
        y = torch.sin(math.pi * x.cpu()).mean(-1) + 0.1 * torch.randn(1, generator=generator)
        start = start if not seconds else time.perf_counter()
        bandit.tell(x, y)
        x = bandit.ask()
        seconds.append(time.perf_counter() - start)
    return seconds
