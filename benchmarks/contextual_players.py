"""EK-UCB of its authors' public code, read as formulas and written anew in NumPy alone.

It keeps explicit inverses and changes them by the formulas of Sherman and Morrison and of the Schur complement, without
jitter, as that code does: where dictionary points nearly coincide, scores may be no numbers. The first such score wins,
as in that code; ``broken`` counts these choices. Every player draws from the generator of seed 123, whatever the seed
of the problem, and its first draw is its first action.

Source: github.com/criteo-research/Efficient-Kernel-UCB.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.references import Array

_SEED = 123


@dataclass(frozen=True)
class Surrogate:
    """What is known: of exp(−‖s − s'‖² / (2 lengthscale²)), λ, and the multiplier of σ/√λ, theirs 0.1."""

    lengthscale: float
    regularization: float
    multiplier: float = 0.1

    def gram(self, left: Array, right: Array) -> Array:
        """Return the kernel of points (n, d) against points (m, d), (n, m)."""
        return np.exp(-cdist(left, right, "sqeuclidean") / (2.0 * self.lengthscale**2))


class AuthorsEKUCB:
    """EK-UCB with KORS: a posterior on a dictionary Z, by Λ = (K_ZS K_SZ + λ K_ZZ)⁻¹, K_ZZ⁻¹ and K_ZS y.

    Their score of a point is (1 + ε)/μ times what the dictionary with the point explains of it; the paper's, equation
    (41), is (1 + ε)/μ times what it leaves. So theirs is 1.5/μ where nothing is left and 1.5/(μ (1 + μ)) in a new
    direction. The kernel of the points against the dictionary is kept, with room to grow: with the paper's score this
    is the fastest plain NumPy of EK-UCB known to us.
    ``oversampling`` is γ, 0.001, 0.02, 0.05 and 0.1 times λ in their code, and ``projection`` μ.
    """

    def __init__(
        self, surrogate: Surrogate, oversampling: float, projection: float, *, scores_what_is_left: bool = False
    ) -> None:
        self.surrogate, self.broken = surrogate, 0
        self._oversampling, self._projection, self._is_papers = oversampling, projection, scores_what_is_left
        self._random = np.random.RandomState(_SEED)
        self._points, self._rewards, self._crossed = np.zeros((0, 0)), np.zeros(0), np.ones((1, 1))

    @property
    def dictionary_size(self) -> int:
        """Points in Z, with those that are in it twice."""
        return len(self.dictionary)

    def choose(self, points: Array) -> int:
        """Return which of the joint points (A, d) of a round to play; the first of all is drawn."""
        if not len(self._points):
            return int(self._random.choice(len(points)))
        values, regularization = self.surrogate.gram(points, self.dictionary), self.surrogate.regularization
        inner = self._precision - self._inverse / regularization
        score = 1.0 / regularization + np.einsum("am,am->a", values @ inner, values)  # σ²/λ
        with np.errstate(invalid="ignore"):
            bounds = values @ (self._precision @ self._moment) + self.surrogate.multiplier * np.sqrt(score)
        self.broken += bool(np.isnan(bounds).any())
        return int(bounds.argmax())

    def tell(self, point: Array, reward: float) -> None:
        """Learn the reward of a joint point (d,)."""
        if len(self._points):
            self._learn(point[None], reward)
            self._points = np.concatenate([self._points, point[None]])
        else:
            self._points = self.dictionary = point[None]
            gram = self.surrogate.gram(point[None], point[None])
            self._inverse = 1.0 / gram
            self._precision = 1.0 / (gram * gram + self.surrogate.regularization * gram)
            self._moment = gram[0] * reward
            self._shares, self._weights = np.array([[1.0 / (1.0 + self._projection)]]), np.ones((1, 1))
        self._rewards = np.append(self._rewards, reward)

    def chance(self, point: Array) -> float:
        """Return the probability with which a joint point (d,) would join the dictionary next."""
        weighted = self._weights * self.surrogate.gram(self.dictionary, point[None])
        before = (weighted.T @ self._shares @ weighted).item()
        explained = before + (1.0 - before) ** 2 / (1.0 + self._projection - before)
        counted = 1.0 - explained if self._is_papers else explained
        return min(max(self._oversampling * 1.5 / self._projection * counted, 0.0), 1.0)

    def _learn(self, point: Array, reward: float) -> None:
        """Learn a reward of a point (1, d), at the same dictionary and then, by chance, with it."""
        values, probability = self.surrogate.gram(self.dictionary, point), self.chance(point[0])
        number, size = len(self._points) + 1, len(self.dictionary)
        self._make_room(number, size + 1)
        self._crossed[number - 1, :size] = values[:, 0]
        solved = self._precision @ values
        self._precision = self._precision - solved @ solved.T / (1.0 + float(values[:, 0] @ solved[:, 0]))
        self._moment = self._moment + reward * values[:, 0]
        if self._random.random_sample() >= probability:
            return
        weight = probability**-0.5
        self._shares = _bordered(self._shares, weight * self._weights * values, weight**2 + self._projection)
        self._weights = np.append(self._weights, [[weight]], axis=0)
        points, rewards = np.concatenate([self._points, point]), np.append(self._rewards, reward)
        column = self._crossed[:number, size, None] = self.surrogate.gram(points, point)
        border = self._crossed[:number, :size].T @ column + self.surrogate.regularization * values
        self._precision = _bordered(self._precision, border, (column.T @ column).item() + self.surrogate.regularization)
        self._inverse = _bordered(self._inverse, values, 1.0)
        self._moment = np.append(self._moment, column[:, 0] @ rewards)
        self.dictionary = np.concatenate([self.dictionary, point])

    def _make_room(self, rows: int, columns: int) -> None:
        """Double what is kept where it is used up."""
        shape = self._crossed.shape
        if rows > shape[0] or columns > shape[1]:
            larger = np.zeros((max(2 * rows, shape[0]), max(2 * columns, shape[1])))
            larger[: shape[0], : shape[1]] = self._crossed
            self._crossed = larger


def _bordered(inverse: Array, border: Array, corner: float) -> Array:
    """Return the inverse of [[A, b], [bᵀ, c]], given A⁻¹, b (m, 1) and c."""
    solved = inverse @ border
    share = 1.0 / (corner - (border.T @ solved).item())
    return np.block([[inverse + share * solved @ solved.T, -share * solved], [-share * solved.T, np.array([[share]])]])
