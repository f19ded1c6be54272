"""Draws from the prior at fixed points: the expensive half of Matheron's rule, set up once."""

from abc import ABC, abstractmethod

import torch
from botorch.exceptions.errors import UnsupportedError
from gpytorch.kernels import Kernel
from torch import Tensor

from torch_kbandits.numerics.gram import gram, prior_variance
from torch_kbandits.numerics.linalg import jittered_cholesky
from torch_kbandits.numerics.waves import WavePrior

#: Up to this many distinct points a prior draw comes from the joint covariance, beyond it from an approximation.
JOINT_LIMIT = 2000

#: Rank of the low-rank part where the kernel has no random features, beside the points it must be exact at.
_RANK = 256


class PriorDraws(ABC):
    """Draws of a function with prior N(0, k) at fixed points; equal points get equal values.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        self._kernel = kernel
        self.points = points

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""


class JointDraws(PriorDraws):
    """Draws from the joint covariance. Cost: O(N³) once, O(N²) a draw."""

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(kernel, points)
        with torch.no_grad():
            self._factor = jittered_cholesky(gram(kernel, points))

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        return self._factor @ _normals(len(self.points), generator, self.points)


class FourierDraws(PriorDraws):
    """Draws made of waves, see ``WavePrior``, evaluated in single precision.

    Cost: O(N F d) time a draw, O(N) memory.

    Raises:
        UnsupportedError: if the kernel is not RBF or Matérn, scaled or not.
    """

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__(kernel, points)
        self._prior = WavePrior(kernel, points.shape[-1])
        self._centre = points.mean(0)
        self._centred = points - self._centre

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        return self._prior.draw(generator).quickly_at(self._centred, self._centre)


class LowRankDraws(PriorDraws):
    """Draws by pivoted Cholesky; what the low rank leaves is drawn independently for each point.

    The marginals are exact, and so is the covariance with the points ``first``. If the rank is not enough, other points
    close to each other are less correlated than under the prior. Cost: O(N r²) once, O(N r) a draw; O(N r) memory, for
    a rank r of at most 256 beside the number of points ``first``.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
        first: rows of the points that draws are to be conditioned at. Matheron's rule needs it: there independent
            residuals of neighbours would be taken for a steep slope and extrapolated.
    """

    def __init__(self, kernel: Kernel, points: Tensor, first: Tensor | None = None) -> None:
        super().__init__(kernel, points)
        with torch.no_grad():
            variance = prior_variance(kernel, points)
            least = 10.0 * torch.finfo(variance.dtype).eps * variance.max()
            exact = _embedding(kernel, points, first)
            root = variance.new_empty(min(len(exact) + _RANK, len(points)), len(points))
            rank = len(exact)
            root[:rank] = exact
            residual = (variance - exact.square().sum(0)).clamp_min(0.0)
            while rank < len(root) and bool(residual.max() > least):
                pivot = residual.argmax()
                column = gram(kernel, points[pivot, None], points).squeeze(0) - root[:rank, pivot] @ root[:rank]
                root[rank] = column / residual[pivot].sqrt()
                residual = (residual - root[rank].square()).clamp_min(0.0)
                residual[pivot] = 0.0
                rank += 1
            self._root = root[:rank].clone()
            self._residual_deviation = residual.sqrt()

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return a fresh draw, (N,)."""
        explained = _normals(len(self._root), generator, self.points) @ self._root
        return explained + self._residual_deviation * _normals(len(self.points), generator, self.points)


def prior_draws(kernel: Kernel, points: Tensor, first: Tensor | None = None) -> PriorDraws:
    """Return the most exact draws that distinct points allow: joint, by Fourier features, by low rank.

    Args:
        kernel: the prior covariance, not to be trained.
        points: distinct, (N, d).
        first: rows of the points that draws are to be conditioned at, see ``LowRankDraws``.
    """
    if len(points) <= JOINT_LIMIT:
        return JointDraws(kernel, points)
    try:
        return FourierDraws(kernel, points)
    except UnsupportedError:
        return LowRankDraws(kernel, points, first)


def _normals(size: int, generator: torch.Generator, like: Tensor) -> Tensor:
    return torch.randn(size, generator=generator, dtype=torch.float64, device="cpu").to(like)


def _embedding(kernel: Kernel, points: Tensor, rows: Tensor | None) -> Tensor:
    """Return L⁻¹ k(Z, X) (m, N) for points X and the m of them in ``rows``, Z, with k(Z, Z) = L Lᵀ."""
    if rows is None or len(rows) == 0:
        return points.new_empty(0, len(points))
    rows = rows.unique()
    factor = jittered_cholesky(gram(kernel, points[rows]))
    embedding = torch.linalg.solve_triangular(factor, gram(kernel, points[rows], points), upper=False)
    embedding[:, rows] = factor.mT  # but for jitter the same: so the coordinates L⁻¹ g(Z) of a draw are what made it
    return embedding
