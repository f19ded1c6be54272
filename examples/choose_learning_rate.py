"""Choose learning rate and momentum anew before every epoch, while what is best changes as training goes on.

A small network is trained on scikit-learn's digits; the reward of a choice is by
how much the epoch lowers the logarithm of the validation loss. Early on a large rate brings most, later it may lose: a
bandit problem that changes with time. EK-UCB plays it with memories and without, next to chance and to schedules.

    python examples/choose_learning_rate.py      # one to two minutes on two idle cores; with --quick a few seconds
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import torch
from common import BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, Record, runs_of, spread
from gpytorch.kernels import RBFKernel, ScaleKernel
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

from torch_kbandits import algorithms
from torch_kbandits.memory import LinearGrowth, Memory, SlidingWindow, UncertaintyInjection

TRAINING_SIZE, VALIDATION_SIZE, BATCH_SIZE = 600, 400, 20
TOLERANCE = 1.25  # an epoch after which the validation loss is more than this many times what it was is undone

#: What may be chosen before each epoch. Steps are rate times (1 − momentum), so that rates mean the same with both.
RATES = tuple(float(rate) for rate in np.geomspace(1e-3, 1.0, 13))
MOMENTA = (0.0, 0.9)


def load(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return images (n, 64) in [-1, 1] and labels (n,) in three parts, divided at random."""
    images, labels = load_digits(return_X_y=True)
    left, parts = np.arange(len(labels)), {}
    for name, size in (("training", TRAINING_SIZE), ("validation", VALIDATION_SIZE)):
        parts[name], left = train_test_split(left, train_size=size, stratify=labels[left], random_state=seed)
    scaled = torch.tensor(images / 8.0 - 1.0, dtype=torch.float32), torch.tensor(labels)
    return {name: (scaled[0][part], scaled[1][part]) for name, part in (parts | {"test": left}).items()}


class Training:
    """A network in training, by stochastic gradients; an epoch that makes it much worse is undone."""

    def __init__(self, seed: int) -> None:
        self.digits = load(seed)
        self.order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=RATES[0], weight_decay=1e-3)
        self.undone = 0
        self.validation_loss = self.loss("validation")

    def epoch(self, rate: float, momentum: float) -> float:
        """Train for an epoch and return log(validation loss before / after), at least -log TOLERANCE."""
        before, kept = self.validation_loss, copy.deepcopy((self.network.state_dict(), self.optimizer.state_dict()))
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = rate * (1.0 - momentum), momentum
        images, labels = self.digits["training"]
        for batch in torch.randperm(TRAINING_SIZE, generator=self.order).split(BATCH_SIZE):
            self.optimizer.zero_grad()
            functional.cross_entropy(self.network(images[batch]), labels[batch]).backward()
            self.optimizer.step()
        self.validation_loss = self.loss("validation")
        if not self.validation_loss <= TOLERANCE * before:  # nor is NaN
            self.network.load_state_dict(kept[0])
            self.optimizer.load_state_dict(kept[1])
            self.validation_loss, self.undone = before, self.undone + 1
            return -math.log(TOLERANCE)
        return math.log(before / self.validation_loss)

    @torch.no_grad()
    def loss(self, part: str) -> float:
        """Return the mean cross-entropy on a part of the digits."""
        images, labels = self.digits[part]
        return float(functional.cross_entropy(self.network(images), labels))

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the accuracy on the test digits."""
        images, labels = self.digits["test"]
        return float((self.network(images).argmax(-1) == labels).double().mean())

    def improvements(self, repeats: int = 3) -> list[float]:
        """Return what the next epoch would bring for each rate without momentum, mean over orders; nothing changes."""
        brought = np.empty((len(RATES), repeats))
        for row, repeat in np.ndindex(brought.shape):
            tried = copy.deepcopy(self)
            tried.order.manual_seed(repeat)
            brought[row, repeat] = tried.epoch(RATES[row], 0.0)
        return brought.mean(1).tolist()


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


def report(record: Record) -> list[Any]:
    """Say what each contender reached, and how the bandits compare."""
    runs, rows, said = record["runs"], [], []
    log_losses = {name: [np.log(one["contenders"][name]["test_loss"]).mean() for one in runs] for name in NAMES}
    for name in NAMES:
        played = [one["contenders"][name] for one in runs]
        ends = [each["test_loss"][-1] for each in played], [each["accuracy"] for each in played]
        undone = f"{np.mean([each['undone'] for each in played]):.1f}"
        rows.append([name, spread(np.exp(log_losses[name])), *map(spread, ends), undone])
    for name in MEMORIES:
        for other in ("random", "bandit, static", "constant 0.1", "cosine 1.0"):
            logs = np.subtract(log_losses[name], log_losses[other])
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
main = common.script("choose_learning_rate", __doc__, run, report, draw, settings, size=size)

if __name__ == "__main__":
    main()
