"""What most benchmarks on arms take: a kernel, λ, a width, and BKB with them, which plays rows as those in NumPy do."""

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

from benchmarks.references import Array, Problem, Rows, bkb_posterior
from torch_kbandits.algorithms import BKB
from torch_kbandits.candidates import Arms
from torch_kbandits.dictionaries import Resampling
from torch_kbandits.environments import FiniteArms

LENGTHSCALE = 0.5
REGULARIZATION = 0.01
BETA = 2.0
OVERSAMPLING = 3.0


def kernel(lengthscale: float = LENGTHSCALE, dtype: torch.dtype = torch.float64) -> RBFKernel:
    """Return the Gaussian kernel with a fixed length scale."""
    scale = torch.tensor(lengthscale, dtype=dtype)  # GPyTorch would round a Python float to single precision
    return RBFKernel().to(dtype).initialize(lengthscale=scale).requires_grad_(False)


def bkb(
    arms: torch.Tensor | Arms,
    seed: int,
    *,
    oversampling: float = OVERSAMPLING,
    resampling: Resampling = "fresh",
    max_dictionary: int | None = None,
) -> BKB:
    """Return BKB on arms (A, d)."""
    return BKB(
        candidates=arms,
        kernel=kernel(),
        regularization=REGULARIZATION,
        oversampling=oversampling,
        resampling=resampling,
        max_dictionary=max_dictionary,
        when_full="stop",
        beta=BETA,
        seed=seed,
    )


def problem_of(environment: FiniteArms) -> Problem:
    """Return the arms of an environment with this kernel, λ and width, for players in NumPy."""
    return Problem(environment.arms.numpy(), LENGTHSCALE, REGULARIZATION, BETA)


class RowPlayer:
    """BKB as a player of rows of an environment's arms."""

    def __init__(self, bandit: BKB, environment: FiniteArms) -> None:
        self.bandit, self._environment = bandit, environment

    def ask(self) -> int:
        """Return the row of the arm to play."""
        return self._environment.indices(self.bandit.ask())[0]

    def tell(self, row: int, reward: float) -> None:
        """Learn a reward."""
        self.bandit.tell(self._environment.arms[row, None], torch.tensor([reward], dtype=torch.float64))

    @property
    def dictionary(self) -> Rows:
        """The rows of the inducing points."""
        return np.array(self._environment.indices(self.bandit.inducing_points), dtype=np.intp)

    @property
    def variance(self) -> Array:
        """The variances of all arms, computed afresh at its dictionary, (A,)."""
        played = np.array(self._environment.indices(self.bandit.history.X))
        return bkb_posterior(problem_of(self._environment), self.dictionary, played, np.zeros(len(played)))[1]
