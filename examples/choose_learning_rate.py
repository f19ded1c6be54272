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

import math
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import torch
from choose_learning_rate_training import MOMENTA, RATES, TOLERANCE, Training
from common import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, Record, runs_of, spread
from gpytorch.kernels import RBFKernel, ScaleKernel
from matplotlib.figure import Figure

from torch_kbandits import algorithms
from torch_kbandits.memory import LinearGrowth, Memory, SlidingWindow, UncertaintyInjection

#: Arms: the place of the rate in the logarithm of its range, and the momentum, both in [0, 1].
ARMS = torch.cartesian_prod(*(torch.linspace(0.0, 1.0, len(each)).double() for each in (RATES, MOMENTA)))

#: The prior of rewards, set by hand on the seeds 100 to 104: improvements of some 15%, alike over a decade of rates.
DEVIATION, LENGTHSCALES, REGULARIZATION, BETA = 0.15, (0.3, 1.0), 0.001, 1.0

LOOKS = (0, 3, 20, 60)  # epochs after which the figure shows what each rate would bring

MEMORIES: dict[str, Memory | None] = {
    "bandit, static": None,
    "bandit, window of 20": SlidingWindow(20),
    "bandit, injection": UncertaintyInjection(LinearGrowth(0.0005)),
}
NAMES = [*MEMORIES, "random"] + [f"{kind} {rate}" for kind in ("constant", "cosine") for rate in (0.01, 0.1, 1.0)]

#: How rate and momentum are chosen before an epoch, and what is done with its reward.
Contender = tuple[Callable[[int], tuple[float, float]], Callable[[float], object]]


def bandit(memory: Memory | None, seed: int) -> Contender:
    """Return a contender that learns."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.outputscale = torch.tensor(DEVIATION**2, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor([LENGTHSCALES], dtype=torch.float64)
    words: dict[str, Any] = {"kernel": kernel, "regularization": REGULARIZATION, "beta": BETA}
    player = algorithms.EKUCB(candidates=ARMS, memory=memory, seed=seed, **words)

    def choose(epoch: int) -> tuple[float, float]:
        place, fraction = player.ask()[0].tolist()
        return RATES[round(place * (len(RATES) - 1))], MOMENTA[round(fraction * (len(MOMENTA) - 1))]

    return choose, lambda reward: player.tell(player.pending, reward)


def contender(name: str, epochs: int, seed: int) -> Contender:
    """Return a contender by its name."""
    if name in MEMORIES:
        return bandit(MEMORIES[name], seed)
    generator, (kind, _, peak) = np.random.default_rng(seed), name.partition(" ")
    choose: dict[str, Callable[[int], tuple[float, float]]] = {
        "random": lambda epoch: (float(generator.choice(RATES)), float(generator.choice(MOMENTA))),
        "constant": lambda epoch: (float(peak), 0.9),
        "cosine": lambda epoch: (float(peak) * 0.5 * (1.0 + math.cos(math.pi * epoch / epochs)), 0.9),
    }
    return choose[kind], lambda reward: None


def run(seed: int, epochs: int) -> Record:
    """Let every contender train the same network on the same digits, and return the record of it."""
    torch.set_num_threads(1)
    record: Record = {"seed": seed, "contenders": {}, "looks": {}}
    for name in NAMES:
        training, (choose, learn) = Training(seed), contender(name, epochs, seed)
        played: Record = {"rate": [], "momentum": [], "reward": [], "test_loss": []}
        for epoch in range(epochs):
            if name == NAMES[0] and epoch in LOOKS:
                record["looks"][epoch] = training.improvements()
            rate, momentum = choose(epoch)
            reward = training.epoch(rate, momentum)
            learn(reward)
            for key, value in zip(played, (rate, momentum, reward, training.loss("test")), strict=True):
                played[key].append(value)
        record["contenders"][name] = played | {"accuracy": training.accuracy(), "undone": training.undone}
    return record


def whole(played: Record) -> float:
    """Return the geometric mean of the test loss over the epochs."""
    return float(np.exp(np.mean(np.log(played["test_loss"]))))


def report(record: Record) -> list[Any]:
    """Say what each contender reached, and how the bandits compare."""
    runs, rows, said = record["runs"], [], []
    for name in NAMES:
        played = [one["contenders"][name] for one in runs]
        ends = [each["test_loss"][-1] for each in played], [each["accuracy"] for each in played]
        undone = f"{np.mean([each['undone'] for each in played]):.1f}"
        rows.append([name, spread([*map(whole, played)]), *map(spread, ends), undone])
    for name in MEMORIES:
        for other in ("random", "bandit, static", "constant 0.1", "cosine 1.0"):
            both = [[whole(one["contenders"][each]) for one in runs] for each in (name, other)]
            logs = np.log(both[0]) - np.log(both[1])
            text = f"{name} on {other}: test loss {np.expm1(logs.mean()):+.1%}, lower in {(logs < 0).sum()} of "
            is_unclear = len(runs) > 1 and bool(abs(logs.mean()) <= 2.0 * logs.std(ddof=1) / len(runs) ** 0.5)
            said += [f"{text}{runs_of(runs)}{', too little to tell them apart' * is_unclear}."] * (other != name)
    columns = ["", "test loss,\nwhole training", "test loss,\nend", "test accuracy,\nend", "epochs\nundone"]
    table = common.table(f"{record['settings']['epochs']} epochs, mean ± sd of {runs_of(runs)}", columns, rows)
    return [table, "Whole training: the geometric mean of the test loss after each epoch.", *said]


STYLES = {
    "bandit, static": (SKY, "-", 2.0),
    "bandit, window of 20": (BLUE, "-", 2.4),
    "random": (ORANGE, "-", 1.6),
    "constant 0.01": ("0.55", ":", 1.6),
    "constant 0.1": ("0.3", ":", 1.6),
    "cosine 1.0": (GREEN, "--", 1.6),
}


def draw(record: Record) -> Figure:
    """Return three panels: what each rate brings at several times, test losses, and the rates chosen in run 1."""
    figure, runs = Figure(figsize=(14.0, 4.4), layout="constrained"), record["runs"]
    drift, losses, chosen = figure.subplots(1, 3)
    for epoch, colour in zip(runs[0]["looks"], (PURPLE, YELLOW, GREEN, BLUE), strict=False):  # of the static bandit
        curve = np.mean([one["looks"][epoch] for one in runs], axis=0)
        drift.plot(RATES, curve, color=colour, marker="o", markersize=3.5, label=f"after {epoch} epochs")
    drift.axhline(0.0, color="0.5", linewidth=0.8)
    drift.set(xscale="log", xlabel="learning rate of the next epoch", ylabel="log loss before − log loss after")
    drift.set_yscale("symlog", linthresh=0.1)
    ticks = [-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.5, 1.0, 2.0]
    drift.set_yticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
    for name, (colour, style, width) in STYLES.items():
        curves = np.log([one["contenders"][name]["test_loss"] for one in runs])
        look: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": width, "label": name}
        losses.plot(np.arange(1, curves.shape[1] + 1), np.exp(curves.mean(0)), **look)
    ticks = [0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0]
    losses.set(xscale="log", yscale="log", xlabel="epochs", ylabel="test loss")
    losses.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    losses.set_yticks([], minor=True)
    for name, shift in (("bandit, static", -0.2), ("bandit, window of 20", 0.2)):
        played = runs[0]["contenders"][name]
        sizes = [26 if momentum else 9 for momentum in played["momentum"]]
        look = {"color": STYLES[name][0], "alpha": 0.85, "label": name, "linewidths": 0}
        chosen.scatter(np.arange(1, len(sizes) + 1) + shift, played["rate"], s=sizes, **look)
    chosen.set(yscale="log", xlabel="epoch", ylabel="learning rate", ylim=(6e-4, 5.0))
    titles = "What an epoch brings", f"Test loss, mean of {runs_of(runs)}", "Chosen in run 1; large: momentum 0.9"
    for axes, title in zip((drift, losses, chosen), titles, strict=True):
        axes.set_title(title)
        axes.legend(frameon=False, fontsize=9, **({"loc": "upper right", "ncols": 2} if axes is chosen else {}))
    common.tidy([drift, losses, chosen], "abc")
    return figure


size = "epochs", 80, 6, "epochs of a training, a choice before each", 8
settings = {"rates": RATES, "tolerance": TOLERANCE}
main = common.script("choose_learning_rate", __doc__, run, report, draw, settings, *size)

if __name__ == "__main__":
    main()
