"""The noisy task of ``tune_classifier.py``: five hyperparameters of a neural network for the digits data set.

The classifier is scikit-learn's ``MLPClassifier``, trained by stochastic gradient descent for ten passes over its data.
An evaluation is the accuracy on one freshly drawn validation split, so its noise is real: near the optimum the standard
deviation is 0.018, more than there is left to gain. Two thirds of the digits are held out until the end.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from torch_kbandits import Float, Integer, ParameterSpace
from torch_kbandits.numerics.random import seed_for

DEVELOPMENT_SIZE = 600
VALIDATION_SIZE = 150
EPOCHS = 10
REFITS = 5
CHANCE = 0.1

#: Standard deviation of a validation score's log-odds: which digits fall into the split gives an accuracy p the
#: variance 1 / (n p (1 − p)), here at p = 0.95, where the search ends up. 40 replicates of each of three good
#: configurations had 0.36 to 0.43.
LOG_ODDS_NOISE = (VALIDATION_SIZE * 0.95 * 0.05) ** -0.5

#: Accuracies below this count as this: how badly a training fails says nothing about where it succeeds.
FLOOR = 0.5


#: What is tuned, and how it is called.
SPACE = ParameterSpace(
    {
        "hidden_units": Integer(4, 128, log=True),
        "learning_rate": Float(1e-4, 1.0, log=True),
        "one_minus_momentum": Float(1e-2, 1.0, log=True),
        "weight_decay": Float(1e-6, 10.0, log=True),
        "batch_size": Integer(4, 128, log=True),
    }
)
LABELS = {name: name.replace("one_minus_", "1 − ").replace("_", " ") for name in SPACE.parameters}


def network(configuration: dict[str, Any], random_state: int) -> MLPClassifier:
    """Return the untrained classifier of a configuration."""
    arguments: dict[str, Any] = {
        "hidden_layer_sizes": (configuration["hidden_units"],),
        "learning_rate_init": configuration["learning_rate"],
        "momentum": 1.0 - configuration["one_minus_momentum"],
        "alpha": configuration["weight_decay"],
        "batch_size": configuration["batch_size"],
    }
    # As many epochs without progress as there are at all: training never stops early.
    return MLPClassifier(solver="sgd", max_iter=EPOCHS, n_iter_no_change=EPOCHS, random_state=random_state, **arguments)


Labelled = tuple[np.ndarray, np.ndarray]


class Digits:
    """The digits data set, split once into what the searches may see and what they may not.

    Args:
        seed: of the split, of all others, and of weights.
    """

    def __init__(self, seed: int) -> None:
        images, labels = map(np.asarray, load_digits(return_X_y=True))
        self.seed = seed
        held_out = numpy_seed(seed, 0, "held-out set")
        self.development, self.held_out = split((images / 16.0, labels), len(labels) - DEVELOPMENT_SIZE, held_out)

    def validate(self, configuration: dict[str, Any], index: int) -> float:
        """Return the accuracy on the fresh validation split of an evaluation, after training on the rest.

        The split and the initial weights depend on seed and index alone: both searches meet the same noise.
        """
        train, validation = split(self.development, VALIDATION_SIZE, numpy_seed(self.seed, index, "validation split"))
        return accuracy(network(configuration, numpy_seed(self.seed, index, "weights")), train, validation)

    def refit(self, classifier: Callable[[int], MLPClassifier]) -> list[float]:
        """Return held-out accuracies after training on all development data with other seeds."""
        seeds = [numpy_seed(self.seed, number, "refit") for number in range(REFITS)]
        return [accuracy(classifier(random_state), self.development, self.held_out) for random_state in seeds]


def split(data: Labelled, second_size: int, random_state: int) -> tuple[Labelled, Labelled]:
    """Split at random into two parts with equal shares of each digit."""
    images, labels = data
    first, second = train_test_split(
        np.arange(len(labels)), test_size=second_size, stratify=labels, random_state=random_state
    )
    return (images[first], labels[first]), (images[second], labels[second])


def accuracy(classifier: MLPClassifier, train: Labelled, test: Labelled) -> float:
    """Train and return the accuracy on the test data; a training that diverges has that of chance."""
    # One thread: the matrices are too small for more. Few epochs are the task, so not having converged is no news.
    with threadpool_limits(limits=1), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return float(classifier.fit(*train).score(*test))
        except ValueError as error:
            if "non-finite" not in str(error):
                raise
            return CHANCE


def numpy_seed(seed: int, index: int, purpose: str) -> int:
    """Return the 32-bit seed of a draw, which depends on its address and on nothing that happened before."""
    return seed_for(seed, index, purpose) % 2**32


@dataclass(frozen=True)
class RewardScale:
    """Accuracies as rewards of mean about 0 and variance about 1, which is what the model's prior expects.

    A reward is the log-odds of the accuracy, less a centre and divided by a scale. Log-odds pull apart 0.94 and 0.96,
    which matter. Centre and scale are those of the initial design and stay: were they recomputed, λ would change its
    meaning every round.
    """

    centre: float
    scale: float

    @classmethod
    def of_design(cls, scores: Sequence[float]) -> "RewardScale":
        """Return the scale that standardises the log-odds of the initial design."""
        odds = log_odds(scores)
        # In a design whose trainings all fail the noise is the only scale.
        return cls(float(odds.mean()), max(float(odds.std(ddof=1)), LOG_ODDS_NOISE))

    @property
    def regularization(self) -> float:
        """λ, the noise variance of a reward."""
        return (LOG_ODDS_NOISE / self.scale) ** 2

    def rewards(self, scores: Sequence[float]) -> Tensor:
        """Return the rewards (n, 1) of accuracies."""
        return torch.from_numpy((log_odds(scores) - self.centre) / self.scale).unsqueeze(-1)

    def accuracies(self, rewards: Tensor) -> Tensor:
        """Return the accuracies that rewards stand for."""
        return torch.sigmoid(rewards * self.scale + self.centre)


def log_odds(scores: Sequence[float]) -> np.ndarray:
    """Return log (right + ½) / (wrong + ½) of validation accuracies."""
    right = np.maximum(scores, FLOOR) * VALIDATION_SIZE
    return np.log((right + 0.5) / (VALIDATION_SIZE - right + 0.5))
