"""Learning curves: validation scores of configurations at several fidelities, trained once and kept in ``runs/``."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch.quasirandom import SobolEngine
from tqdm import tqdm

_FOLDER = Path("runs/learning-curves")


def _network(x: np.ndarray, levels: tuple[float, ...]) -> list[float]:
    """Return the accuracy of a network on digits after each number of epochs: of its rate, decay, width and batches."""
    X, test_X, y, test_y = _split(load_digits)
    width, batch = round(8 * 32 ** x[2]), round(16 * 16 ** x[3])
    model = MLPClassifier(
        (width,),
        alpha=10 ** (6 * x[1] - 6),
        learning_rate_init=10 ** (3.5 * x[0] - 4),
        batch_size=batch,
        random_state=0,
    )
    scores = []
    for epoch in range(1, int(levels[-1]) + 1):
        model.partial_fit(X, y, classes=np.unique(y))
        if epoch in levels:
            scores.append(float(model.score(test_X, test_y)))
    return scores


def _boosting(x: np.ndarray, levels: tuple[float, ...]) -> list[float]:
    """Return R² of boosted trees on diabetes for each number of trees: of rate, depth, subsample and size of a leaf."""
    X, test_X, y, test_y = _split(load_diabetes)
    model = GradientBoostingRegressor(
        n_estimators=int(levels[-1]),
        learning_rate=10 ** (2.5 * x[0] - 2.5),
        max_depth=1 + int(5.999 * x[1]),
        subsample=0.3 + 0.7 * x[2],
        min_samples_leaf=round(20 ** x[3]),
        random_state=0,
    ).fit(X, y)
    staged = [1.0 - ((test_y - each) ** 2).mean() / test_y.var() for each in model.staged_predict(test_X)]
    return [max(float(staged[int(level) - 1]), -1.0) for level in levels]


def _support_vectors(x: np.ndarray, levels: tuple[float, ...]) -> list[float]:
    """Return the accuracy of an SVC on digits, from each share of the rows: of its penalty, kernel and components."""
    X, test_X, y, test_y = _split(load_digits)
    components = PCA(round(2 * 32 ** x[2]), random_state=0).fit(X)
    X, test_X = components.transform(X), components.transform(test_X)
    model = SVC(C=10 ** (6 * x[0] - 3), gamma=10 ** (5 * x[1] - 5))
    sizes = [round(level * len(X)) for level in levels]
    return [float(model.fit(X[:size], y[:size]).score(test_X, test_y)) for size in sizes]


@dataclass(frozen=True)
class Curves:
    """What is trained, over how many parameters of [0, 1], and to what fidelities, which are the costs as well.

    Some trainings go on from the fidelity before.
    """

    score: Callable[[np.ndarray, tuple[float, ...]], list[float]]
    dimension: int
    levels: tuple[float, ...]
    resumes: bool = True

    def table(self, name: str, size: int) -> tuple[Tensor, Tensor]:
        """Return so many configurations (A, d), evenly spread, and their scores (A, L), trained unless they were."""
        path = _FOLDER / f"{name}-{size}.pt"
        if path.exists():
            return torch.load(path)
        X = SobolEngine(self.dimension, scramble=True, seed=0).draw(size, dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            scores = torch.tensor([self.score(x, self.levels) for x in tqdm(X.numpy(), name)]).double()
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save((X, scores), path)
        return X, scores


CURVES = {
    "networks, epochs": Curves(_network, 4, (1.0, 3.0, 9.0, 27.0)),
    "boosting, trees": Curves(_boosting, 4, (5.0, 20.0, 80.0, 320.0)),
    "support vectors, share of rows": Curves(_support_vectors, 3, (0.05, 0.15, 0.4, 1.0), resumes=False),
}


def _split(load: Callable[..., Any]) -> tuple[Any, ...]:
    """Return inputs to train and test with, scaled, and then the outputs."""
    X, test_X, y, test_y = train_test_split(*load(return_X_y=True), test_size=0.4, random_state=0)
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(test_X), y, test_y
