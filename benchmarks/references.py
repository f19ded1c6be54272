"""What the package is measured against, in NumPy and SciPy alone: no line is shared with the package.

Both use the Gaussian kernel exp(−‖x − x'‖² / (2 lengthscale²)), whose prior variance is 1.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """Arms and the constants of the surrogate.

    Attributes:
        arms: (A, d).
        lengthscale: of the Gaussian kernel.
        regularization: λ, in reward units squared.
        beta: multiplier of the posterior standard deviation.
    """

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

    Args:
        problem: the arms and the surrogate.
        dictionary: rows of the arms in the dictionary, (m,).
        played: row of the arm played in each round, (n,).
        rewards: (n,).

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


def bkb_round(
    problem: Problem, dictionary: Rows, played: Rows, rewards: Array, oversampling: float, rng: np.random.Generator
) -> tuple[int, Rows]:
    """Return the arm that BKB plays next and the dictionary that it draws then: one round, written the direct way."""
    mean, variance = bkb_posterior(problem, dictionary, played, rewards)
    choice = int(np.argmax(mean + problem.beta * np.sqrt(variance)))
    unique, counts = np.unique(np.append(played, choice), return_counts=True)
    kept = rng.random(len(unique)) < oversampling * counts * variance[unique] / problem.regularization
    return choice, unique[kept]


class AuthorsBKB:
    """BKB as the public code of its authors plays it, read and written anew: every round from scratch.

    Variances are in units of λ, the embedding drops directions of K_ZZ that are rounding alone, and an arm played c
    times is in the next dictionary if a uniform of its own is below q̄ c σ²/λ, the variance as it was when the arm was
    chosen. The multiplier is the problem's in place of the code's formula.

    Source: github.com/luigicarratino/batch-bkb, ``BKB``.

    Args:
        problem: the arms and the surrogate.
        oversampling: q̄.
        seed: of the uniforms.

    Raises:
        RuntimeError: in a ``tell``, if no arm is below; the code stops there as well.
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
    that is drawn once; before any reward all scores are equal, so the first arm is random.

    Args:
        problem: the arms and the surrogate.
        horizon: most rewards that will be told.
        seed: of the order among equals.
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


def _cholesky(matrix: Array) -> Array:
    """Return the lower Cholesky factor, with the least jitter of a few that lets it succeed."""
    identity = np.eye(len(matrix))
    for jitter in (0.0, 1e-12, 1e-10):
        try:
            return cholesky(matrix + jitter * identity, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    return cholesky(matrix + 1e-8 * identity, lower=True, check_finite=False)


class IncrementalEKUCB:
    """EK-UCB with KORS as its paper updates it, all actions of a round at once: the fastest plain NumPy known to us.

    The authors' code evaluates one action after another in JAX. Inverses are kept and changed by the formulas of
    Sherman and Morrison and of the Schur complement, which nothing refines: where points nearly coincide they drift.

    Source: Zenati et al., AISTATS 2022, §4, Alg. 1 and 5.

    Args:
        lengthscale: of the Gaussian kernel.
        regularization: λ, in reward units squared, also the μ of KORS.
        beta: multiplier of the posterior standard deviation.
        oversampling: γ of KORS.
        seed: of its draws.
    """

    def __init__(self, lengthscale: float, regularization: float, beta: float, oversampling: float, seed: int) -> None:
        self._scale, self._noise, self._beta, self._gamma = -0.5 / lengthscale**2, regularization, beta, oversampling
        self._random = np.random.default_rng(seed)
        self.dictionary, self._square = np.zeros((0, 0)), np.zeros(0)
        self._inverse = self._ridge = self._shares = np.zeros((0, 0))
        self._weights, self._moment = np.zeros(0), np.zeros(0)
        # Kept with room to grow: points, rewards, and the kernel of the points against the dictionary.
        self._number, self._room = 0, (0, 0)
        self._points, self._rewards, self._crossed = np.zeros((0, 0)), np.zeros(0), np.zeros((0, 0))

    def _values(self, points: Array, first: int = 0) -> Array:
        """Return the kernel of points (k, d) against the dictionary from a point on, (k, m)."""
        distances = points @ (-2.0 * self.dictionary[first:].T)
        distances += self._square[first:]
        distances += np.einsum("kd,kd->k", points, points)[:, None]
        return np.exp(self._scale * np.maximum(distances, 0.0))

    def choose(self, points: Array) -> int:
        """Return which of the joint points (A, d) of a round has the highest upper confidence bound."""
        if not len(self.dictionary):
            return 0
        values = self._values(points)
        quadratic = np.einsum("am,am->a", values @ (self._noise * self._ridge - self._inverse), values)
        bounds = values @ (self._ridge @ self._moment) + self._beta * np.sqrt(np.maximum(1.0 + quadratic, 0.0))
        return int(bounds.argmax())

    def tell(self, point: Array, reward: float) -> None:
        """Learn the reward of a joint point (d,)."""
        if not len(self.dictionary):
            self._make_room(point)
            self._crossed[0, 0] = 1.0
            self._note(point, reward)
            self.dictionary, self._square = point[None], np.array([point @ point])
            self._inverse, self._ridge = np.ones((1, 1)), np.array([[1.0 / (1.0 + self._noise)]])
            self._shares, self._weights = np.array([[1.0 / (1.0 + self._noise)]]), np.ones(1)
            self._moment = np.array([reward])
            return
        self._make_room(point)
        values = self._crossed[self._number, : len(self.dictionary)] = self._values(point[None])[0]
        self._note(point, reward)
        weighted = self._weights * values
        solved = self._shares @ weighted
        left = 1.0 - weighted @ solved
        share = 1.5 / self._noise * (left - left * left / (left + self._noise))
        probability = min(1.0, self._gamma * share)
        self._ridge -= np.outer(step := self._ridge @ values, step) / (1.0 + values @ step)
        self._moment += reward * values
        if self._random.random() >= probability:
            return
        weight = probability**-0.5
        self._shares = _bordered(self._shares, weight * solved, weight**2 * left + self._noise)
        self._inverse = _bordered(self._inverse, solved := self._inverse @ values, 1.0 - values @ solved)
        self.dictionary = np.concatenate([self.dictionary, point[None]])
        self._square = np.append(self._square, point @ point)
        self._weights = np.append(self._weights, weight)
        number, size = self._number, len(self.dictionary)
        self._crossed[:number, size - 1] = self._values(self._points[:number], size - 1)[:, 0]
        crossed = self._crossed[:number, :size]
        products = crossed[:, :-1].T @ crossed[:, -1] + self._noise * values
        solved = self._ridge @ products
        corner = crossed[:, -1] @ crossed[:, -1] + self._noise - products @ solved
        self._ridge = _bordered(self._ridge, solved, corner)
        self._moment = np.append(self._moment, crossed[:, -1] @ self._rewards[:number])

    def _make_room(self, point: Array) -> None:
        """Double the room of what is kept where it is used up."""
        rows, columns = self._room
        if self._number < rows and len(self.dictionary) < columns:
            return
        self._room = max(64, 2 * self._number), max(64, 2 * len(self.dictionary))
        for name, shape in (
            ("_points", (self._room[0], len(point))),
            ("_rewards", self._room[:1]),
            ("_crossed", self._room),
        ):
            larger, old = np.zeros(shape), getattr(self, name)
            larger[tuple(map(slice, old.shape))] = old
            setattr(self, name, larger)

    def _note(self, point: Array, reward: float) -> None:
        self._points[self._number], self._rewards[self._number] = point, reward
        self._number += 1


def _bordered(inverse: Array, solved: Array, corner: float) -> Array:
    """Return the inverse of a matrix with a border b, given its inverse A⁻¹, A⁻¹b and the Schur complement."""
    size = len(inverse)
    larger = np.empty((size + 1, size + 1))
    larger[:size, :size] = inverse + np.outer(solved, solved) / corner
    larger[:size, size] = larger[size, :size] = -solved / corner
    larger[size, size] = 1.0 / corner
    return larger
