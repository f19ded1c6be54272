"""What the package is measured against, in NumPy and SciPy alone: no line is shared with the package.

All use the Gaussian kernel exp(−‖x − x'‖² / (2 lengthscale²)), whose prior variance is 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """Arms (A, d), the length scale, λ in reward units squared, and the multiplier of the standard deviation."""

    arms: Array
    lengthscale: float
    regularization: float
    beta: float

    def gram(self, rows: Rows) -> Array:
        """Return the kernel of some arms (m,) against all arms, (m, A)."""
        squares = np.einsum("ad,ad->a", self.arms, self.arms)
        distances = self.arms[rows] @ self.arms.T
        distances *= -2.0
        distances += squares[rows, None]
        distances += squares
        np.maximum(distances, 0.0, out=distances)
        distances *= -0.5 / self.lengthscale**2
        return np.exp(distances, out=distances)


def bkb_posterior(problem: Problem, dictionary: Rows, played: Rows, rewards: Array) -> tuple[Array, Array]:
    """Return means and variances (A,) of the DTC posterior, all computed afresh.

    Source: Calandriello et al., COLT 2019, between (3) and (4), in reward units squared.

    ``dictionary`` (m,) and ``played`` (n,) are rows of arms.

    Cost: O(A m² + n m² + m³) time, O(A m) memory.
    """
    gram = problem.gram(dictionary)
    factor = _cholesky(gram[:, dictionary])
    embedding = solve_triangular(factor, gram, lower=True, overwrite_b=True, check_finite=False)
    seen = embedding[:, played]
    precision = seen @ seen.T
    precision[np.diag_indices_from(precision)] += problem.regularization
    precision_factor = _cholesky(precision)
    mean = cho_solve((precision_factor, True), seen @ rewards, check_finite=False) @ embedding
    variance = 1.0 - np.einsum("ma,ma->a", embedding, embedding)
    whitened = solve_triangular(precision_factor, embedding, lower=True, overwrite_b=True, check_finite=False)
    variance += problem.regularization * np.einsum("ma,ma->a", whitened, whitened)
    return mean, np.maximum(variance, 0.0)


class AuthorsBKB:
    """BKB as the public code of its authors plays it, read and written anew: every round from scratch.

    Variances are in units of λ, the embedding drops directions of K_ZZ that are rounding alone, and an arm played c
    times is in the next dictionary if a uniform of its own is below q̄ c σ²/λ, the variance as it was when the arm was
    chosen. The multiplier is the problem's in place of the code's formula.
    If no arm is below, ``tell`` stops as that code does. ``oversampling`` is q̄, ``seed`` that of the uniforms.

    Source: github.com/luigicarratino/batch-bkb, ``BKB``.
    """

    def __init__(self, problem: Problem, oversampling: float, seed: int) -> None:
        self.problem = problem
        self.oversampling = oversampling
        num_arms = len(problem.arms)
        self.dictionary: Rows = np.empty(0, dtype=np.intp)
        self._counts, self._sums = np.zeros(num_arms), np.zeros(num_arms)
        self._mean, self._scores = np.zeros(num_arms), np.full(num_arms, 1.0 / problem.regularization)
        self._rng = np.random.default_rng(seed)

    def ask(self) -> int:
        """Return the row of the arm to play, the first of equals."""
        deviation = np.sqrt(self.problem.regularization * self._scores)
        return int(np.argmax(self._mean + self.problem.beta * deviation))

    def tell(self, row: int, reward: float) -> None:
        """Learn a reward; the first arm told is the first dictionary."""
        self._counts[row] += 1.0
        self._sums[row] += reward
        below = self._rng.random(len(self._counts)) < self.oversampling * self._counts * self._scores
        if self._counts.sum() == 1.0:
            below = self._counts > 0.0
        if not below.any():
            raise RuntimeError("No arm is in the dictionary: the authors' code stops here. Take a larger q̄.")
        self.dictionary = np.flatnonzero(below)
        gram = self.problem.gram(self.dictionary)
        values, vectors = np.linalg.eigh(gram[:, self.dictionary])
        kept = values > values.max() * len(values) * np.finfo(float).eps
        embedding = gram.T @ (vectors[:, kept] / np.sqrt(values[kept]))
        played = self._counts > 0.0
        seen = embedding[played]
        precision = (seen.T * self._counts[played]) @ seen + self.problem.regularization * np.eye(seen.shape[1])
        inverse = np.linalg.inv(precision)
        self._mean = embedding @ (inverse @ (seen.T @ self._sums[played]))
        outside = np.maximum(1.0 - np.einsum("am,am->a", embedding, embedding), 0.0)
        self._scores = outside / self.problem.regularization + np.einsum("am,am->a", embedding @ inverse, embedding)


class ExactGPUCB:
    """GP-UCB with the exact posterior of every arm, grown by one row of the Cholesky factor a round.

    The rows of L⁻¹ K_nA are kept for all arms, so that a round costs O(A n). Equal scores are ordered by a permutation
    that is drawn once; before any reward all scores are equal, so the first arm is random. At most ``horizon`` rewards
    are told.
    """

    def __init__(self, problem: Problem, horizon: int, seed: int) -> None:
        self.problem = problem
        num_arms = len(problem.arms)
        self.mean = np.zeros(num_arms)
        self.variance = np.ones(num_arms)
        self._explained = np.empty((horizon, num_arms))
        self._told = 0
        self._rank = np.random.default_rng(seed).permutation(num_arms)

    def ask(self) -> int:
        """Return the row of the arm to play."""
        scores = self.mean + self.problem.beta * np.sqrt(np.maximum(self.variance, 0.0))
        return int(np.argmax(np.where(scores >= scores.max() - 1e-10, self._rank, -1)))

    def tell(self, row: int, reward: float) -> None:
        """Condition on a reward."""
        rows = self._explained[: self._told]
        covariance = self.problem.gram(np.array([row]))[0] - rows[:, row] @ rows
        scale = np.sqrt(self.variance[row] + self.problem.regularization)
        feature = covariance / scale
        self.mean = self.mean + feature * ((reward - self.mean[row]) / scale)
        self.variance = self.variance - feature**2
        self._explained[self._told] = feature
        self._told += 1


@dataclass(frozen=True)
class FeatureProblem(Problem):
    """A problem under the kernel that features of all arms (A, m) have, in place of the Gaussian one."""

    features: Array

    def gram(self, rows: Rows) -> Array:
        """Return the kernel of some arms (m,) against all arms, (m, A)."""
        return self.features[rows] @ self.features.T


class FrequentDirections(ExactGPUCB):
    """GP-UCB with a sketch S of m rows in place of all feature maps: SᵀS is their covariance less what is shrunk.

    Rows are combinations of feature maps; of them S φ(x) at all arms and ‖S_i‖² are kept. They are orthogonal.
    """

    def __init__(self, problem: Problem, m: int, seed: int) -> None:
        super().__init__(problem, 0, seed)
        self._m, self._sketch, self._squares = m, np.empty((0, len(problem.arms))), np.empty(0)
        self._sums, self._products = np.zeros(len(problem.arms)), np.zeros(len(problem.arms))

    def tell(self, row: int, reward: float) -> None:
        """Add a row to the sketch, and shrink all by what the (m + 1)th direction has."""
        kernel, level = self.problem.gram(np.array([row]))[0], self.problem.regularization
        self._sums[row] += reward
        self._products += reward * kernel
        inner = np.diag(np.append(self._squares, kernel[row]))
        inner[-1, :-1] = inner[:-1, -1] = self._sketch[:, row]
        squares, vectors = np.linalg.eigh(inner)  # in ascending order
        shrunk = squares[-1 - self._m] if len(squares) > self._m else 0.0
        kept = squares > shrunk + 1e-10
        self._squares = squares[kept] - shrunk
        turned = vectors[:, kept] * np.sqrt(self._squares / squares[kept])
        self._sketch = turned.T @ np.vstack([self._sketch, kernel])
        weights = 1.0 / (self._squares + level)
        self.variance = 1.0 - weights @ self._sketch**2
        self.mean = (self._products - (weights * (self._sketch @ self._sums)) @ self._sketch) / level


def _cholesky(matrix: Array) -> Array:
    """Return the lower Cholesky factor, with the least jitter of a few that lets it succeed."""
    identity = np.eye(len(matrix))
    for jitter in (0.0, 1e-12, 1e-10):
        try:
            return cholesky(matrix + jitter * identity, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    return cholesky(matrix + 1e-8 * identity, lower=True, check_finite=False)
