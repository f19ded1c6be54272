from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Protocol

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.dictionaries import PlayedPoints, Selection
from torch_kbandits.models import NystromGP


class ConfidenceAcquisition(Protocol):
    """An acquisition function of the posterior marginals and a confidence width, such as ``KernelUCB``."""

    def __call__(self, model: Model, beta: Tensor, X_pending: Tensor | None = None) -> AcquisitionFunction:
        """Build the BoTorch acquisition function on a model."""
        ...

    @staticmethod
    def score(mean: Tensor, variance: Tensor, beta: Tensor) -> Tensor:
        """Return the value of each candidate from its posterior mean and variance."""
        ...


class Belief(ABC):
    """The posterior of a bandit in the form that suits its candidates, and the search for the best of them.

    A belief is also the ``Evidence`` that confidence widths read. It checks nothing that ``Bandit`` has checked.

    Args:
        example: a point (1, d) whose dtype and device all tensors have.
        kernel: the prior covariance; a copy is kept.
        regularization: λ.
    """

    def __init__(self, example: Tensor, kernel: Kernel, regularization: float) -> None:
        self.kernel = deepcopy(kernel).to(example).requires_grad_(False).eval()
        self.regularization = example.new_tensor(regularization)

    def model(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> NystromGP:
        """Return the BoTorch model of rewards Y (n,) at X (n, d) at a dictionary (m, d), with this prior and noise."""
        return NystromGP(
            X,
            Y.unsqueeze(-1),
            inducing_points=inducing_points,
            covar_module=deepcopy(self.kernel),
            regularization=float(self.regularization),
        )

    @property
    @abstractmethod
    def num_observations(self) -> int:
        """Number t of observations."""

    @property
    @abstractmethod
    def inducing_points(self) -> Tensor:
        """The dictionary, (m, d)."""

    @abstractmethod
    def effective_dimension(self) -> Tensor:
        """Σ_s τ̃(x_s), 0-dim."""

    @abstractmethod
    def information_gain(self) -> Tensor:
        """½ log det V, 0-dim, in nats."""

    @abstractmethod
    def kernel_bound(self) -> Tensor:
        """The largest k(x, x) known of, 0-dim."""

    @abstractmethod
    def preview(self, X: Tensor) -> PlayedPoints:
        """Return the unique played points together with X (q, d), scored by the posterior before X is told."""

    @abstractmethod
    def update(self, X: Tensor, Y: Tensor, selection: Selection) -> None:
        """Condition on rewards Y (q,) at X (q, d) and move to the dictionary selected from ``preview(X)``.

        Either everything is done or, if an error is raised, nothing.
        """

    @abstractmethod
    def restore(self, X: Tensor, Y: Tensor, inducing_points: Tensor) -> None:
        """Condition the empty belief on a whole history at a known dictionary; everything or nothing."""

    @abstractmethod
    def maximize(self, acquisition: ConfidenceAcquisition, beta: Tensor, q: int, seed: int) -> Tensor:
        """Return the q points (q, d) that maximise the acquisition, one after another with the earlier ones pending.

        Args:
            acquisition: scores candidates.
            beta: the multiplier of σ, 0-dim.
            q: number of points.
            seed: all randomness of the search.
        """


class Candidates(ABC):
    """What may be played. A value: the belief over it is another object."""

    @property
    @abstractmethod
    def example(self) -> Tensor:
        """One point (1, d) that has the dtype, device and dimension of all."""

    @abstractmethod
    def belief(self, kernel: Kernel, regularization: float, seed: int) -> Belief:
        """Return the belief before any observation."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return what tells these candidates from others, for saved states."""


class PlayedLog:
    """The unique played points with how often each was played and the sum of its rewards, in order of first play."""

    def __init__(self, example: Tensor) -> None:
        self.points = example[:0]
        self.counts = example.new_zeros(0)
        self.sums = example.new_zeros(0)
        self._positions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.points)

    def locate(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the positions (q,) of the rows of X and which rows (k,) of X are new, each new point once.

        New points get the positions that they will have once ``add`` is called. Points are equal when all their
        numbers are (so 0 and -0 are one point).
        """
        fresh: dict[bytes, int] = {}
        positions, rows = [], []
        for row, key in enumerate(_keys(X)):
            position = self._positions.get(key, fresh.get(key))
            if position is None:
                position = fresh[key] = len(self) + len(fresh)
                rows.append(row)
            positions.append(position)
        return torch.tensor(positions, device=X.device), torch.tensor(rows, dtype=torch.long, device=X.device)

    def points_with(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the unique points and their counts as they will be once X (q, d) is added."""
        positions, rows = self.locate(X)
        counts = torch.cat([self.counts, X.new_zeros(len(rows))])
        return torch.cat([self.points, X[rows]]), counts.index_add(0, positions, X.new_ones(len(X)))

    def sums_with(self, X: Tensor, Y: Tensor) -> Tensor:
        """Return the sums of rewards as they will be once Y (q,) at X (q, d) is added."""
        positions, rows = self.locate(X)
        return torch.cat([self.sums, X.new_zeros(len(rows))]).index_add(0, positions, Y)

    def add(self, X: Tensor, Y: Tensor) -> None:
        """Add rewards Y (q,) at X (q, d). Cost: O(u)."""
        positions, _ = self.locate(X)
        sums = self.sums_with(X, Y)
        self.points, self.counts = self.points_with(X)
        self.sums = sums
        self._positions.update(zip(_keys(X), positions.tolist(), strict=True))


def _keys(X: Tensor) -> list[bytes]:
    """Return a hashable key for each row; adding 0 turns -0 into 0."""
    return [row.tobytes() for row in (X.detach() + 0.0).cpu().numpy()]
