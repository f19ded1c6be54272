"""What ``choose_learning_rate.py`` trains: a small network on scikit-learn's digits, epoch by epoch."""

import copy
import math

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

TRAINING_SIZE, VALIDATION_SIZE, BATCH_SIZE = 600, 400, 20

#: An epoch after which the validation loss is more than this many times what it was is undone.
TOLERANCE = 1.25

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
    """A network in training, by stochastic gradients; an epoch that makes it much worse is undone.

    Args:
        seed: of the division of the digits, of the weights and of the order of the images.
    """

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
        before, kept = self.validation_loss, self.state()
        for group in self.optimizer.param_groups:
            group["lr"], group["momentum"] = rate * (1.0 - momentum), momentum
        images, labels = self.digits["training"]
        for batch in torch.randperm(TRAINING_SIZE, generator=self.order).split(BATCH_SIZE):
            self.optimizer.zero_grad()
            functional.cross_entropy(self.network(images[batch]), labels[batch]).backward()
            self.optimizer.step()
        self.validation_loss = self.loss("validation")
        if not self.validation_loss <= TOLERANCE * before:  # nor is NaN
            self.restore(kept)
            self.validation_loss = before
            self.undone += 1
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

    def state(self) -> tuple[dict, dict]:
        """Return copies of weights and optimiser."""
        return copy.deepcopy(self.network.state_dict()), copy.deepcopy(self.optimizer.state_dict())

    def restore(self, state: tuple[dict, dict]) -> None:
        """Go back to a state."""
        self.network.load_state_dict(state[0])
        self.optimizer.load_state_dict(copy.deepcopy(state[1]))

    def improvements(self, repeats: int = 3) -> list[float]:
        """Return what the next epoch would bring for each rate without momentum, mean over orders; nothing changes."""
        brought = np.empty((len(RATES), repeats))
        for row, repeat in np.ndindex(brought.shape):
            tried = copy.deepcopy(self)
            tried.order.manual_seed(repeat)
            brought[row, repeat] = tried.epoch(RATES[row], 0.0)
        return brought.mean(1).tolist()
